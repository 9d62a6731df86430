package broadcast_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/broadcast"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

const hop = time.Millisecond

// world is members and the packets between them, each of which takes a hop.
type world struct {
	now     time.Time
	rng     *rand.Rand
	members map[cluster.WorkerID]*broadcast.Spreader
	ids     []cluster.WorkerID
	packets []broadcast.Packet
	acks    []broadcast.Ack
	got     map[cluster.WorkerID]map[uint64]int
	sent    map[cluster.WorkerID]int // messages
	lost    func(from, to cluster.WorkerID) bool
}

func newWorld(n, ways int, seed uint64) *world {
	w := &world{now: noon, rng: rand.New(rand.NewPCG(seed, 1)), members: map[cluster.WorkerID]*broadcast.Spreader{},
		got: map[cluster.WorkerID]map[uint64]int{}, sent: map[cluster.WorkerID]int{},
		lost: func(cluster.WorkerID, cluster.WorkerID) bool { return false }}
	for i := range n {
		w.ids = append(w.ids, cluster.WorkerID(fmt.Sprintf("w%04d", i)))
	}
	ring := broadcast.NewRing(w.ids)
	for _, id := range w.ids {
		w.members[id] = broadcast.New(broadcast.Options{Self: id, Ways: ways, Patience: 20 * time.Millisecond,
			Size: 1200}, w.rng)
		w.members[id].SetRing(ring)
		w.got[id] = map[uint64]int{}
	}
	return w
}

func (w *world) publish(id cluster.WorkerID, body string) uint64 {
	w.members[id].Publish([]byte(body))
	return broadcast.NewMessage(broadcast.Arc{}, []byte(body)).ID
}

// turn takes in what is in the air and sends what follows.
func (w *world) turn() (quiet bool) {
	packets, acks := w.packets, w.acks
	w.packets, w.acks = nil, nil
	w.now = w.now.Add(hop)
	for _, p := range packets {
		if w.lost(p.From, p.To) {
			continue
		}
		for _, m := range w.members[p.To].Receive(p) {
			if !w.members[p.To].Known(m) {
				w.got[p.To][m.ID]++
			}
			w.members[p.To].Relay(m)
		}
	}
	for _, a := range acks {
		if !w.lost(a.From, a.To) {
			w.members[a.To].Acked(w.now, a)
		}
	}
	waiting := 0
	for _, id := range w.ids {
		ps, as := w.members[id].Flush(w.now)
		for _, p := range ps {
			w.sent[id] += len(p.Messages)
		}
		w.packets, w.acks = append(w.packets, ps...), append(w.acks, as...)
		waiting += w.members[id].InFlight()
	}
	return len(w.packets)+len(w.acks)+waiting == 0
}

func (w *world) settle(t interface{ Fatal(...any) }) (turns int) {
	for !w.turn() {
		if turns++; turns > 100_000 {
			t.Fatal("it does not come to an end")
		}
	}
	return turns
}

// TestEachMemberGetsAMessageOnce, and sends it once on average, whoever says it and however many there are.
func TestEachMemberGetsAMessageOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, ways := rapid.IntRange(1, 200).Draw(t, "members"), rapid.IntRange(1, 9).Draw(t, "ways")
		w := newWorld(n, ways, rapid.Uint64().Draw(t, "seed"))
		from := w.ids[rapid.IntRange(0, n-1).Draw(t, "from")]
		id := w.publish(from, "news")
		w.settle(t)
		total := 0
		for _, m := range w.ids {
			total += w.sent[m]
			if want := map[bool]int{true: 0, false: 1}[m == from]; w.got[m][id] != want {
				t.Fatalf("%s got it %d times", m, w.got[m][id])
			}
			if w.sent[m] > ways+1 {
				t.Fatalf("%s sent it %d times; %d ways", m, w.sent[m], ways)
			}
		}
		if total != n-1 {
			t.Fatalf("%d sends for %d members", total, n)
		}
	})
}

// TestForwardingIsSharedEqually: of many messages of one member, all pass on about equally many.
func TestForwardingIsSharedEqually(t *testing.T) {
	w := newWorld(50, 4, 1)
	for i := range 1000 {
		w.publish("w0007", fmt.Sprint("news ", i))
		w.settle(t)
	}
	for _, id := range w.ids {
		if n := w.sent[id]; id != "w0007" && (n < 700 || n > 1200) {
			t.Errorf("%s sent %d messages of 1,000", id, n)
		}
	}
}

// TestLostPacketsAreRepaired: every message reaches all though a packet of ten is lost, for little more than without.
func TestLostPacketsAreRepaired(t *testing.T) {
	for seed := range uint64(10) {
		w := newWorld(200, 4, seed)
		w.lost = func(cluster.WorkerID, cluster.WorkerID) bool { return w.rng.IntN(10) == 0 }
		var ids []uint64
		for i := range 20 {
			ids = append(ids, w.publish(w.ids[i], fmt.Sprint("news ", i)))
		}
		w.settle(t)
		total := 0
		for k, m := range w.ids {
			total += w.sent[m]
			for i, id := range ids {
				if w.got[m][id] == 0 && k != i {
					t.Errorf("seed %d: %s never got message %d", seed, m, i)
				}
			}
		}
		if most := 20 * 199 * 14 / 10; total > most {
			t.Errorf("seed %d: %d sends; %d are the most", seed, total, most)
		}
	}
}

