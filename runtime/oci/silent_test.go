package oci_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/runtime/process"
)

// TestSilentlyFailedContainerIsRemade: runc says now and then, on a host that is very busy, that a container's first process
// has ended without a word. The container is made anew then, a few times, under the same attempt; what fails for a
// reason is not.
func TestSilentlyFailedContainerIsRemade(t *testing.T) {
	t.Parallel()
	layer := busybox(t)
	const silent = "runc create failed: unable to start container process: error during container init: %!w(<nil>)"
	const wrong = "runc create failed: unable to start container process: error during container init: "
	for _, x := range []struct {
		name  string
		fails int // so many creates in a row
		says  string
		tries int
		ok    bool
	}{
		{"never", 0, silent, 1, true},
		{"once", 1, silent, 2, true},
		{"always", 9, silent, 3, false},
		{"for a reason", 1, "runc create failed: no room", 1, false},
		{"for what it is to be", 9, wrong + "a link leads nowhere", 2, false},
		{"for what it is to be, as it seemed once", 1, wrong + "a link leads nowhere", 2, true},
		{"for want of memory", 1, wrong + "fork: cannot allocate memory", 1, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			engine, count := failing(t, x.fails, x.says)
			o := oci.Options{Images: layer, Engines: []string{engine}, Process: process.Options{
				Dir: filepath.Join(t.TempDir(), "oci"), ReaperCommand: []string{os.Args[0]}}}
			t.Cleanup(func() { stopReaper(t, o) })
			r := reopen(t, o)
			st, err := r.Start(t.Context(), runtime.Spec{Machine: "m", Attempt: 1, Fresh: true, SwapMB: -1,
				Argv: []string{"sleep", "1000"}, Env: []string{"PATH=/bin"}})
			ok := err == nil && st.Running && st.Attempt == 1
			final := fault.Is(err, fault.Precondition) && strings.Contains(err.Error(), "a link leads nowhere")
			wanted := x.name == "for what it is to be"
			if ok != x.ok || !ok && !fault.Is(err, fault.Unavailable) && !final || final != wanted {
				t.Errorf("%+v, %v", st, err)
			}
			if raw, err := os.ReadFile(count); err != nil || strings.Count(string(raw), "create") != x.tries {
				t.Errorf("it was made with %q, %v; want %d", raw, err, x.tries)
			}
		})
	}
}

// failing makes an OCI runtime that is runc but for its first creates, and gives the file in which each is a line.
func failing(t *testing.T, creates int, says string) (path, count string) {
	t.Helper()
	runc, err := exec.LookPath("runc")
	if err != nil {
		t.Fatal(err)
	}
	path, count = filepath.Join(t.TempDir(), "failing"), filepath.Join(t.TempDir(), "count")
	script := fmt.Sprintf(`#!/bin/sh
for a in "$@"; do
	[ "$was" = --log ] && log=$a
	[ "$a" = create ] && create=1
	was=$a
done
[ -n "$create" ] || exec %[1]s "$@"
echo create >> %[2]s
[ $(wc -l < %[2]s) -le %[3]d ] || exec %[1]s "$@"
echo '{"level":"error","msg":"%[4]s"}' >> "$log"
exit 1
`, runc, count, creates, says)
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path, count
}
