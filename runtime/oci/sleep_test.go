package oci_test

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
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
	"github.com/soukhq/souk/runtime/reaper/proc"
)

// sleeper is a machine in a sandbox that counts, and says each number.
type sleeper struct {
	t *testing.T
	o oci.Options
	r imaged
	s runtime.Spec
}

func newSleeper(t *testing.T, script string) *sleeper { return newSleeperBy(t, sandbox(t), script) }

func newSleeperBy(t *testing.T, engine, script string) *sleeper {
	t.Helper()
	z := &sleeper{t: t, o: oci.Options{Images: busybox(t), Engines: []string{engine}, Process: process.Options{
		Dir: filepath.Join(t.TempDir(), "oci"), ReaperCommand: []string{os.Args[0]}}}}
	t.Cleanup(func() { stopReaper(t, z.o) })
	z.r = reopen(t, z.o)
	z.s = runtime.Spec{Machine: "m", Attempt: 1, Fresh: true, SwapMB: -1, Env: []string{"PATH=/bin"},
		Argv: []string{"sh", "-c", script}}
	z.s.Resources.CPU, z.s.Resources.Memory = 1000, 256
	if _, err := z.r.Start(t.Context(), z.s); err != nil {
		t.Fatal(err)
	}
	return z
}

const counts = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done"

// lines gives how far the machine has counted, as it says: it never goes back. What it says as its process ends while
// there is no reaper is lost (decision 30).
func (z *sleeper) lines() (last int) {
	z.t.Helper()
	err := z.r.Logs(z.t.Context(), "m", machine.LogQuery{}, func(l machine.LogLine) error {
		n, err := strconv.Atoi(l.Text)
		if err != nil || n <= last {
			return fmt.Errorf("%d is followed by %q", last, l.Text)
		}
		last = n
		return nil
	})
	if err != nil && !fault.Is(err, fault.Unavailable) {
		z.t.Fatal(err)
	}
	return last
}

// repeat asks until there is an answer, as souk does behind a reaper that was killed.
func (z *sleeper) repeat(what string, ask func(ctx context.Context) error) {
	z.t.Helper()
	err := waittest.See(z.t, what+" is answered", func() error { return ask(z.t.Context()) },
		func(err error) bool { return !fault.Is(err, fault.Unavailable) })
	if err != nil {
		z.t.Fatalf("%s: %v", what, err)
	}
}

func (z *sleeper) hibernate(ctx context.Context) error { return z.r.Hibernate(ctx, "m", 1) }

func (z *sleeper) wake(ctx context.Context) error {
	st, err := z.r.Wake(ctx, z.s)
	if err == nil && (!st.Running || st.Paused || st.Attempt != 1) {
		return fault.New(fault.Internal, "", "woken it is %+v", st)
	}
	return err
}

// killers kill at a random moment: the reaper, the runtime's programs, or both.
func (z *sleeper) killLater(most time.Duration, who int) (done <-chan struct{}) {
	out := make(chan struct{})
	state := filepath.Join(reaper.ContainersDir, reaper.TreeName(z.o.Process.Dir))
	time.AfterFunc(time.Duration(rand.Int64N(int64(most))), func() {
		defer close(out)
		if who%2 == 0 {
			kill(z.t, func(pid int) bool { return isCommand(pid, state) })
		} else {
			kill(z.t, func(pid int) bool { return isReaper(pid, z.o.Process.Dir) })
		}
	})
	return out
}

// isCommand finds the programs that a reaper has an OCI runtime run now, and no sandbox.
func isCommand(pid int, state string) bool {
	argv := string(command(pid))
	for _, verb := range []string{"checkpoint", "restore"} {
		if strings.Contains(argv, state) && strings.Contains(argv, "\x00"+verb+"\x00") {
			return true
		}
	}
	return false
}

// TestKillsDuringSuspendKeepTheLife kills the reaper, and runsc, at random moments while a machine is suspended to disk and woken. It
// goes on as the same life each time, from where it was. SOUK_TEST_KILLS says how often.
func TestKillsDuringSuspendKeepTheLife(t *testing.T) {
	t.Parallel()
	kills, err := strconv.Atoi(os.Getenv("SOUK_TEST_KILLS"))
	if err != nil {
		kills = 4
	}
	z := newSleeper(t, counts)
	for n := range kills {
		before := z.lines()
		waittest.Until(t, "it counts", func() bool { return z.lines() > before })
		dead := z.killLater(600*time.Millisecond, n/2)
		if n%2 == 1 {
			<-dead
		}
		z.repeat("suspended", z.hibernate)
		<-dead
		waittest.Until(t, "it is on disk", func() bool {
			all, err := z.r.List(t.Context())
			return err == nil && len(all) == 1 && all[0].OnDisk && all[0].Running && all[0].Attempt == 1
		})
		dead = z.killLater(900*time.Millisecond, n/2)
		z.repeat("woken", z.wake)
		<-dead
		z.repeat("woken for good", z.wake) // a reaper that was killed as it answered may have it asleep
	}
	at := z.lines()
	waittest.Until(t, "it counts on", func() bool { return z.lines() > at })
	select {
	case x := <-z.r.Exits():
		t.Errorf("it has ended: %+v", x)
	default:
	}
}

