package oci_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/runtime/process"
	"github.com/soukhq/souk/runtime/reaper"
)

// TestLongKilledAtAnyMomentKeepsAnswers: while containers are started, ended and removed, the reaper and the OCI runtime's programs are
// killed, and souk's end is given up and opened again. What was answered is so, and nothing is left behind.
func TestLongKilledAtAnyMomentKeepsAnswers(t *testing.T) {
	t.Parallel()
	killedAtAnyMoment(t, 50)
}

// TestKilledAtAnyMomentKeepsAnswers: the same with 5 kills.
func TestKilledAtAnyMomentKeepsAnswers(t *testing.T) {
	t.Parallel()
	killedAtAnyMoment(t, 5)
}

func killedAtAnyMoment(t *testing.T, kills int) {
	h := hosted(t, oci.DefaultEngine)
	o := h.o
	o.Ready = 2
	before := traces(t, o.Process.Dir) + h.things()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	p := newPromises(t, o)
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for i := range 3 {
		callers.Go(func() { p.call(ctx, fmt.Sprintf("m%d", i), rand.New(rand.NewPCG(seed, uint64(i)+1))) })
	}
	for range kills {
		wait := time.NewTimer(time.Duration(rng.Int64N(int64(300 * time.Millisecond)))) // the moment is what is drawn
		select {
		case <-wait.C:
		case <-ctx.Done():
		}
		switch rng.IntN(3) {
		case 0:
			kill(t, func(pid int) bool { return isReaper(pid, o.Process.Dir) })
		case 1:
			kill(t, func(pid int) bool { return bytes.Contains(command(pid), []byte(reaper.TreeName(o.Process.Dir))) })
		case 2:
			p.reopen()
		}
	}
	stop()
	callers.Wait()
	p.check()
	p.close()
	stopReaper(t, o)
	// The kernel removes devices in its own time.
	waittest.See(t, "only this is left:\n"+before, func() string { return traces(t, o.Process.Dir) + h.things() },
		func(left string) bool { return left == before })
}

// promises is what was answered about machines.
type promises struct {
	t *testing.T
	o oci.Options

	mu   sync.RWMutex // for writing while the runtime is exchanged
	rt   imaged
	told sync.Map // machine -> promise
}

type promise struct {
	attempt uint64
	there   bool // started and not removed; what was not answered is no promise
	sure    bool
}

func newPromises(t *testing.T, o oci.Options) *promises {
	r, err := oci.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return &promises{t: t, o: o, rt: imaged{Runtime: r}}
}

func (p *promises) close() {
	if err := p.rt.Close(); err != nil {
		p.t.Error(err)
	}
}

// reopen gives the runtime up, as kill -9 of souk does: what was asked for is not waited for.
func (p *promises) reopen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.close()
	r, err := oci.Open(p.o)
	if err != nil {
		p.t.Error(err)
		return
	}
	p.rt = imaged{Runtime: r}
}

// call starts a machine, ends and removes it, again and again. What has no answer is asked for again, as a worker does.
func (p *promises) call(ctx context.Context, id string, rng *rand.Rand) {
	for attempt := uint64(1); ctx.Err() == nil; attempt++ {
		s := runtime.Spec{Machine: id, Attempt: attempt, Fresh: true, SwapMB: -1, Argv: []string{"sleep", "1000"},
			Env:     []string{"PATH=/bin"},
			Network: machine.Network{Publish: []machine.Publish{{HostPort: 8000 + int(id[1]), Port: 80}}}}
		s.Resources.CPU, s.Resources.Memory = 100, 64
		p.told.Store(id, promise{})
		if rng.IntN(2) == 0 { // it need not come to anything
			p.mu.RLock()
			ahead := s
			ahead.Image = "busybox"
			_ = p.rt.MakeReady(ctx, ahead)
			p.mu.RUnlock()
		}
		var st runtime.Status
		if !p.until(ctx, func(rt imaged) (err error) { st, err = rt.Start(p.t.Context(), s); return err }) {
			return
		}
		if st.Exit != nil && !st.Exit.Lost {
			p.t.Errorf("%s ended by itself: %+v", id, st.Exit)
		}
		p.told.Store(id, promise{attempt: attempt, there: st.Running, sure: true})
		if rng.IntN(2) == 0 && st.Running {
			code := 0
			err := fault.New(fault.Unavailable, "", "not asked")
			p.mu.RLock()
			code, e := p.rt.Exec(p.t.Context(), id, runtime.ExecRequest{Argv: []string{"true"}})
			p.mu.RUnlock()
			if e == nil && code != 0 && code != 128+9 {
				p.t.Errorf("%s: a command ended with %d, %v", id, code, err)
			}
		}
		if rng.IntN(3) == 0 {
			p.told.Store(id, promise{})
			if !p.until(ctx, func(rt imaged) error { return rt.Remove(p.t.Context(), id) }) {
				return
			}
			p.told.Store(id, promise{sure: true})
			attempt = 0 // it is another now
		} else if !p.until(ctx, func(rt imaged) error {
			p.told.Store(id, promise{})
			if err := rt.Kill(p.t.Context(), id); err != nil {
				return err
			}
			return rt.Ack(p.t.Context(), id, attempt)
		}) {
			return
		}
	}
}

