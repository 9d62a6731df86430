package reaper

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/osthread"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/container"
	"github.com/soukhq/souk/runtime/reaper/frame"
	"github.com/soukhq/souk/runtime/reaper/users"
)

// TestReaperRefusesUsersOfTheHostItself: the reaper does not rely on the worker to have refused root, the users of
// machines and what is invalid.
func TestReaperRefusesUsersOfTheHostItself(t *testing.T) {
	wide := uint32(0o1000)
	in := func(groups ...uint32) runtime.As { return runtime.As{UID: 5, GID: 5, Groups: groups} }
	for name, c := range map[string]struct {
		as   runtime.As
		user string
		kind fault.Kind
		code fault.Code
	}{
		"root":                  {runtime.As{GID: 5}, "", fault.Precondition, fault.CodeRoot},
		"the group root":        {runtime.As{UID: 5}, "", fault.Precondition, fault.CodeRoot},
		"root among the groups": {in(6, 0), "", fault.Precondition, fault.CodeRoot},
		"a machine's user":      {runtime.As{UID: users.First, GID: 5}, "", fault.Precondition, runtime.CodeUser},
		"a machine's group":     {runtime.As{UID: 5, GID: users.First}, "", fault.Precondition, runtime.CodeUser},
		"a machine's, too":      {in(6, users.First), "", fault.Precondition, runtime.CodeUser},
		"no user at all":        {runtime.As{UID: 1<<32 - 1, GID: 5}, "", fault.Precondition, runtime.CodeUser},
		"two users":             {in(6), "nobody", fault.Invalid, runtime.CodeUser},
		"a umask":               {runtime.As{UID: 5, GID: 5, Umask: &wide}, "", fault.Invalid, runtime.CodeUmask},
		"a limit": {runtime.As{UID: 5, GID: 5, Limits: []runtime.SoftLimit{{Resource: "nice"}}}, "", fault.Invalid,
			runtime.CodeSoftLimit},
	} {
		s := &frame.Start{As: &c.as, User: c.user, Root: true}
		if _, err := new(apart).ownerOf(new(machine), s); !fault.Is(err, c.kind) || fault.CodeOf(err) != c.code {
			t.Errorf("%s: %v; want %v with code %s", name, err, c.kind, c.code)
		}
	}
	s := &frame.Start{As: &runtime.As{UID: 5, GID: 5}, Container: new(frame.Container)}
	if err := container.Check(s); !fault.Is(err, fault.Invalid) {
		t.Errorf("in a container: %v", err)
	}
	o, err := new(apart).ownerOf(new(machine), &frame.Start{As: s.As})
	if os.Geteuid() != 0 {
		if !fault.Is(err, fault.Precondition) || !strings.Contains(err.Error(), "run souk as root") {
			t.Errorf("without root: %v", err)
		}
	} else if err != nil || o.uid != 5 || o.gid != 5 {
		t.Errorf("%+v, %v", o, err)
	}
}

// TestUmaskIsThatOfOneThread: of a thread that has entered no view, too; and only until it is restored.
func TestUmaskIsThatOfOneThread(t *testing.T) {
	var made atomic.Int64
	p, err := newThread(func() error { return nil }, &made)
	if err != nil {
		t.Fatal(err)
	}
	defer p.giveUpThread()
	here := umaskOf(t, "self")
	tight := uint32(0o345)
	err = p.runInGroup(func() error {
		restore, err := (&owner{umask: &tight}).setUmask()
		if err != nil {
			return err
		}
		if got := umaskOf(t, "thread-self"); got != "0345" {
			t.Errorf("the thread has %s, want 0345", got)
		}
		if got := umaskOf(t, "self"); got != here {
			t.Errorf("the process has %s, want %s", got, here)
		}
		restore()
		if got := umaskOf(t, "thread-self"); got != here {
			t.Errorf("afterwards the thread has %s, want %s", got, here)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestLimitsAreSetBeforeTheProgramRuns: by the reaper where it may, else by prlimit(1); and in neither case is the umask
// lost. The programs are root's here, whose limits the reaper may always set.
func TestLimitsAreSetBeforeTheProgramRuns(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("this needs root")
		}
		t.Skip("this needs root")
	}
	var own syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &own); err != nil {
		t.Fatal(err)
	}
	open := fmt.Sprintf("Max open files            %-20d %-20d files", own.Max, own.Max)
	for _, mayLimit := range []bool{true, false} {
		t.Run(fmt.Sprint("may limit ", mayLimit), func(t *testing.T) {
			text := limitedOutput(t, mayLimit)
			for _, want := range []string{"Umask:\t0071", "Max core file size        4096 ", open} {
				if !strings.Contains(text, want) {
					t.Errorf("the program does not say %q, but:\n%s", want, text)
				}
			}
		})
	}
	if got := umaskOf(t, "self"); got == "0071" {
		t.Error("the process has the program's umask")
	}
}

// limitedOutput forks a program with a umask and limits, and returns what it says of them.
func limitedOutput(t *testing.T, mayLimit bool) string {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	said, err := os.Create(filepath.Join(t.TempDir(), "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	mask, forked := uint32(0o071), 0
	r := &Reaper{log: slog.New(slog.DiscardHandler), forkPatience: time.Minute, apart: &apart{limits: mayLimit}}
	c := &child{path: "/bin/cat", argv: []string{"cat", "/proc/self/status", "/proc/self/limits"}, dir: "/",
		files: [3]int{int(null.Fd()), int(said.Fd()), int(said.Fd())},
		owner: &owner{umask: &mask, limits: []runtime.SoftLimit{{Resource: "core", Soft: 4096},
			{Resource: "nofile", Soft: math.MaxUint64}}},
		registered: func(pid int, _ uint64) { forked = pid }}
	failed := make(chan error)
	osthread.Go(func() { failed <- r.forkChild(c) }) // a child is traced by a thread
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	if p, err := os.FindProcess(forked); err == nil {
		_, _ = p.Wait()
	}
	raw, err := os.ReadFile(said.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// umaskOf returns the umask of a process or thread, as the kernel tells it.
func umaskOf(t *testing.T, who string) string {
	t.Helper()
	raw, err := os.ReadFile("/proc/" + who + "/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), "\nUmask:\t")
	mask, _, _ := strings.Cut(rest, "\n")
	return mask
}

// TestFailedLimitEndsTheChild: a child whose limits cannot be set does not run its program, and is not registered.
func TestFailedLimitEndsTheChild(t *testing.T) {
	c := &child{owner: &owner{uid: 5}, limits: []runtime.SoftLimit{{Resource: "core"}}}
	const none = 1 << 22 // above all pids (PID_MAX_LIMIT)
	if err := c.limitStopped(none); !fault.Is(err, fault.Unavailable) || fault.CodeOf(err) != runtime.CodeSoftLimit {
		t.Errorf("of a process that has ended: %v", err)
	}
	if err := setLimits(os.Getpid(), []runtime.SoftLimit{{Resource: "core"}}); err != nil {
		t.Fatal(err)
	}
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_CORE, &lim); err != nil || lim.Cur != 0 {
		t.Errorf("%+v, %v", lim, err)
	}
}