// TestSuspendedMachineSurvivesReboot: a machine suspended to disk resumes after a reboot; one that may have run on
// unseen does not resume twice.
func TestSuspendedMachineSurvivesReboot(t *testing.T) {
	t.Parallel()
	z := newSleeper(t, counts)
	waittest.Until(t, "it counts", func() bool { return z.lines() > 3 })
	z.repeat("suspended", z.hibernate)
	at := z.lines()
	boot := func() {
		t.Helper()
		if err := z.r.Close(); err != nil {
			t.Fatal(err)
		}
		kill(t, func(pid int) bool { return isReaper(pid, z.o.Process.Dir) })
		waittest.Until(t, "the reaper has ended", func() bool { return !reaper.Alive(z.o.Process.Dir) })
		ofAnotherBoot(t, filepath.Join(z.o.Process.Dir, reaper.LivesFile))
		z.r = reopen(t, z.o)
	}
	boot()
	z.repeat("woken", z.wake)
	waittest.Until(t, "it counts on", func() bool { return z.lines() > at })
	z.repeat("suspended", z.hibernate)
	if err := os.Rename(filepath.Join(z.o.Process.Dir, "checkpoints", "m"),
		filepath.Join(t.TempDir(), "m")); err != nil {
		t.Fatal(err)
	}
	boot()
	if x := <-z.r.Exits(); x.Attempt != 1 || !x.Lost {
		t.Errorf("without its checkpoint it ends with %+v", x)
	}
}

// ofAnotherBoot makes a file of lives one that was written before the host was down.
func ofAnotherBoot(t *testing.T, file string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	first, rest, _ := bytes.Cut(raw, []byte("\n"))
	_, text, _ := bytes.Cut(first, []byte(" "))
	text = bytes.Replace(text, []byte(proc.BootID()), []byte("another"), 1)
	raw = fmt.Appendf(nil, "%08x %s\n%s", crc32.ChecksumIEEE(text), text, rest)
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestBrokenCheckpointEndsTheMachine: the machine has ended then, once it was tried a few times, and can be started anew.
func TestBrokenCheckpointEndsTheMachine(t *testing.T) {
	t.Parallel()
	z := newSleeper(t, counts)
	z.repeat("suspended", z.hibernate)
	dir := filepath.Join(z.o.Process.Dir, "checkpoints", "m")
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil || st.Mode&0o777 != 0o700 || st.Uid != 0 {
		t.Errorf("the checkpoint is %o of %d, %v", st.Mode, st.Uid, err)
	}
	if err := os.Truncate(filepath.Join(dir, "checkpoint.img"), 1000); err != nil {
		t.Fatal(err)
	}
	var err error
	for range 5 {
		if _, err = z.r.Wake(t.Context(), z.s); !fault.Is(err, fault.Unavailable) {
			break
		}
	}
	if fault.CodeOf(err) != runtime.CodeForgotten {
		t.Errorf("a broken checkpoint: %v", err)
	}
	if x := <-z.r.Exits(); x.Attempt != 1 || !x.Lost {
		t.Errorf("it ends with %+v", x)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("its checkpoint is there still: %v", err)
	}
	z.s.Attempt = 2
	if st, err := z.r.Start(t.Context(), z.s); err != nil || !st.Running {
		t.Errorf("anew: %+v, %v", st, err)
	}
}

// TestKilledSandboxEndsTheMachine: what is killed while it is being written has ended, as whatever is killed has.
func TestKilledSandboxEndsTheMachine(t *testing.T) {
	t.Parallel()
	z := newSleeper(t, counts)
	all, err := z.r.List(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	z.repeat("suspended", z.hibernate)
	z.repeat("woken", z.wake)
	if all, err = z.r.List(t.Context()); err != nil || len(all) != 1 || all[0].PID == 0 {
		t.Fatal(all, err)
	}
	if err := syscall.Kill(all[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if x := <-z.r.Exits(); x.Attempt != 1 || x.Signal != 9 {
		t.Errorf("it ends with %+v", x)
	}
	if err := z.hibernate(t.Context()); !fault.Is(err, fault.Precondition) {
		t.Errorf("one that has ended is suspended: %v", err)
	}
}

// TestKillDoesNotWaitForACheckpoint: whoever wants a machine to end does not wait for its checkpoint.
func TestKillDoesNotWaitForACheckpoint(t *testing.T) {
	t.Parallel()
	real, err := exec.LookPath(sandbox(t))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	engine, asked := filepath.Join(dir, "runsc-slow"), filepath.Join(dir, "asked")
	script := "#!/bin/sh\ncase \"$*\" in *' checkpoint '*) >" + asked + "; exec sleep 1000;; esac\n" +
		"exec " + real + " \"$@\"\n"
	if err := os.WriteFile(engine, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	z := newSleeperBy(t, engine, counts)
	saved := make(chan error, 1)
	go func() { saved <- z.hibernate(t.Context()) }()
	waittest.Succeed(t, "it is being saved", func() error { _, err := os.Stat(asked); return err })
	if err := z.r.Kill(t.Context(), "m"); err != nil {
		t.Error(err)
	}
	if x := <-z.r.Exits(); x.Attempt != 1 || x.Signal != 9 {
		t.Errorf("it ends with %+v", x)
	}
	if err := <-saved; !fault.Is(err, fault.Precondition) {
		t.Errorf("the save ended with %v", err)
	}
}
