package reaper

import (
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime/reaper/cgroup"
	"github.com/soukhq/souk/runtime/reaper/proc"
)

// TestUsedThreadsAreReplaced: starts use up threads. The Go runtime has as many for itself afterwards as before, since it ends
// a process that it wants one for when none can be made. Where they cannot be made again no start uses up more.
func TestUsedThreadsAreReplaced(t *testing.T) {
	var room atomic.Int64
	room.Store(proc.Headroom())
	p := newThreadsWithin(t.Context(), room.Load, nil, slog.New(slog.DiscardHandler))
	settled := func() error { return nil }
	use := func(n int) {
		t.Helper()
		for range n {
			s, err := p.makeThread(settled)
			if err != nil {
				t.Fatal(err)
			}
			s.giveUpThread()
		}
	}
	use(4 * idleThreads)
	waittest.See(t, "the Go runtime has threads for itself", func() string {
		st, err := proc.Read(os.Getpid())
		if own := int64(st.Threads) - p.made.Load(); err != nil || own < idleThreads {
			return fmt.Sprintf("%d of %d are the runtime's own, %v", own, st.Threads, err)
		}
		return ""
	}, func(lacks string) bool { return lacks == "" })

	room.Store(minHeadroom - 1)
	if _, err := p.makeThread(settled); !fault.Is(err, fault.Unavailable) {
		t.Errorf("with no room a thread is made: %v", err)
	}
	room.Store(minHeadroom)
	p.made.Add(1000) // as if the runtime had none
	if _, err := p.makeThread(settled); !fault.Is(err, fault.Unavailable) {
		t.Errorf("where the runtime's own cannot be made again, a thread is made: %v", err)
	}
	room.Store(minHeadroom + 1000 + idleThreads)
	use(1)
}

// TestThreadsAreCreatedInAdvance: those that park are taken from those that there are, so that none has to be made once
// machines may take all the room.
func TestThreadsAreCreatedInAdvance(t *testing.T) {
	p := newThreadsWithin(t.Context(), proc.Headroom, nil, slog.New(slog.DiscardHandler))
	count := func() int {
		st, err := proc.Read(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		return st.Threads
	}
	before := count()
	waittest.Until(t, "they are parked", func() bool { return len(p.ready) == readyThreads })
	if n := p.lackingThreads(); n > 0 {
		t.Errorf("the Go runtime lacks %d", n)
	}
	if now := count(); now > before {
		t.Errorf("%d threads were made after the first %d", now-before, before)
	}
}

// TestThreadWhoseGroupIsGoneIsGivenUpOnce: who asked for the group removes it, with the thread that it has; a thread that
// was given up already would end the reaper.
func TestThreadWhoseGroupIsGoneIsGivenUpOnce(t *testing.T) {
	p := newThreadsWithin(t.Context(), proc.Headroom, nil, slog.New(slog.DiscardHandler))
	tree := &cgroup.Tree{V1: map[string]string{"cpu": t.TempDir()}}
	got := slot{group: tree.Group("gone"), there: true}
	err := got.makeGroup(p)
	if err == nil || got.thread != nil {
		t.Fatalf("a thread is in a group that is not there: %v", err)
	}
	got.thread.giveUpThread()
}