// until asks until there is an answer; false when the test is over before.
func (p *promises) until(ctx context.Context, ask func(rt imaged) error) bool {
	for {
		p.mu.RLock()
		err := ask(p.rt)
		p.mu.RUnlock()
		if err == nil {
			return true
		}
		if !fault.Is(err, fault.Unavailable) && !fault.Is(err, fault.Timeout) {
			p.t.Errorf("%v", err)
			return false
		}
		wait := time.NewTimer(5 * time.Millisecond)
		select {
		case <-wait.C:
		case <-ctx.Done():
			return false
		}
	}
}

// check holds what was promised against what is there.
func (p *promises) check() {
	all, err := p.rt.List(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	p.told.Range(func(id, v any) bool {
		want := v.(promise)
		var got runtime.Status
		for _, s := range all {
			if s.Machine == id.(string) {
				got = s
			}
		}
		switch {
		case !want.sure:
		case want.there && (got.Attempt != want.attempt || !got.Running):
			p.t.Errorf("%s was started as attempt %d, and is %+v", id, want.attempt, got)
		case want.there && syscall.Kill(got.PID, 0) != nil:
			p.t.Errorf("%s is said to run as process %d, and there is none", id, got.PID)
		case !want.there && want.attempt == 0 && got.Machine != "":
			p.t.Errorf("%s was removed, and is %+v", id, got)
		}
		return true
	})
}

// traces tells what there is on the host that may be of the containers of a directory: mounts, cgroups, what a runtime
// keeps, processes.
func traces(t *testing.T, dir string) string {
	t.Helper()
	tree := reaper.TreeName(dir)
	var out []string
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir) || strings.Contains(line, "overlay") && strings.Contains(line, "/run/souk") {
			out = append(out, line)
		}
	}
	groups, err := filepath.Glob("/sys/fs/cgroup/*/" + tree + "*")
	if err != nil {
		t.Fatal(err)
	}
	kept, err := filepath.Glob("/run/souk/oci/" + tree + "*/*/*")
	if err != nil {
		t.Fatal(err)
	}
	out = append(append(out, groups...), kept...)
	each(t, func(pid int) {
		if c := command(pid); bytes.Contains(c, []byte(tree)) || bytes.Contains(c, []byte(dir)) {
			out = append(out, fmt.Sprintf("process %d: %s", pid, bytes.ReplaceAll(c, []byte{0}, []byte{' '})))
		}
	})
	return strings.Join(out, "\n")
}

func each(t *testing.T, f func(pid int)) {
	t.Helper()
	es, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range es {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			f(pid)
		}
	}
}

func command(pid int) []byte {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil // it has ended
	}
	return b
}

func isReaper(pid int, dir string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && pid != os.Getpid() && bytes.Contains(b, []byte(reaper.EnvDir+"="+dir+"\x00"))
}

func kill(t *testing.T, is func(pid int) bool) {
	t.Helper()
	each(t, func(pid int) {
		if is(pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // ESRCH: it has ended meanwhile
		}
	})
}

// TestCleanupIsRetriedWithoutDescriptors: what a container leaves can be neither found nor removed when it ends. Once it
// can be, its end is told, and nothing is left.
func TestCleanupIsRetriedWithoutDescriptors(t *testing.T) {
	o := oci.Options{Images: busybox(t), Process: process.Options{
		Dir: filepath.Join(t.TempDir(), "oci"), ReaperCommand: []string{os.Args[0]}}}
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	s := runtime.Spec{Machine: "m", Attempt: 1, Fresh: true, SwapMB: -1, Argv: []string{"/bin/sleep", "inf"}}
	if err := r.Prepare(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	st, err := r.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	left := func() bool {
		all, err := filepath.Glob(filepath.Join(reaper.ContainersDir, reaper.TreeName(o.Process.Dir), "bundles", "*"))
		return err == nil && len(all) > 0
	}
	reapers, was := 0, unix.Rlimit{}
	each(t, func(pid int) {
		if isReaper(pid, o.Process.Dir) {
			reapers++
			if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &was); err != nil {
				t.Fatal(err)
			}
			if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: was.Max}, nil); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Prlimit(pid, unix.RLIMIT_NOFILE, &was, nil) }) // before the reaper is stopped
		}
	})
	if err := syscall.Kill(st.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "its program has ended", func() bool { return syscall.Kill(st.PID, 0) != nil })
	if !left() {
		t.Fatal("nothing is left of a container that cannot be removed")
	}
	each(t, func(pid int) {
		if isReaper(pid, o.Process.Dir) {
			reapers--
			if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &was, nil); err != nil {
				t.Fatal(err)
			}
		}
	})
	if x := <-r.Exits(); x.Signal != 9 {
		t.Errorf("it ended with %+v", x)
	}
	waittest.Until(t, "nothing is left of the container", func() bool { return !left() })
	if reapers != 0 {
		t.Errorf("%d reapers have ended", reapers)
	}
}
