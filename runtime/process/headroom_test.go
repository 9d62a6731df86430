package process_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/process"
	"github.com/soukhq/souk/runtime/reaper"
)

// TestStartsAreRefusedWithoutProcesses: the worker's machines have taken every process that there may be. Starts are refused while that
// is so, and work again afterwards; the reaper stays what it is.
func TestStartsAreRefusedWithoutProcesses(t *testing.T) {
	var dir string
	r := open(t, func(o *process.Options) { dir = o.Dir })
	tree := "/sys/fs/cgroup/pids/" + reaper.TreeName(dir)
	if _, err := os.Stat(tree); err != nil {
		tree = "/sys/fs/cgroup/" + reaper.TreeName(dir)
	}
	limit := func(n string) {
		if err := os.WriteFile(filepath.Join(tree, "pids.max"), []byte(n), 0); err != nil {
			lacking(t, "root, and cgroups that count processes")
		}
	}
	begin := func(id string) error {
		s := limited(id, 1, lasting...)
		s.Fresh = true
		_, err := r.Start(t.Context(), s)
		return err
	}
	start(t, r, limited("quiet", 1, lasting...))
	pid := reaperPID(t, dir)
	refused := 0
	for i := range 60 {
		if i%10 == 0 { // what the reaper has given up meanwhile is taken by others
			b, err := os.ReadFile(filepath.Join(tree, "pids.current"))
			if err != nil {
				lacking(t, "root, and cgroups that count processes")
			}
			limit(strings.TrimSpace(string(b)))
		}
		switch err := begin(fmt.Sprintf("m%d", i)); {
		case fault.Is(err, fault.Unavailable):
			refused++
		case err != nil:
			t.Fatal(err)
		}
		if now := reaperPID(t, dir); now != pid {
			t.Fatalf("the reaper ended when there was no process left for start %d: %d, was %d: %s", i, now, pid,
				crash(filepath.Join(dir, reaper.LogFile)))
		}
	}
	if refused == 0 {
		t.Error("no start was refused")
	}
	limit("max")
	if err := begin("again"); err != nil {
		t.Errorf("with processes left again: %v", err)
	}
}

// crash is what Go's runtime wrote into a log at the end of a process: the log's own lines are JSON.
func crash(log string) string {
	raw, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	var out strings.Builder
	for line := range strings.Lines(string(raw)) {
		if !strings.HasPrefix(line, "{") && out.Len() < 16<<10 {
			out.WriteString(line)
		}
	}
	return out.String()
}
