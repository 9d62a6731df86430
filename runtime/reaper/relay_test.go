package reaper

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/deadfs"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/proc"
	"github.com/soukhq/souk/runtime/reaper/relay"
	"github.com/soukhq/souk/runtime/reaper/stdio"
)

// testForks returns a reaper that only opens and forks.
func testForks(t *testing.T) *Reaper {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = null.Close() })
	r := &Reaper{log: slog.New(slog.DiscardHandler), null: null, procs: make(map[int]any),
		forkPatience: 250 * time.Millisecond, openings: testOpenings(t, waittest.Patience)}
	if r.relay, err = relay.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.relay.Close() })
	return r
}

// openedChild returns a program of root in a directory, and its pid once it is registered.
func openedChild(t *testing.T, r *Reaper, dir string, argv ...string) (*child, *int) {
	t.Helper()
	at, err := r.openDir(&owner{}, &stdio.Request{Dir: dir}, nil, argv, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(at.closeNow)
	fd, pid := int(r.null.Fd()), 0
	c := &child{argv: argv, owner: &owner{}, files: [3]int{fd, fd, fd}}
	c.useOpened(at)
	c.registered = func(p int, _ uint64) { pid = p }
	return c, &pid
}

// script writes a script and returns its path.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestProgramThatCannotBeReadHoldsUpNoOther: one whose interpreter is on a file system that never answers. Its start
// fails in time, others go on meanwhile, and it never runs.
func TestProgramThatCannotBeReadHoldsUpNoOther(t *testing.T) {
	dir := t.TempDir()
	asked, abort := deadfs.Mount(t, dir, 54321)
	defer abort()
	r := testForks(t)
	r.forkPatience = 2 * time.Second
	c, pid := openedChild(t, r, "/", script(t, "#!"+dir+"/sh\n"))
	slow, result := make(chan struct{}), make(chan error, 1)
	c.slow = func() { close(slow) }
	go func() { result <- r.forkChild(c) }()
	<-asked
	other, ran := openedChild(t, r, "/", "/bin/true")
	if err := r.forkChild(other); err != nil || *ran == 0 {
		t.Fatalf("another: %v", err)
	}
	select {
	case err := <-result:
		t.Fatalf("the start that hangs ended first: %v", err)
	default:
	}
	<-slow
	if err := <-result; !fault.Is(err, fault.Unavailable) || fault.CodeOf(err) != codeForkStuck ||
		!strings.Contains(err.Error(), "in 4s") {
		t.Errorf("the start that hangs: %v", err)
	}
	if *pid != 0 {
		t.Error("the start that hangs is registered")
	}
	given := make(chan struct{})
	r.openings.whenNoneHangs(0, func() { close(given) })
	if r.reapChildren(); isClosed(given) {
		t.Error("the user's number is free before the child has ended")
	}
	abort()
	waittest.Until(t, "the child has ended", func() bool {
		r.reapChildren()
		return isClosed(given)
	})
}

// TestRelayedProgramGetsWhatItWasGiven: arguments, environment, directory, and no descriptors but its three.
func TestRelayedProgramGetsWhatItWasGiven(t *testing.T) {
	r := testForks(t)
	dir := t.TempDir()
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c, pid := openedChild(t, r, dir, script(t, "#!/bin/sh\necho $PWD $0 $1 $WHO\n"+
		"cd /proc/self/fd; for f in 0 1 2 3 4 5; do test -e $f && echo fd $f; done; true\n"), "an argument")
	c.env, c.files[1] = []string{"WHO=me"}, int(out.Fd())
	if err := r.forkChild(c); err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(*pid)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := p.Wait(); err != nil || !st.Success() {
		t.Errorf("%v, %v", st, err)
	}
	raw, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%s %s an argument me\nfd 0\nfd 1\nfd 2\n", dir, c.argv[0])
	if got := string(raw); got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
}

// TestRelayTellsWhyAProgramCannotBeExecuted: as if it had been executed directly.
func TestRelayTellsWhyAProgramCannotBeExecuted(t *testing.T) {
	r := testForks(t)
	for text, code := range map[string]fault.Code{
		"#!/no/such/interpreter\n": runtime.CodeNoProgram,
		"neither a script":         runtime.CodeNotExecutable,
	} {
		c, pid := openedChild(t, r, "/", script(t, text))
		if err := r.forkChild(c); fault.CodeOf(err) != code {
			t.Errorf("%q: %v, want %s", text, err, code)
		}
		if *pid != 0 || len(r.procs) != 0 {
			t.Errorf("%q: %d is registered, %v", text, *pid, r.procs)
		}
	}
	waittest.Until(t, "both are reaped", func() bool {
		r.reapChildren()
		kids, _ := proc.Children(os.Getpid())
		return len(kids) == 0
	})
}

// TestExitsOfRelayedProgramsAreNotLost: even of those that end before they are registered.
func TestExitsOfRelayedProgramsAreNotLost(t *testing.T) {
	r := testForks(t)
	stop, reaps := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(reaps)
		for !isClosed(stop) {
			r.reapChildren()
		}
	}()
	for range 50 {
		x := &execution{ended: make(chan int, 1)}
		c, _ := openedChild(t, r, "/", "/bin/false")
		c.registered = func(pid int, _ uint64) { r.setChild(pid, x) }
		if err := r.forkChild(c); err != nil {
			t.Fatal(err)
		}
		select {
		case code := <-x.ended:
			if code != 1 {
				t.Fatalf("it ended with %d", code)
			}
		case <-time.After(waittest.Patience):
			t.Fatal("an exit was lost")
		}
		c.at.closeNow()
		c.at.release()
	}
	close(stop)
	<-reaps
}
