package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/soukhq/souk/test/faults"
)

const head = `# What a cluster does when it is broken

Written by ` + "`go run ./test/faultrun --report FILE`, from runs of `go run ./test/faultrun --results FILE` (`make faults`)" + `.
Each run is a cluster of real agents in network namespaces, with clients that launch and destroy machines through all members,
before, during and after the fault; then ` + "`souk doctor --invariants --history`" + ` and the models of ` + "`cli/check/history`" + ` judge it. See
` + "`docs/decisions/0019-fault-harness.md`" + `.

"Launches" counts creates that were answered, "started" those whose answer was that a machine is started, "during" those of them
while the fault lasted; "again" calls that were repeated, for an answer was lost, and "unsure" those that never had one, or had one
that an earlier try explains as well; "histories" those of one machine or one worker that porcupine searched. The last three are in
seconds from the end of the fault, median and most: until each member heard all others, until every call had its answer (clients go
on for a second), and until it was seen that all members know the same (which is looked for when every call has its answer). After
a power loss the time that is given is one of work behind the start of all.

| fault | runs | seconds | launches | started | during | again | unsure | histories | all heard | all answered | all agree | runs with violations |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
`

// tally sums up reports.
type tally struct {
	faults.Report
	runs, bad                int
	whole, answered, agreed  []float64
	least, most              uint64 // seeds
	commits                  map[string]bool
	members, harness, unwell int
	jobsEnded                []float64
	schedulers               map[string]int // jobs of each
}

func (t *tally) add(r faults.Report) {
	if t.commits == nil {
		t.commits, t.schedulers = map[string]bool{}, map[string]int{}
	}
	if r.Harness != "" {
		t.harness++
		return
	}
	t.runs++
	t.Launches, t.Started, t.During, t.Repeated = t.Launches+r.Launches, t.Started+r.Started, t.During+r.During,
		t.Repeated+r.Repeated
	t.Unsure, t.Histories, t.Undecided = t.Unsure+r.Unsure, t.Histories+r.Histories, t.Undecided+r.Undecided
	t.Smaller += r.Smaller
	t.Destroyed, t.Holds, t.Leases, t.Kills = t.Destroyed+r.Destroyed, t.Holds+r.Holds, t.Leases+r.Leases,
		t.Kills+r.Kills
	t.FaultSecs, t.members = max(t.FaultSecs, r.FaultSecs), max(t.members, r.Nodes)
	if t.least == 0 || r.Seed < t.least {
		t.least = r.Seed
	}
	t.most, t.commits[r.Commit] = max(t.most, r.Seed), true
	if len(r.Violations) > 0 {
		t.bad++
	}
	if r.Whole == 0 {
		t.unwell++
	} else {
		t.whole = append(t.whole, r.Whole)
	}
	t.answered = append(t.answered, r.Answered)
	if r.Jobs > 0 {
		t.jobsEnded = append(t.jobsEnded, r.JobsEnded)
	}
	t.Adopted, t.Replaced, t.Deaths = t.Adopted+r.Adopted, t.Replaced+r.Replaced, t.Deaths+r.Deaths
	t.Shown = max(t.Shown, r.Shown)
	for name, n := range r.Schedulers {
		t.schedulers[name] += n
	}
	t.Jobs, t.Tasks, t.Attempts, t.Away = t.Jobs+r.Jobs, t.Tasks+r.Tasks, t.Attempts+r.Attempts, t.Away+r.Away
	t.Cancelled, t.Lost = t.Cancelled+r.Cancelled, t.Lost+r.Lost
	if r.Agreed > 0 {
		t.agreed = append(t.agreed, r.Agreed)
	}
}

// spread returns the median and the most.
func spread(of []float64) string {
	if len(of) == 0 {
		return "-"
	}
	slices.Sort(of)
	return fmt.Sprintf("%.1f / %.1f", of[len(of)/2], of[len(of)-1])
}

