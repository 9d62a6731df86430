package process_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime"
)

// borrow opens every descriptor that a process has, as a child of it has them that stopped between fork and exec.
func borrow(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	got := 0
	for _, e := range list {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		own, err := unix.PidfdGetfd(fd, n, 0)
		if err != nil {
			continue // closed meanwhile
		}
		got++
		t.Cleanup(func() { _ = unix.Close(own) })
	}
	if got == 0 {
		t.Fatal("no descriptor could be had")
	}
}

// TestReaperIsReplacedDespiteInheritedFDs: the lock, the socket and the connections of a reaper that is killed may
// be open in a child of it. The next one takes over all the same.
func TestReaperIsReplacedDespiteInheritedFDs(t *testing.T) {
	if os.Geteuid() != 0 {
		lacking(t, "root, to have another process's descriptors")
	}
	o := options(filepath.Join(t.TempDir(), "process"))
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	before := start(t, r, limited("m", 1, lasting...))
	borrow(t, reaperPID(t, o.Dir))
	killReaper(t, o.Dir)
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience)
	defer cancel()
	all, err := r.List(ctx)
	if err != nil || len(all) != 1 || all[0].PID != before.PID || !all[0].Running {
		t.Fatalf("%+v, %v; want the machine that runs", all, err)
	}
	start(t, r, limited("n", 1, lasting...))
}

// TestExecInAFrozenCgroupIsRefused: whoever froze a machine's cgroup, a command is refused and not forked into it.
func TestExecInAFrozenCgroupIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		lacking(t, "root, for cgroups")
	}
	o := options(filepath.Join(t.TempDir(), "process"))
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	st := start(t, r, limited("m", 1, lasting...))
	file := freezer(t, st.PID)
	if err := os.WriteFile(file, []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(file, []byte("0"), 0) }) // it may be gone
	_, err := r.Exec(t.Context(), "m", runtime.ExecRequest{Argv: []string{"true"}})
	if !fault.Is(err, fault.Precondition) {
		t.Fatalf("%v; want a refusal", err)
	}
	start(t, r, limited("n", 1, lasting...))
}

// TestExecDoesNotForkInABusyMachine: what is to run beside hundreds of processes that share a hundredth of a core
// waits for its turn there as the program that it is, and not as a fork of the reaper, which waits for it together with
// all other starts and commands.
func TestExecDoesNotForkInABusyMachine(t *testing.T) {
	if os.Geteuid() != 0 {
		lacking(t, "root, for cgroups")
	}
	o := options(filepath.Join(t.TempDir(), "process"))
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	busy := limited("busy", 1, "sh", "-c", "for i in $(seq 300); do while :; do :; done & done; wait")
	busy.Resources.CPU = 10
	st := start(t, r, busy)
	start(t, r, limited("m", 1, lasting...))
	group := filepath.Dir(freezer(t, st.PID))
	const commands = 8
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer all.Wait()
	defer cancel()
	for range commands {
		all.Go(func() {
			_, err := r.Exec(ctx, "busy", runtime.ExecRequest{Argv: []string{"sleep", "987654"}})
			if ctx.Err() == nil {
				t.Errorf("a command in the busy machine is over: %v", err)
			}
		})
	}
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	began := map[string]bool{}
	for end := time.Now().Add(waittest.Patience); len(began) < commands; {
		raw, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range strings.Fields(string(raw)) {
			exe, err := os.Readlink("/proc/" + pid + "/exe")
			if err == nil && exe == self {
				t.Fatalf("process %s of the machine is still the reaper's program", pid)
			}
			argv, err := os.ReadFile("/proc/" + pid + "/cmdline")
			if err == nil && strings.Contains(string(argv), "987654") {
				began[pid] = true
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d commands began", len(began), commands)
		}
	}
	if code, err := r.Exec(t.Context(), "m", runtime.ExecRequest{Argv: []string{"true"}}); err != nil || code != 0 {
		t.Fatalf("a command in another machine: %d, %v", code, err)
	}
}

// freezer names the file that freezes the cgroup of a process.
func freezer(t *testing.T, pid int) string {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		var st syscall.Stat_t
		path := filepath.Join(root, groupOf(t, pid), "cgroup.freeze")
		if syscall.Stat(path, &st) == nil {
			return path
		}
	}
	lacking(t, "a cgroup2 tree")
	return ""
}

// groupOf returns the path of a process in the cgroup2 tree.
func groupOf(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path
		}
	}
	lacking(t, "a cgroup2 tree")
	return ""
}

// TestKillIsOrderedAfterAbandonedStart: a start that was given up may still lie in the socket of a reaper that stands still. The
// kill that takes it back comes behind it: what it has answered stays so.
func TestKillIsOrderedAfterAbandonedStart(t *testing.T) {
	o := options(filepath.Join(t.TempDir(), "process"))
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	pid := reaperPID(t, o.Dir)
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	nothing := func(k int) {
		t.Helper()
		all, err := r.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range all {
			if st.Running {
				t.Fatalf("round %d: %+v runs after it was killed", k, st)
			}
		}
	}
	for k := range 20 {
		id := fmt.Sprintf("m%d", k)
		if err := r.Prepare(t.Context(), limited(id, 0)); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		given, end := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := r.Start(given, limited(id, 1, lasting...)); !fault.Is(err, fault.Timeout) {
			t.Fatalf("%v; want none in time", err)
		}
		end()
		given, end = context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := r.Kill(given, id); !fault.Is(err, fault.Timeout) {
			t.Fatalf("%v; want none in time", err)
		}
		end()
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if err := r.Kill(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		nothing(k)
		if err := r.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		nothing(k)
	}
}

// TestStuckForkDoesNotStopTheReaper: a child of the reaper does not get to its program, since its cgroup is frozen, and a
// garbage collection begins meanwhile, which stops the whole reaper. The child is ended all the same, its start fails, and
// the next one is served.
func TestStuckForkDoesNotStopTheReaper(t *testing.T) {
	if os.Geteuid() != 0 {
		lacking(t, "root, for cgroups")
	}
	t.Parallel()
	o := options(filepath.Join(t.TempDir(), "process"))
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	all := filepath.Dir(filepath.Dir(freezer(t, start(t, r, limited("m", 1, lasting...)).PID)))
	freeze := func(state string) {
		files, err := filepath.Glob(filepath.Join(all, "*", "cgroup.freeze"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%v, %v; want the reaper's groups", files, err)
		}
		own := groupOf(t, reaperPID(t, o.Dir))
		files = slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(filepath.Dir(f), own) })
		for _, f := range files {
			_ = os.WriteFile(f, []byte(state), 0) // it may be gone
		}
	}
	t.Cleanup(func() { freeze("0") })
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience)
	defer cancel()
	var lists sync.WaitGroup
	defer lists.Wait()
	defer cancel()
	for range 4 { // until the reaper has used so much memory that it collects
		lists.Go(func() {
			for ctx.Err() == nil {
				_, _ = r.List(ctx)
			}
		})
	}
	var err error
	for k := 0; err == nil; k++ { // until one is started in a group that exists already
		freeze("1")
		id := fmt.Sprint("n", k)
		if err := r.Prepare(ctx, limited(id, 0)); err != nil {
			t.Fatal(err)
		}
		_, err = r.Start(ctx, limited(id, 1, lasting...))
	}
	if !fault.Is(err, fault.Unavailable) {
		t.Fatalf("%v; want a start that has failed and may be tried again", err)
	}
	freeze("0")
	start(t, r, limited("after", 1, lasting...))
}
