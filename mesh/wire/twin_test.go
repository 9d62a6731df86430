package wire

import (
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
)

// TestSecondProcessWithOurIDIsReported: a caller with the server's own id is reported if it is another process; the
// process itself, other members and refused certificates are not.
func TestSecondProcessWithOurIDIsReported(t *testing.T) {
	c := newCast(t, time.Now())
	var told []string
	denied := false
	mine, copied, other := NewClient(c.all["w2"], nil), NewClient(c.all["w2"], nil), NewClient(c.all["g1"], nil)
	addr := c.serve(t, "w2", Options{Worker: newStub(), Boot: mine.Boot(),
		Denied: func(Peer) bool { return denied },
		Twin:   func(addr string) { told = append(told, addr) }}, nil)
	ask := func(by *Client) (Greeting, error) { return by.WhoIs(t.Context(), addr, "w2") }
	for by, want := range map[*Client]int{mine: 0, other: 0} {
		if g, err := ask(by); err != nil || g.Boot != mine.Boot() || len(told) != want {
			t.Errorf("%+v, %v: told %v", g, err, told)
		}
	}
	denied = true
	if _, err := ask(copied); !fault.Is(err, fault.Denied) || len(told) != 0 {
		t.Errorf("one that is refused: %v, told %v", err, told)
	}
	denied = false
	if g, err := ask(copied); err != nil || g.Boot == copied.Boot() || len(told) != 1 || told[0] != "127.0.0.1" {
		t.Errorf("another process of one id: %+v, %v, told %v", g, err, told)
	}
	if _, err := other.WhoIs(t.Context(), addr, "w3"); err == nil {
		t.Error("somebody else answers for w3")
	}
}

// TestRemovedMemberIsNeitherAskedNorBelieved: neither over a new connection nor over one that was there before, and what it answers
// meanwhile is not believed. Once a copied disk's record was taken for that of the member that lives, so that nothing
// was placed there any more.
func TestRemovedMemberIsNeitherAskedNorBelieved(t *testing.T) {
	k := newStub()
	w, ctx := far(t, k), t.Context()
	_, err := w.Record(ctx)
	must(t, err)
	w.client.Deny(func(p Peer) bool { return p.ID == "w1" && time.Since(p.Since) > time.Minute })
	for range 2 {
		_, err = w.Record(ctx)
		wantFault(t, err, fault.Unavailable, "unreachable")
	}
	if n := k.calls("Record"); n != 1 {
		t.Errorf("it was asked %d times, once before it was removed", n)
	}
	_, err = w.client.WhoIs(ctx, w.addr(), "w1")
	wantFault(t, err, fault.Unavailable, "unreachable")

	w.client.Deny(func(p Peer) bool { return false })
	_, err = w.Record(ctx)
	must(t, err)
	asks := 0
	w.client.Deny(func(p Peer) bool { asks++; return asks > 1 }) // while the question is on its way
	_, err = w.Record(ctx)
	wantFault(t, err, fault.Unavailable, "lost")
}
