package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/soukhq/souk/testcluster/faults"
)

// writeReport makes docs/results-faults.md of the reports of runs.
func writeReport(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	by := map[string][]faults.Report{}
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<22)
	for sc.Scan() {
		var r faults.Report
		if err := json.Unmarshal(sc.Bytes(), &r); err != nil {
			return fmt.Errorf("%s holds a line that is no report: %w", path, err)
		}
		by[r.Fault] = append(by[r.Fault], r)
	}
	if err := sc.Err(); err != nil {
		return err
	}
	fmt.Fprint(w, "# What a cluster does when it is broken\n\n"+
		"Written by `go run ./testcluster/faultrun --report FILE`, from runs of `go run ./testcluster/faultrun --json`. Each run is a cluster\n"+
		"of real agents in network namespaces, with clients that launch and destroy machines through all members, before, during and after\n"+
		"the fault; then `souk doctor --invariants --history` and the models of `testcluster/history` judge it. See\n"+
		"`docs/decisions/0019-fault-harness.md`. \"Started\" counts answers that a machine is started, \"during\" those while the fault lasted,\n"+
		"\"again\" calls that were repeated because an answer was lost; \"agree\" is the time from the end of the fault until it was seen that all\n"+
		"members know the same, in seconds, median and most; the search for it begins when every call has its answer.\n\n"+
		"| fault | runs | members | seconds | launches | started | during | again | histories | agree | runs with violations |\n"+
		"| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	var sum faults.Report
	runs, bad := 0, []faults.Report{}
	for _, name := range faults.All() {
		rs := by[name]
		if len(rs) == 0 {
			continue
		}
		var t faults.Report
		var agreed []float64
		broken := 0
		for _, r := range rs {
			t.Launches, t.Started, t.During, t.Repeated, t.Histories = t.Launches+r.Launches, t.Started+r.Started, t.During+r.During, t.Repeated+r.Repeated, t.Histories+r.Histories
			if r.Agreed > 0 {
				agreed = append(agreed, r.Agreed)
			}
			if len(r.Violations) > 0 {
				broken++
				bad = append(bad, r)
			}
		}
		agree := "-"
		if len(agreed) > 0 {
			slices.Sort(agreed)
			agree = fmt.Sprintf("%.1f / %.1f", agreed[len(agreed)/2], agreed[len(agreed)-1])
		}
		fmt.Fprintf(w, "| %s | %d | %d | %.0f | %d | %d | %d | %d | %d | %s | %d |\n", name, len(rs), rs[0].Nodes, rs[0].FaultSecs, t.Launches, t.Started,
			t.During, t.Repeated, t.Histories, agree, broken)
		sum.Launches, sum.Started, runs = sum.Launches+t.Launches, sum.Started+t.Started, runs+len(rs)
	}
	fmt.Fprintf(w, "\nIn all %d runs, %d launches, %d started, %d runs with violations.\n", runs, sum.Launches, sum.Started, len(bad))
	for _, r := range bad {
		fmt.Fprintf(w, "\n`%s`\n\n", r.Repeat)
		for i, v := range r.Violations {
			if i == 3 {
				fmt.Fprintf(w, "* and %d more\n", len(r.Violations)-i)
				break
			}
			fmt.Fprintf(w, "* %s\n", v)
		}
	}
	return nil
}
