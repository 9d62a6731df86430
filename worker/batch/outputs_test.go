package batch

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

const line = `{"stream":"stdout","text":"hello"}` + "\n"

// files is a directory with jobs' output, and the jobs that there are.
type files struct {
	*outputs
	t    *testing.T
	dir  string
	list []jobs.Job
}

// add makes a job with a file of so many bytes, which takes no room on the disk.
func (w *files) add(namespace string, ended bool, size int64) string {
	w.t.Helper()
	n := len(w.list) + 1
	j := jobs.Job{ID: jobs.ID(uint64(n)), State: jobs.Running, Spec: jobs.Spec{Namespace: namespace}}
	if ended {
		at := time.Unix(int64(n), 0)
		j.State, j.Ended = jobs.Succeeded, &at
	}
	w.list = append(w.list, j)
	o := &outputs{dir: w.dir}
	if err := os.WriteFile(o.path(j.ID), []byte(line), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Truncate(o.path(j.ID), size); err != nil {
		w.t.Fatal(err)
	}
	return j.ID
}

// restart opens the directory anew.
func (w *files) restart() {
	w.t.Helper()
	if w.outputs != nil {
		if err := w.close(); err != nil {
			w.t.Fatal(err)
		}
	}
	var err error
	if w.outputs, err = openOutputs(w.dir, ""); err != nil {
		w.t.Fatal(err)
	}
	if err := w.restoreFiles(w.list); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.close() })
	w.counted()
}

// counted holds what is counted against the files.
func (w *files) counted() {
	w.t.Helper()
	space, all := map[string]int64{}, int64(0)
	for job, f := range w.of {
		size := int64(0)
		if st, err := os.Stat(w.path(job)); err == nil {
			size = st.Size()
		}
		if size != f.size {
			w.t.Errorf("job %s: %d bytes are counted of %d", job, f.size, size)
		}
		space[f.namespace], all = space[f.namespace]+size, all+size
	}
	for name, size := range space {
		if w.space[name] != size || size > maxNamespaceOutput {
			w.t.Errorf("namespace %s: %d bytes are counted of %d", name, w.space[name], size)
		}
	}
	if w.all != all || all > maxAllOutput {
		w.t.Errorf("%d bytes are counted of %d", w.all, all)
	}
}

// write appends a line to a job's output and tells whether it was kept.
func (w *files) write(job string) bool {
	w.t.Helper()
	offset, n, cut := w.keepOutput(job, []byte(line), false)
	w.counted()
	err := w.readOutput(&jobs.Result{Offset: offset, Bytes: n, Cut: cut}, job, nil,
		func(machine.LogLine) error { return nil })
	if cut != (n == 0) || cut != fault.Is(err, fault.NotFound) || !cut && err != nil {
		w.t.Errorf("%d bytes are kept, cut %v: %v", n, cut, err)
	}
	return !cut
}

// has reports whether the first line of a job's output is still there; where it is not, that is said.
func (w *files) has(job string) bool {
	w.t.Helper()
	err := w.readOutput(&jobs.Result{Bytes: len(line)}, job, nil, func(machine.LogLine) error { return nil })
	if err != nil && (!fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "was removed to make room")) {
		w.t.Error(err)
	}
	return err == nil
}

// TestNamespaceOutputIsBounded: the output of its oldest ended job makes room, and that of no other namespace. Where
// all of its jobs still run, what comes is dropped, and whoever asks for it is told.
func TestNamespaceOutputIsBounded(t *testing.T) {
	w := &files{t: t, dir: t.TempDir()}
	other := w.add("", true, 1<<20)
	first, second := w.add("greedy", true, maxJobOutput), w.add("greedy", true, maxJobOutput)
	for range 5 {
		w.add("greedy", false, maxJobOutput)
	}
	full, runs := w.list[len(w.list)-1].ID, w.add("greedy", false, maxJobOutput-int64(len(line)))
	gone := w.add("greedy", true, 0)
	w.restart()
	if w.write(full) {
		t.Error("a job has more than a job may have")
	}
	for n, want := range []bool{true, false} { // the first fills its namespace, and itself
		if w.write(runs) != want {
			t.Errorf("line %d is not kept as it should be", n)
		}
	}
	if !w.has(first) {
		t.Error("output was dropped for what finds no room even so")
	}
	w.addJob("j00000000aa", "greedy", 0)
	w.list = append(w.list, jobs.Job{ID: "j00000000aa", State: jobs.Running, Spec: jobs.Spec{Namespace: "greedy"}})
	if !w.write("j00000000aa") || w.has(first) || !w.has(second) || !w.has(other) {
		t.Error("it is not the oldest that made room")
	}
	w.restart()
	if w.write(first) || w.write(gone) || w.has(first) {
		t.Error("what made room has output again")
	}
	if w.write("j00000000bb") {
		t.Error("output of a job that is not there is kept")
	}
	w.purgeJobs([]string{first, second})
	w.counted()
	if w.has(second) {
		t.Error("output of a job that is purged is kept")
	}
}

// TestTotalOutputIsBoundedFairly: the namespace that has most makes room for one that has less, and none for one that has
// more.
func TestTotalOutputIsBoundedFairly(t *testing.T) {
	w := &files{t: t, dir: t.TempDir()}
	old := w.add("small", true, 1<<20)
	oldest := map[string]string{}
	for _, name := range []string{"a", "b"} {
		oldest[name] = w.add(name, true, maxJobOutput)
		for range 7 {
			w.add(name, false, maxJobOutput-1<<20)
		}
	}
	runs := w.add("small", false, 13<<20)
	w.restart()
	if w.all != maxAllOutput {
		t.Fatalf("%d bytes in all, not %d", w.all, maxAllOutput)
	}
	if !w.write(runs) || w.has(oldest["a"]) || !w.has(oldest["b"]) || !w.has(old) {
		t.Error("it is not the namespace with most that made room")
	}
	ofB := w.list[len(w.list)-2].ID
	w.add("c", false, maxJobOutput-int64(len(line)))
	w.restart()
	if !w.write(ofB) || w.has(oldest["b"]) || !w.has(old) {
		t.Error("it is not the namespace's own output that made room, as it has most")
	}
	w.add("d", false, maxJobOutput-int64(len(line)))
	w.restart()
	if w.write(ofB) || !w.has(old) {
		t.Error("a namespace with less made room for one with more")
	}
}

// TestOrphanedJobOutputIsRemoved: a file of a job that is kept no longer, left by a souk that was killed.
func TestOrphanedJobOutputIsRemoved(t *testing.T) {
	w := &files{t: t, dir: t.TempDir()}
	w.add("", true, 100)
	left := w.add("", true, 100)
	w.list = w.list[:1]
	w.restart()
	if _, err := os.Stat(w.path(left)); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
}
