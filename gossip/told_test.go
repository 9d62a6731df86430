package gossip

import (
	"slices"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/wait/waittest"
)

// still returns knobs of members that tell nothing by themselves but who they are: what one of them knows it was told by the
// test, or it has pulled it.
func still() Knobs {
	k := fast()
	k.Probe, k.Reprobe, k.Gossip, k.Flush = time.Hour, time.Hour, time.Hour, time.Hour
	k.Sync, k.Settle, k.Save, k.StuckAfter, k.Reconnect = time.Hour, time.Hour, time.Hour, time.Hour, time.Hour
	return k
}

// pulled has a member learn all that another knows.
func (m *member) pulled(from *member) {
	m.t.Helper()
	from.AnnounceNow()
	if err := m.PullFrom(m.t.Context(), from.o.Self); err != nil {
		m.t.Fatal(err)
	}
}

func meet(t *testing.T, a, b *member) {
	t.Helper()
	waittest.Until(t, "they know each other", func() bool {
		return state(a, b.o.Self) == cluster.MemberAlive && state(b, a.o.Self) == cluster.MemberAlive
	})
}

// TestAShortLifeIsToldOf: a machine that has come and gone before its worker had told of it is told of as gone. A member that
// made it knows it by the worker's answer, and would believe in it.
func TestAShortLifeIsToldOf(t *testing.T) {
	a := start(t, Options{Self: "a", Knobs: still()})
	b := start(t, Options{Self: "b", Knobs: still()}, a)
	meet(t, a, b)
	feed := a.Feed()
	b.announcer.writer.Lock() // nothing is written meanwhile
	b.machine("short", "created")
	if err := b.RemoveMachine("short"); err != nil {
		t.Fatal(err)
	}
	b.announcer.writer.Unlock()
	a.pulled(b)
	told := slices.ContainsFunc(feed.Take(100).Machines, func(m MachineNews) bool {
		return m.Owner == "b" && m.ID == "short" && m.Machine == nil
	})
	if !told {
		t.Error("nothing is told of the machine")
	}
}
