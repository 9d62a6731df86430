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

// delegate implements memberlist's callbacks; memberlist calls some of them with its own locks held. No method waits
// for the disk, a signature or the registry: they take only locks that are held for work in memory.
type delegate struct{ c *Cluster }

// NodeMeta returns this member's meta, which memberlist sends to the others.
func (d delegate) NodeMeta(int) []byte {
	c := d.c
	return meta{API: c.o.API, Role: c.o.Role, Capability: c.o.Capability, Build: c.o.Build,
		Keys: int(c.keys.Load()), Leaving: c.leaving.Load()}.encode()
}

// NotifyAlive makes memberlist reject members whose name is not a valid id.
func (d delegate) NotifyAlive(n *memberlist.Node) error {
	r := registry.Record{Owner: cluster.WorkerID(n.Name), Kind: registry.Worker, Key: "k", Incarnation: 1, Version: 1}
	return r.Check()
}

// NotifyMsg receives a broadcast.
func (d delegate) NotifyMsg(b []byte) {
	select {
	case d.c.dissemination.inbox <- slices.Clone(b):
	default:
		d.c.dissemination.dropped.Add(1)
	}
}

// GetBroadcasts returns nothing for memberlist to repeat: the broadcast tree acknowledges and resends its own messages.
func (d delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState is our part of memberlist's full exchange: the hash of what we know, and who we are.
func (d delegate) LocalState(bool) []byte { return append(d.AckPayload(), d.c.o.Self...) }

// MergeRemoteState receives the other member's part. Memberlist has merged the other's member list before.
func (d delegate) MergeRemoteState(b []byte, _ bool) {
	d.c.met.Do(func() { close(d.c.contact) })
	if len(b) > 8 {
		d.compareRoot(cluster.WorkerID(b[8:]), binary.BigEndian.Uint64(b))
	}
}

// AckPayload returns the hash of our registry; memberlist attaches it to every answer to a probe.
func (d delegate) AckPayload() []byte {
	return binary.BigEndian.AppendUint64(nil, d.c.roots.now.Load())
}

// NotifyPingComplete receives the answer to a probe of ours.
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

// NotifyJoin reports a new member. Memberlist holds its lock during the call, so nothing here may call memberlist.
func (d delegate) NotifyJoin(n *memberlist.Node) { d.c.members.noteState(n, cluster.MemberAlive) }

// NotifyUpdate reports that a member's meta changed.
func (d delegate) NotifyUpdate(n *memberlist.Node) { d.c.members.noteState(n, cluster.MemberAlive) }

// NotifyLeave reports that a member is gone.
func (d delegate) NotifyLeave(n *memberlist.Node) { d.c.members.noteState(n, cluster.MemberDead) }

// NotifyConflict reports that two addresses claim one member's name. If the name is ours, the other address is either
// our own from before a restart, or a twin with our id.
func (d delegate) NotifyConflict(_, other *memberlist.Node) {
	if other.Name != string(d.c.o.Self) {
		return
	}
	d.noteConflict(other)
}

// NotifyMerge receives another member's list before memberlist merges it. It is the only callback that shows a twin of
// ours which that member suspects or has declared dead.
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
		m = meta{} // unreadable: the API address of the twin is unknown
	}
	d.c.o.Conflict(other.Address(), m.API)
}
