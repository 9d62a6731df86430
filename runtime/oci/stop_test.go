package oci_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/runtime/process"
)

func TestStopSignalsParse(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int{
		"": 0, "SIGQUIT": 3, "quit": 3, "15": 15, "0": 0, "65": 0, "-1": 0, "SIGNOPE": 0,
		"SIGRTMIN": 34, "SIGRTMIN+3": 37, "RTMAX-2": 62, "SIGRTMIN+31": 0, "SIGRTMIN+x": 0,
	} {
		if got := oci.StopSignal(s); got != want {
			t.Errorf("%q is %d, want %d", s, got, want)
		}
	}
}

// TestContainerStopsByItsImagesSignal: a container is stopped by the signal that its image names, also by a reaper that has
// taken it over. Its root cannot be written where it is asked for so, but for what programs write to anyway.
func TestContainerStopsByItsImagesSignal(t *testing.T) {
	t.Parallel()
	o := oci.Options{Images: stopped{busybox(t), "SIGQUIT"}, Process: process.Options{
		Dir: filepath.Join(t.TempDir(), "oci"), ReaperCommand: []string{os.Args[0]}}}
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	script := `trap 'exit 3' QUIT; exec 2>&1; echo x > /file; for d in /tmp /run /var/tmp; do echo $d > $d/file && cat $d/file; done
echo ready; while :; do sleep 0.01; done`
	s := runtime.Spec{Machine: "m", Attempt: 1, Fresh: true, SwapMB: -1, ReadOnly: true,
		Argv: []string{"/bin/sh", "-c", script}}
	if err := errors.Join(r.Prepare(t.Context(), s), only(r.Start(t.Context(), s))); err != nil {
		t.Fatal(err)
	}
	if err := r.Logs(t.Context(), "m", machine.LogQuery{Follow: true}, func(l machine.LogLine) error {
		if l.Text == "ready" {
			return io.EOF
		}
		return nil
	}); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	kill(t, func(pid int) bool { return isReaper(pid, o.Process.Dir) })
	_, err := r.List(t.Context()) // which is asked again, as a signal is not
	if err := errors.Join(err, r.Signal(t.Context(), "m", 0)); err != nil {
		t.Fatal(err)
	}
	if x := <-r.Exits(); x.Code != 3 {
		t.Errorf("it ended with %+v", x)
	}
	want := []string{"/bin/sh: can't create /file: Read-only file system", "/tmp", "/run", "/var/tmp", "ready"}
	if got := logOf(t, r.Runtime, "m"); !slices.Equal(got, want) {
		t.Errorf("it said %q, want %q", got, want)
	}
}

// stopped is an image that names a signal.
type stopped struct {
	dir
	signal string
}

func (s stopped) Hold(ctx context.Context, machine, ref string) (oci.Image, error) {
	i, err := s.dir.Hold(ctx, machine, ref)
	i.StopSignal = s.signal
	return i, err
}
