package sysmon

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
)

// TestMonitorThreadIsFound: while goroutines run, the monitor is the thread that sleeps and looks, again and again, and
// the others have no reason to sleep.
func TestMonitorThreadIsFound(t *testing.T) {
	done := make(chan struct{})
	go func() {
		for n := 0; ; n++ { // something has to run, or the monitor waits to be woken
			select {
			case <-done:
				return
			default:
			}
		}
	}()
	defer close(done)
	tid, err := monitor()
	if err != nil {
		t.Fatal(err)
	}
	file := "/proc/self/task/" + strconv.Itoa(tid) + "/syscall"
	if _, err := os.ReadFile(file); err != nil {
		t.Skipf("this kernel does not say what a thread does: %v", err)
	}
	sleeps := 0
	waittest.See(t, fmt.Sprintf("thread %d is seen asleep 20 times", tid), func() int {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if call, _, _ := strings.Cut(string(raw), " "); call == strconv.Itoa(syscall.SYS_NANOSLEEP) {
			sleeps++
		}
		return sleeps
	}, func(sleeps int) bool { return sleeps >= 20 })
}

// TestCalmSetsTimerSlackOfTheMonitorOnly: the kernel has noted it, for the monitor and for no other thread; without the privilege it is said why not.
func TestCalmSetsTimerSlackOfTheMonitorOnly(t *testing.T) {
	err := Calm(Slack)
	if fault.Is(err, fault.Precondition) && os.Geteuid() != 0 {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = Calm(Default) }()
	tid, err := monitor()
	if err != nil {
		t.Fatal(err)
	}
	if got := slackOf(t, tid); got != Slack {
		t.Errorf("the monitor has %v, wanted %v", got, Slack)
	}
	if got := slackOf(t, os.Getpid()); got == Slack {
		t.Errorf("the first thread has %v too", got)
	}
}

// TestExactResetsTimerSlackOfTheThread: also on a thread that the monitor has made.
func TestExactResetsTimerSlackOfTheThread(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(Slack.Nanoseconds()), 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := Exact(); err != nil {
		t.Fatal(err)
	}
	raw, err := exec.Command("cat", "/proc/self/timerslack_ns").Output()
	if got := strings.TrimSpace(string(raw)); err != nil || got != "50000" {
		t.Errorf("what is forked has %q: %v", got, err)
	}
}

func slackOf(t *testing.T, tid int) time.Duration {
	t.Helper()
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(tid) + "/timerslack_ns")
	if err != nil {
		t.Fatal(err)
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(ns)
}
