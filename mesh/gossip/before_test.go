package gossip

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/internal/wait/waittest"
)

// before is a member of the version before: it reads runs and deltas alone, says nothing of a tree, floods what is
// news to it, and pulls nothing.
type before struct {
	self  cluster.WorkerID
	queue *memberlist.TransmitLimitedQueue

	mu  sync.Mutex
	reg *registry.Registry
	odd int // messages that it cannot read
}

func (b *before) NodeMeta(int) []byte { return []byte(`{"a":"https://old","r":"worker","c":20261121}`) }

func (b *before) NotifyMsg(raw []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	run, err := registry.DecodeUpdate(raw)
	if err != nil {
		b.odd++
		return
	}
	if n, err := b.reg.Merge(time.Now(), "", registry.Delta{Updates: []registry.Update{run}}); n > 0 && err == nil {
		b.tell(slices.Clone(raw))
	}
}

func (b *before) tell(raw []byte)                      { b.queue.QueueBroadcast(oldMessage(raw)) }
func (b *before) GetBroadcasts(over, lim int) [][]byte { return b.queue.GetBroadcasts(over, lim) }
func (b *before) LocalState(bool) []byte               { return nil }
func (b *before) MergeRemoteState([]byte, bool)        {}

type oldMessage []byte

func (oldMessage) Invalidates(memberlist.Broadcast) bool { return false }
func (m oldMessage) Message() []byte                     { return m }
func (oldMessage) Finished()                             {}
func (oldMessage) UniqueBroadcast()                      {}

func startBefore(t *testing.T, self cluster.WorkerID, join *member) *before {
	t.Helper()
	net, err := listen("127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	net.start()
	b := &before{self: self, reg: registry.New(self, registry.Options{})}
	b.queue = &memberlist.TransmitLimitedQueue{NumNodes: func() int { return 3 }, RetransmitMult: 2}
	if err := b.reg.Own(time.Now(), 1, nil); err != nil {
		t.Fatal(err)
	}
	conf := memberlist.DefaultLANConfig()
	conf.Name, conf.Transport, conf.Delegate, conf.LogOutput = string(self), net, b, io.Discard
	conf.GossipInterval, conf.EnableCompression, conf.ProbeInterval = 20*time.Millisecond, false, time.Hour
	if conf.Keyring, err = memberlist.NewKeyring(nil, key); err != nil {
		t.Fatal(err)
	}
	list, err := memberlist.Create(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := list.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	if _, err := list.Join([]string{join.Addr()}); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *before) says(t *testing.T, id string) {
	t.Helper()
	raw, err := json.Marshal(Machine{ID: id, App: "app", State: "started", Worker: b.self})
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.reg.Put(time.Now(), registry.Machine, id, schemaMachine, raw); err != nil {
		t.Fatal(err)
	}
	for _, run := range b.reg.News(messageSize, 4) {
		b.tell(registry.EncodeUpdate(run))
	}
}

// TestTheVersionBeforeHearsAndIsHeard, by broadcasts alone: nobody here can be pulled from by it, or pulls from it in
// time.
func TestTheVersionBeforeHearsAndIsHeard(t *testing.T) {
	k := fast()
	k.Sync, k.Settle = time.Hour, time.Hour        // nothing is pulled
	k.Probe, k.ProbeTimeout = time.Hour, time.Hour // and nobody is held for dead on a busy host, who would not be told
	a := start(t, Options{Self: "a", Knobs: k})
	b := start(t, Options{Self: "b", Knobs: k}, a)
	old := startBefore(t, "old", a)
	waittest.Until(t, "all know all", func() bool { return len(a.Members()) == 3 && len(b.Members()) == 3 })
	for i := range 20 {
		a.machine(fmt.Sprint("m", i), "started")
		old.says(t, fmt.Sprint("o", i))
	}
	waittest.Until(t, "the old one knows what the new one has", func() bool {
		old.mu.Lock()
		defer old.mu.Unlock()
		_, ok := old.reg.Get("a", registry.Machine, "m19")
		return ok
	})
	waittest.Until(t, "the new ones know what the old one has", func() bool {
		_, x := a.Where("o19")
		_, y := b.Where("o19")
		return x && y
	})
	old.mu.Lock()
	defer old.mu.Unlock()
	if old.odd > 0 {
		t.Errorf("the old one is sent %d messages that it cannot read", old.odd)
	}
}

// TestAHashThatDiffersIsPulled: what the tree did not bring, an answer to a probe shows.
func TestAHashThatDiffersIsPulled(t *testing.T) {
	a := start(t, Options{Self: "a"})
	b := start(t, Options{Self: "b"}, a)
	waittest.Until(t, "both see both", func() bool { return len(a.View().Workers) == 2 && len(b.View().Workers) == 2 })
	a.mu.Lock() // written without a word
	if _, err := a.reg.Put(time.Now(), registry.Machine, "m1", schemaMachine,
		[]byte(`{"id":"m1","worker":"a"}`)); err != nil {
		t.Error(err)
	}
	_ = a.reg.News(messageSize, 4)
	a.changed()
	a.mu.Unlock()
	d := delegate{b.Cluster}
	d.NotifyPingComplete(&memberlist.Node{Name: "a"}, time.Millisecond, binary.BigEndian.AppendUint64(nil, a.Root()))
	waittest.Until(t, "b has it", func() bool { _, ok := b.Where("m1"); return ok })
}
