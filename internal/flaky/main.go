// Flaky reports the tests that failed and passed when they were run again, in the same run of `make test`.
//
//	go run ./internal/flaky bin/flaky.txt bin/*.json
//
// It reads the events of `go test -json` that gotestsum kept, prints each flaky test with the output of its first
// failure under a line "flaky:", and writes the same to the file named first. It exits with 0 also when there are
// some: a flaky test is a bug, but no reason to lose a run.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: flaky REPORT EVENTS...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "flaky:", err)
		os.Exit(1)
	}
}

func run(report string, paths []string, stdout io.Writer) error {
	out := &strings.Builder{}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		found, err := find(f)
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, t := range found {
			fmt.Fprintf(out, "\nflaky: %s %s failed, and passed when it was run again:\n%s", t.pkg, t.name, t.output)
		}
	}
	fmt.Fprint(stdout, out)
	return os.WriteFile(report, []byte(out.String()), 0o600)
}

// event is a line of `go test -json`.
type event struct {
	Action, Package, Test, Output string
}

// test is a top-level test that failed and then passed; output is from its first failure.
type test struct {
	pkg, name, output string
}

// find returns the flaky tests in a stream of events, in the order in which they finally passed.
func find(r io.Reader) (flaky []test, err error) {
	type key struct{ pkg, name string }
	output := map[key]string{}   // of the current run, by test and subtest
	failed := map[key][]string{} // by top-level test: its failures in the current run, itself last
	first := map[key]string{}    // by top-level test: the output of its first failure
	for d := json.NewDecoder(r); ; {
		var e event
		switch err := d.Decode(&e); {
		case err == io.EOF:
			return flaky, nil
		case err != nil:
			return flaky, err
		case e.Test == "":
			continue
		}
		root, _, isSub := strings.Cut(e.Test, "/")
		this, top := key{e.Package, e.Test}, key{e.Package, root}
		switch e.Action {
		case "run":
			delete(output, this)
			if !isSub {
				delete(failed, this)
			}
		case "output":
			output[this] += e.Output
		case "fail":
			failed[top] = append(failed[top], e.Test)
			if _, again := first[top]; !isSub && !again {
				slices.Reverse(failed[top])
				for _, name := range failed[top] {
					first[top] += output[key{e.Package, name}]
				}
			}
		case "pass":
			if said, ok := first[this]; ok {
				flaky = append(flaky, test{pkg: e.Package, name: e.Test, output: said})
				delete(first, this)
			}
		}
	}
}