// TestBroadcastRoutesAroundDeadMembers: those behind a member that does not answer are reached by another way.
func TestBroadcastRoutesAroundDeadMembers(t *testing.T) {
	w := newWorld(100, 4, 3)
	dead := map[cluster.WorkerID]bool{"w0003": true, "w0010": true, "w0050": true}
	w.lost = func(from, to cluster.WorkerID) bool { return dead[from] || dead[to] }
	for i := range 50 {
		id := w.publish("w0000", fmt.Sprint("news ", i))
		w.settle(t)
		for _, m := range w.ids {
			if got := w.got[m][id] > 0; got == dead[m] && m != "w0000" {
				t.Fatalf("message %d: dead %t, got %t: %s", i, dead[m], got, m)
			}
		}
	}
}

// TestDisagreeingMembersReachAllTheSenderKnows: members with different views of the cluster still pass a message to
// every member that its sender knows.
func TestDisagreeingMembersReachAllTheSenderKnows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(40, 3, rapid.Uint64().Draw(t, "seed"))
		for _, id := range w.ids[20:] { // half of them know only some of the others
			some := rapid.SliceOfN(rapid.SampledFrom(w.ids), 0, 39).Draw(t, "known")
			w.members[id].SetRing(broadcast.NewRing(some))
		}
		w.publish("w0000", "news")
		w.settle(t) // and it ends
	})
}

// TestBacklogIsForwardedInFewPackets: a member that is behind must not make as many packets of it as it was.
func TestBacklogIsForwardedInFewPackets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(3, 2, 1)
		sizes := rapid.SliceOfN(rapid.IntRange(1, 1100), 0, 60).Draw(t, "sizes")
		total := 0
		for i, n := range sizes {
			body := make([]byte, n)
			copy(body, fmt.Sprint(i))
			w.members["w0000"].Publish(body)
			total += n + 11
		}
		packets, _ := w.members["w0000"].Flush(noon)
		got := map[cluster.WorkerID]int{}
		for _, p := range packets {
			size := 0
			for _, m := range p.Messages {
				size += len(m.Body) + 11
			}
			if size > 1200 {
				t.Fatalf("a packet of %d bytes", size)
			}
			got[p.To] += len(p.Messages)
		}
		if got["w0001"] != len(sizes) || got["w0002"] != len(sizes) || len(packets) > 2*(1+2*total/1200) {
			t.Fatalf("%d packets for %d bytes to %v", len(packets), total, got)
		}
	})
}

// TestQueueForSilentMembersIsBounded: what is kept for those who do not is bounded, and is let go of.
func TestQueueForSilentMembersIsBounded(t *testing.T) {
	w := newWorld(10, 4, 1)
	w.lost = func(cluster.WorkerID, cluster.WorkerID) bool { return true }
	for i := range 5000 {
		w.publish("w0000", fmt.Sprint("news ", i))
		if i%100 == 0 {
			w.turn()
		}
	}
	if n := w.members["w0000"].InFlight(); n > 4096 {
		t.Errorf("%d packets wait", n)
	}
	w.settle(t)
	if s := w.members["w0000"].Stats(); s.Lost == 0 {
		t.Errorf("%+v", s)
	}
}

func TestPacketsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := broadcast.Packet{From: "somebody", Seq: rapid.Uint32().Draw(t, "seq")}
		for range rapid.IntRange(0, 5).Draw(t, "messages") {
			arc := broadcast.Arc{From: rapid.Uint32().Draw(t, "from"), To: rapid.Uint32().Draw(t, "to")}
			p.Messages = append(p.Messages, broadcast.NewMessage(arc, rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t,
				"body")))
		}
		raw := p.Encode()
		again, none, err := broadcast.Decode(append(raw, "of a later version"...))
		if err != nil || none != nil || len(raw) > p.Size() {
			t.Fatal(err, len(raw), p.Size())
		}
		if d := cmp.Diff(p, *again, cmp.AllowUnexported(broadcast.Message{})); d != "" {
			t.Fatal(d)
		}
		a := broadcast.Ack{From: "somebody", Seqs: rapid.SliceOfN(rapid.Uint32(), 1, 100).Draw(t, "seqs")}
		nothing, back, err := broadcast.Decode(a.Encode())
		if err != nil || nothing != nil || cmp.Diff(a, *back) != "" || len(a.Encode()) > a.Size() {
			t.Fatal(err, back)
		}
	})
}

// FuzzPacketsNeverBreakTheReceiver: any bytes are either refused or accepted, and the receiver keeps working.
func FuzzPacketsNeverBreakTheReceiver(f *testing.F) {
	p := broadcast.Packet{From: "a", Seq: 7, Messages: []broadcast.Message{broadcast.NewMessage(broadcast.Arc{From: 1,
		To: 9}, []byte("x"))}}
	f.Add(p.Encode())
	f.Add(broadcast.Ack{From: "a", Seqs: []uint32{1, 2}}.Encode())
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, a, err := broadcast.Decode(raw)
		if err != nil {
			return
		}
		w := newWorld(10, 3, 1)
		w.publish("w0001", "news")
		s := w.members["w0001"]
		s.Flush(noon)
		if a != nil {
			s.Acked(noon, *a)
			return
		}
		for _, m := range s.Receive(*p) {
			s.Relay(m)
		}
		if packets, _ := s.Flush(noon); len(packets) > 16*(1+len(p.Messages)) {
			t.Fatalf("%d packets come of one", len(packets))
		}
	})
}
