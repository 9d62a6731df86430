package process_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/unixsock"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime/process"
	"github.com/soukhq/souk/runtime/reaper/proc"
)

// TestReaperForkFailureIsRetryable: a worker that may have no more processes now has nothing to be put right on it, so who asks is
// to ask again.
func TestReaperForkFailureIsRetryable(t *testing.T) {
	for errno, want := range map[syscall.Errno]fault.Kind{
		syscall.EAGAIN: fault.Unavailable,
		syscall.ENOMEM: fault.Unavailable,
		syscall.EMFILE: fault.Unavailable,
		syscall.ENFILE: fault.Unavailable,
		syscall.ENOSPC: fault.Unavailable,
		syscall.EDQUOT: fault.Unavailable,
		syscall.ENOENT: fault.Precondition,
		syscall.EACCES: fault.Precondition,
	} {
		err := process.SpawnFault(fault.Wrap(&os.PathError{Op: "fork/exec", Path: "/souk", Err: errno},
			fault.Precondition, "reaper", "it cannot be started"))
		if !fault.Is(err, want) {
			t.Errorf("%v: %v; want it to be %v", errno, err, want)
		}
	}
}

// TestDescriptorShortageIsUnavailable: a souk that may open no more files finds no reaper now, and does later.
func TestDescriptorShortageIsUnavailable(t *testing.T) {
	o := options(filepath.Join(t.TempDir(), "process"))
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	if err := syscall.Kill(reaperPID(t, o.Dir), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	var said [3]error // the first may still be about the reaper that ends
	for i := range said {
		said[i] = r.Remove(t.Context(), "m1")
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	for _, err := range said {
		if !fault.Is(err, fault.Unavailable) {
			t.Errorf("%v; want it to be unavailable", err)
		}
	}
	if err := r.Remove(t.Context(), "m1"); err != nil {
		t.Error(err)
	}
}

// TestKilledReaperLeavesNoZombie: a reaper that is killed leaves no zombie below souk, however soon the next one is there.
func TestKilledReaperLeavesNoZombie(t *testing.T) {
	o := options(filepath.Join(t.TempDir(), "process"))
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	var killed []int
	for range 8 {
		pid := reaperPID(t, o.Dir)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		killed = append(killed, pid)
		waittest.Succeed(t, "another has taken over", func() error { return r.Remove(t.Context(), "m1") })
	}
	for _, pid := range killed {
		waittest.Until(t, "nothing is left of it", func() bool {
			s, err := proc.Read(pid)
			return err != nil || s.Parent != os.Getpid()
		})
	}
}

// TestLateDialIsATimeout: a connection that was not made in time is a timeout. Only a reaper that is gone is called
// gone.
func TestLateDialIsATimeout(t *testing.T) {
	at := filepath.Join(t.TempDir(), "sock")
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	_, late := unixsock.Dial(ctx, at)
	if err := process.Undialed(t.Context(), late); !fault.Is(err, fault.Timeout) {
		t.Errorf("one that came too late: %v", err)
	}
	_, none := unixsock.Dial(t.Context(), at)
	if err := process.Undialed(t.Context(), none); !fault.Is(err, fault.Unavailable) {
		t.Errorf("one that nobody takes: %v", err)
	}
}
