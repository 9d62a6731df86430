package process_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/process"
	"github.com/soukhq/souk/runtime/reaper/keeper"
	"github.com/soukhq/souk/runtime/reaper/proc"
)

// keeperOf finds the keeper of terminals of a directory; 0 when there is none.
func keeperOf(t *testing.T, dir string) int {
	t.Helper()
	all, err := proc.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		env, err := proc.Environ(s.PID)
		is := slices.Contains(env, keeper.EnvKeep+"="+filepath.Join(dir, "terminals"))
		if err == nil && s.State != 'Z' && is {
			return s.PID
		}
	}
	return 0
}

// echoed types a line into machine m's terminal and waits until the machine has said it.
func echoed(t *testing.T, r *process.Runtime, line string) {
	t.Helper()
	keys, typed := io.Pipe()
	defer typed.Close()
	shown, screen := io.Pipe()
	defer shown.Close()
	go func() {
		_, err := r.Exec(t.Context(), "m", runtime.ExecRequest{Attach: true, Stdin: keys, Stdout: screen,
			Terminal: new(runtime.Terminal)})
		_ = screen.CloseWithError(fmt.Errorf("it ended: %w", err))
	}()
	var told sync.WaitGroup
	defer told.Wait()
	told.Go(func() { _, _ = io.WriteString(typed, line+"\n") }) // an error shows as a missing answer
	var said strings.Builder
	buf := make([]byte, 100)
	for !strings.Contains(said.String(), "got "+line) {
		n, err := shown.Read(buf)
		said.Write(buf[:n])
		if err != nil {
			t.Fatalf("%q was not answered, but %q: %v", line, said.String(), err)
		}
	}
}

// TestTerminalOutlivesReaperAndKeeper: the reaper, the keeper of terminals, the reaper's upgrade and souk, one after the other. When
// reaper and keeper are killed at once, the machine is hung up; and no keeper stays when there is nothing to keep.
func TestTerminalOutlivesReaperAndKeeper(t *testing.T) {
	o := options(filepath.Join(t.TempDir(), "process"))
	t.Cleanup(func() { stopReaper(t, o) })
	old := o
	old.ReaperCommand = []string{otherBuild(t)}
	r := reopen(t, old)
	begin := func(attempt uint64) {
		t.Helper()
		s := script("m", attempt, `while read line; do echo "got $line"; test "$line" = end && exit 4; done; exit 5`)
		s.TTY = true
		start(t, r, s)
		echoed(t, r, "one")
	}
	killKeeper := func() {
		t.Helper()
		pid := keeperOf(t, o.Dir)
		if pid == 0 {
			t.Fatal("there is no keeper")
		}
		st, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid)) // only to be told
		t.Logf("of the keeper's own: %s", regexp.MustCompile(`Private_Dirty:.*`).Find(st))
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		waittest.Until(t, "the keeper has ended", func() bool { return keeperOf(t, o.Dir) == 0 })
	}
	begin(1)
	killReaper(t, o.Dir)
	echoed(t, r, "two")
	killKeeper()
	echoed(t, r, "three")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r = reopen(t, o) // another build: the reaper is upgraded, and has the terminal kept again
	echoed(t, r, "four")
	if keeperOf(t, o.Dir) == 0 {
		t.Fatal("there is no keeper after the upgrade")
	}
	killReaper(t, o.Dir)
	echoed(t, r, "five")
	code, err := r.Exec(t.Context(), "m", runtime.ExecRequest{Attach: true, Stdin: strings.NewReader("end\n"),
		Terminal: new(runtime.Terminal)})
	if err != nil || code != 4 && code != -1 { // it was adopted, and not every kernel tells how such a one ended
		t.Errorf("it ended with %d, %v", code, err)
	}
	x := next(t, r, "m")
	if err := r.Ack(t.Context(), "m", x.Attempt); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the keeper has ended", func() bool { return keeperOf(t, o.Dir) == 0 })

	begin(2)
	killKeeper()
	killReaper(t, o.Dir)
	if x := next(t, r, "m"); x.Attempt != 2 || x.Code == 4 {
		t.Errorf("%+v", x)
	}
	if got := strings.Join(texts(t, r, "m"), "\n"); !strings.Contains(got, "got five") {
		t.Errorf("its log has %q", got)
	}
}