// writeReport makes docs/results-faults.md of the reports of runs.
func writeReport(w io.Writer, path string) error {
	reports, err := readReports(path)
	if err != nil {
		return err
	}
	fmt.Fprint(w, head)
	var sum tally
	var bad []faults.Report
	for _, name := range faults.All() {
		var t tally
		for _, r := range reports {
			if r.Fault != name {
				continue
			}
			t.add(r)
			if sum.add(r); len(r.Violations) > 0 {
				bad = append(bad, r)
			}
		}
		if t.runs > 0 {
			fmt.Fprintf(w, "| %s | %d | %.0f | %d | %d | %d | %d | %d | %d | %s | %s | %s | %d |\n", name, t.runs,
				t.FaultSecs,
				t.Launches, t.Started, t.During, t.Repeated, t.Unsure, t.Histories, spread(t.whole), spread(t.answered),
				spread(t.agreed), t.bad)
		}
	}
	fmt.Fprintf(
		w,
		"\nIn all: %d runs of %d members, %d launches, %d started, %d destroyed, %d holds granted, %d leases taken, "+
			"%d "+
			"agents killed; %d histories, of\n"+
			"which the search left %d undecided; %d runs with violations. Seeds %d to %d of each fault, commit %s. "+
			"Runs that "+
			"say nothing, for the\n"+
			"harness failed, and that were repeated: %d.\n",
		sum.runs,
		sum.members,
		sum.Launches,
		sum.Started,
		sum.Destroyed,
		sum.Holds,
		sum.Leases,
		sum.Kills,
		sum.Histories,
		sum.Undecided,
		sum.bad,
		sum.least,
		sum.most,
		strings.Join(slices.Sorted(maps.Keys(sum.commits)), ", "),
		sum.harness,
	)
	if sum.unwell > 0 {
		fmt.Fprintf(w, "In %d runs it was not seen in a minute that all members hear all others.\n", sum.unwell)
	}
	if sum.Smaller > 0 {
		fmt.Fprintf(w, "Of what was started during partitions, %d were asked of members on the smaller side.\n",
			sum.Smaller)
	}
	writeJobs(w, reports)
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

const jobsHead = `
## Jobs

Runs with ` + "`--jobs`" + ` submit jobs of short tasks at random members as well, cancel some, and look at all of them again and
again at the member that keeps each. The auction places every second job, and an architecture of ` + "`core/scheduler/registry`" + `, drawn
by the seed and the fault, each other (in mixed, the auction all of them). Each task notes itself when it begins, and holds a lock while a process of it lives. A
violation is: an answered job, or the result of a task, that is missing or different later; a job that has not ended 90 s after
the clients, or that then not every member lists once with the same keeper; a task of it without a result, or with that of an
attempt that never began; an attempt of the same epoch that began twice; a cancelled task that goes on; a process or capacity of a
task that is left; a job with an heir that a living member does not show for more than 3 s while its keeper is down. Jobs of a
member of which a copy lived at the same time are not judged.

A result that was shown may be replaced by another only when another member keeps the job than did then, and the members were cut
from each other, or one of them was away for more than 3 s: its heir took the job over without knowing all of its results. Then
two attempts of one epoch may have begun, too, at two workers.

"Away" counts tasks with a result of another member than the one that was asked, "lost" those that failed for they were lost too
often, "taken over" jobs that another member keeps in the end, "replaced" results as above, "deaths" how often a keeper of jobs
with an heir was down, and "shown" is the longest time in seconds in which a living member did not show such a job. "All ended" is
in seconds from the end of the fault, median and most.

| fault | runs | seconds | jobs | tasks | attempts | away | cancelled | lost | taken over | replaced | deaths | shown | all ended | runs with violations |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
`

// writeJobs writes the table of the runs with jobs, if there are any.
func writeJobs(w io.Writer, reports []faults.Report) {
	head := jobsHead
	schedulers := tally{}
	for _, name := range faults.All() {
		var t tally
		for _, r := range reports {
			if r.Fault == name && r.Jobs > 0 {
				t.add(r)
				schedulers.add(r)
			}
		}
		if t.runs == 0 {
			continue
		}
		fmt.Fprint(w, head)
		head = ""
		fmt.Fprintf(w, "| %s | %d | %.0f | %d | %d | %d | %d | %d | %d ", name, t.runs, t.FaultSecs, t.Jobs, t.Tasks,
			t.Attempts, t.Away, t.Cancelled, t.Lost)
		fmt.Fprintf(w, "| %d | %d | %d | %.1f | %s | %d |\n", t.Adopted, t.Replaced, t.Deaths, t.Shown,
			spread(t.jobsEnded), t.bad)
	}
	if len(schedulers.schedulers) > 0 {
		fmt.Fprintf(w, "\nJobs of each scheduler: %s.\n", faults.CountsText(schedulers.schedulers))
	}
}
