package shell

import (
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
)

// Times and bounds of a link.
const (
	resendAfter = time.Second            // without an acknowledgement
	seenAfter   = 200 * time.Millisecond // packets are acknowledged alone if nothing else is sent
	maxParcel   = 256                    // packets
	maxUnseen   = 1 << 20                // packets that wait for a member that cannot be reached
)

// link carries packets to and from one other member, in order and each once, over connections that may break: what is
// not acknowledged is sent again. Each direction has a number, which grows when it is begun anew.
type link struct {
	self, peer  cluster.WorkerID
	incarnation uint64 // of the peer
	here        bool   // the peer is a member now

	number uint64 // of the direction to the peer
	unseen []Packet
	first  uint64    // the number of the first of unseen, counted from 1
	sent   int       // how many of unseen were sent
	since  time.Time // when the first of them was sent, or the last acknowledgement came

	from     uint64    // the number of the direction from the peer
	got      uint64    // the number of the last packet that has come
	gotAt    time.Time // since when one is not acknowledged; zero: all are
	mustTell bool      // packets came again: their acknowledgement was lost
}

// beginDirection begins the direction to the peer anew: what was on its way is dropped.
func (l *link) beginDirection(now time.Time) {
	l.number = max(l.number+1, uint64(now.UnixNano()))
	l.unseen, l.first, l.sent = nil, 1, 0
}

// queuePacket adds a packet to what is to be sent. Beyond maxUnseen packets it is dropped: the member is taken for dead soon.
func (l *link) queuePacket(p Packet) {
	if l.here && len(l.unseen) < maxUnseen {
		l.unseen = append(l.unseen, p)
	}
}

// resendUnseen has all that is not acknowledged sent again.
func (l *link) resendUnseen() { l.sent = 0 }

// isIdle reports whether there is nothing to send or to acknowledge before the next packet.
func (l *link) isIdle() bool { return !l.here || len(l.unseen) == 0 && l.gotAt.IsZero() && !l.mustTell }

// nextParcels returns what is to be sent now.
func (l *link) nextParcels(now time.Time) (out []Parcel) {
	if !l.here {
		return nil
	}
	if l.sent > 0 && now.Sub(l.since) >= resendAfter {
		l.resendUnseen()
	}
	if l.sent == 0 {
		l.since = now
	}
	for l.sent < len(l.unseen) {
		n := min(maxParcel, len(l.unseen)-l.sent)
		out = append(out, l.parcelOf(l.unseen[l.sent:l.sent+n]))
		l.sent += n
	}
	if len(out) == 0 && (l.mustTell || !l.gotAt.IsZero() && now.Sub(l.gotAt) >= seenAfter) {
		out = append(out, l.parcelOf(nil))
	}
	if len(out) > 0 {
		l.gotAt, l.mustTell = time.Time{}, false
	}
	return out
}

func (l *link) parcelOf(list []Packet) Parcel {
	p := Parcel{By: l.self, To: l.peer, Link: l.number, First: l.first + uint64(l.sent),
		Packets: slices.Clone(list), Of: l.from, Seen: l.got}
	for i := range p.Packets {
		p.addLane(&p.Packets[i])
	}
	return p
}

// newPackets returns the packets of a parcel that are new, in order.
func (l *link) newPackets(now time.Time, p *Parcel) []Packet {
	if p.Of == l.number && p.Seen >= l.first && p.Seen < l.first+uint64(len(l.unseen)) {
		n := int(p.Seen - l.first + 1)
		l.unseen = slices.Delete(l.unseen, 0, n)
		l.first, l.sent, l.since = p.Seen+1, max(0, l.sent-n), now
	}
	if p.Link > l.from {
		l.from, l.got = p.Link, 0
	}
	if len(p.Packets) == 0 || p.Link < l.from || p.First == 0 || p.First > l.got+1 {
		return nil // of an earlier direction, or one before it was lost
	}
	skip := l.got + 1 - p.First
	if skip >= uint64(len(p.Packets)) {
		l.mustTell = true
		return nil
	}
	fresh := p.Packets[skip:]
	if l.got += uint64(len(fresh)); l.gotAt.IsZero() {
		l.gotAt = now
	}
	return fresh
}

// wakeAt returns when parcels must be asked for again; zero: not before the next packet.
func (l *link) wakeAt() (at time.Time) {
	if !l.here {
		return at
	}
	if !l.gotAt.IsZero() {
		at = l.gotAt.Add(seenAfter)
	}
	if l.sent > 0 {
		at = earlierOf(at, l.since.Add(resendAfter))
	}
	return at
}
