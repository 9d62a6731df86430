package gossip

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
)

// delegate is what memberlist calls, at times with its own locks held. None of its methods waits for the disk, for a
// signature or for the registry: what they touch is guarded by locks that are held for work in memory alone.
type delegate struct{ c *Cluster }

// NodeMeta is memberlist asking what to say of us.
func (d delegate) NodeMeta(int) []byte {
	c := d.c
	return meta{API: c.o.API, Role: c.o.Role, Capability: c.o.Capability, Build: c.o.Build,
		Keys: int(c.keys.Load()), Leaving: c.leaving.Load()}.encode()
}

// NotifyAlive lets memberlist take in only members whose names are names.
func (d delegate) NotifyAlive(n *memberlist.Node) error {
	r := registry.Record{Owner: cluster.WorkerID(n.Name), Kind: registry.Worker, Key: "k", Incarnation: 1, Version: 1}
	return r.Check()
}

// NotifyMsg is a broadcast that came.
func (d delegate) NotifyMsg(b []byte) {
	select {
	case d.c.dissemination.inbox <- slices.Clone(b):
	default:
		d.c.dissemination.dropped.Add(1)
	}
}

// GetBroadcasts is memberlist asking what to repeat: nothing, for what the tree carries is acknowledged.
func (d delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState is our part of memberlist's full exchange: the hash of what we know, and who we are.
func (d delegate) LocalState(bool) []byte { return append(d.AckPayload(), d.c.o.Self...) }

// MergeRemoteState takes the other's part. All that the other believes of members has been taken in before.
func (d delegate) MergeRemoteState(b []byte, _ bool) {
	d.c.met.Do(func() { close(d.c.contact) })
	if len(b) > 8 {
		d.compareRoot(cluster.WorkerID(b[8:]), binary.BigEndian.Uint64(b))
	}
}

// AckPayload goes with every answer to a probe.
func (d delegate) AckPayload() []byte {
	return binary.BigEndian.AppendUint64(nil, d.c.roots.now.Load())
}

// NotifyPingComplete is a probe of ours that was answered.
func (d delegate) NotifyPingComplete(n *memberlist.Node, rtt time.Duration, payload []byte) {
	id := cluster.WorkerID(n.Name)
	d.c.members.noteAnswer(id, rtt)
	if len(payload) == 8 {
		d.compareRoot(id, binary.BigEndian.Uint64(payload))
	}
}

func (d delegate) compareRoot(id cluster.WorkerID, root uint64) {
	if d.c.roots.noteRoot(id, root) {
		wakeLoop(d.c.antiEntropy.wake)
	}
}

// NotifyJoin is memberlist telling that a member is there. It holds memberlist's lock: nothing of memberlist may be
// called.
func (d delegate) NotifyJoin(n *memberlist.Node) { d.c.members.noteState(n, cluster.MemberAlive) }

// NotifyUpdate is memberlist telling that a member's meta changed.
func (d delegate) NotifyUpdate(n *memberlist.Node) { d.c.members.noteState(n, cluster.MemberAlive) }

// NotifyLeave is memberlist telling that a member is gone.
func (d delegate) NotifyLeave(n *memberlist.Node) { d.c.members.noteState(n, cluster.MemberDead) }

// NotifyConflict is memberlist telling that somebody has a member's name and another address. Where the name is ours,
// it may be what others remember of an earlier life of ours, or another who is us.
func (d delegate) NotifyConflict(_, other *memberlist.Node) {
	if other.Name != string(d.c.o.Self) {
		return
	}
	d.noteConflict(other)
}

// NotifyMerge is memberlist telling whom another knows, before it is taken in. Of whom that one suspects at the moment,
// or has given up, who was held up, memberlist tells in no other way.
func (d delegate) NotifyMerge(known []*memberlist.Node) error {
	for _, n := range known {
		if n.Name == string(d.c.o.Self) && n.State != memberlist.StateLeft && n.Address() != d.c.Addr() {
			d.noteConflict(n)
		}
	}
	return nil
}

func (d delegate) noteConflict(other *memberlist.Node) {
	var m meta
	if err := json.Unmarshal(other.Meta, &m); err != nil {
		m = meta{} // unreadable: nobody can be asked
	}
	d.c.o.Conflict(other.Address(), m.API)
}
