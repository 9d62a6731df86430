package gossip

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/internal/wait/waittest"
)

// still returns knobs of members that tell each other only who they are. Whatever else one knows, the test has told it, or it
// has pulled.
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

// TestUnannouncedMachinesEndIsTold: a worker announces the end of a machine that it never announced, since the member
// that created it knows of it.
func TestUnannouncedMachinesEndIsTold(t *testing.T) {
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

// TestDeletionReachesAPullAtOnce: each deletion beyond those that are kept moves what is forgotten, which the owner signs. Who
// pulls right behind it believes it.
func TestDeletionReachesAPullAtOnce(t *testing.T) {
	sign := func(raw []byte) []byte { return append([]byte("signed "), raw...) }
	verify := func(_ cluster.WorkerID, signed, sig []byte) error {
		if !bytes.Equal(sig, sign(signed)) {
			return errors.New("it is signed otherwise")
		}
		return nil
	}
	o := Options{Self: "a", Knobs: still(), Sign: sign, Verify: verify, Registry: registry.Options{Tombstones: 2}}
	a := start(t, o)
	o.Self = "b"
	b := start(t, o, a)
	meet(t, a, b)
	for i := range 6 {
		id := fmt.Sprint("m", i)
		b.machine(id, "started")
		a.pulled(b)
		if _, known := a.Where(id); !known {
			t.Errorf("%s is not known", id)
		}
		if err := b.RemoveMachine(id); err != nil {
			t.Fatal(err)
		}
		a.pulled(b)
		if _, known := a.Where(id); known {
			t.Errorf("%s is known still", id)
		}
	}
	if r := a.refusals.all(); len(r) > 0 {
		t.Error(r)
	}
}
