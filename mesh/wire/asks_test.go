package wire

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

func aGrant(id string) lifecycle.Grant {
	c := &machine.Config{Image: "souk/host", Init: machine.Init{Exec: []string{"sleep", "1000"}}, Guest: aGuest()}
	return lifecycle.Grant{Request: placement.Request{App: "a", Machine: id, Resources: machine.Resources(c)},
		Launch: &machine.Launch{Config: c}}
}

// grantBody is aGrant as it travels.
func grantBody(t *testing.T, id string) []byte {
	raw, err := marshal(aGrant(id))
	must(t, err)
	return raw
}

func aGuest() *machine.Guest { return &machine.Guest{CPUKind: "shared", CPUs: 4, MemoryMB: 1024} }

func refusal() error {
	return &fault.Error{Kind: fault.Exhausted, Code: "no_capacity", Text: "full",
		Detail: market.Refusal{Record: aRecord()}}
}

// numberedAsk asks as a buyer would whose ask had this number, however late it arrives.
func numberedAsk(t *testing.T, w *Worker, number uint64) error {
	t.Helper()
	r := w.newRequest(t.Context(), pathGrant, grantBody(t, testID))
	r.Header = w.numberedHeader(number)
	return w.askMember(t.Context(), r, nil)
}

func wantRefusal(t *testing.T, err error, code fault.Code) {
	t.Helper()
	wantFault(t, err, fault.Exhausted, code)
	if r, ok := fault.Detail[market.Refusal](err); !ok || r.Record.Worker != "w1" || len(r.Verdict.Failing) != 1 ||
		r.RetryAfter == 0 {
		t.Errorf("the refusal does not heal a view: %+v", fault.As(err).Detail)
	}
}

// TestLateDuplicateAskGrantsNothing is the story of docs/decisions/0006: an ask is lost, its repeat is refused, the buyer goes on
// to another worker; then there is room, and the first ask arrives.
func TestLateDuplicateAskGrantsNothing(t *testing.T) {
	c, k := newCast(t, time.Now()), newStub()
	addr := c.serve(t, "w1", Options{Worker: k}, nil)
	w := c.worker(t, "g1", addr, nil)
	k.give["Record"], k.give["Grant"] = aRecord(), refusal()
	wantFault(t, numberedAsk(t, w, 2), fault.Exhausted, "no_capacity")
	k.give["Grant"] = aMachine()
	wantRefusal(t, numberedAsk(t, w, 1), CodeLate)
	wantRefusal(t, numberedAsk(t, w, 2), CodeLate)
	if n := k.calls("Grant"); n != 1 {
		t.Errorf("the worker was asked %d times", n)
	}
	must(t, numberedAsk(t, w, 3)) // the buyer comes back: that is no late ask
	must(t, numberedAsk(t, c.worker(t, "g2", addr, nil), 1))
	_, err := w.Grant(t.Context(), aGrant(testID)) // a client's own numbers are higher than all of its lives before
	must(t, err)
	later := c.worker(t, "g1", addr, func() time.Time { return time.Now().Add(time.Minute) })
	if _, err := later.Grant(t.Context(), aGrant(testID)); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}

// TestAsksOfAMachineAreSerialized: a repeat waits for the ask before it, and is the one that counts.
func TestAsksOfAMachineAreSerialized(t *testing.T) {
	k := newStub()
	w := far(t, k)
	entered, answerIt := make(chan struct{}), make(chan error)
	var mu sync.Mutex
	inside := 0
	k.give["Grant"] = func(ctx context.Context, _ lifecycle.Grant) (*machine.Machine, error) {
		mu.Lock()
		if inside++; inside > 1 {
			t.Error("two asks of one machine at once")
		}
		mu.Unlock()
		entered <- struct{}{}
		err := <-answerIt
		mu.Lock()
		inside--
		mu.Unlock()
		if ctx.Err() != nil {
			t.Error("the caller went, and the worker's answer was not waited for")
		}
		return aMachine(), err
	}
	ctx, giveUp := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { _, err := w.Grant(ctx, aGrant(testID)); first <- err }()
	<-entered
	giveUp()
	wantFault(t, <-first, fault.Unavailable, "cancelled")
	go func() { _, err := w.Grant(t.Context(), aGrant(testID)); second <- err }()
	answerIt <- nil
	<-entered
	answerIt <- nil
	must(t, <-second)
}

// TestExcessAsksAreRefusedAtOnce: beyond the bound a grant is a refusal that carries a record, at once; each caller has
// half.
func TestExcessAsksAreRefusedAtOnce(t *testing.T) {
	c, k := newCast(t, time.Now()), newStub()
	addr := c.serve(t, "w1", Options{Worker: k, Limits: Limits{Changes: 4, Reads: 2, Streams: 2}}, nil)
	g1, g2 := c.worker(t, "g1", addr, nil), c.worker(t, "g2", addr, nil)
	entered, free := make(chan struct{}), make(chan struct{})
	k.give["Record"] = aRecord()
	k.give["Grant"] = func(context.Context, lifecycle.Grant) (*machine.Machine, error) {
		entered <- struct{}{}
		<-free
		return aMachine(), nil
	}
	var wg sync.WaitGroup
	id := func(n int) string { return fmt.Sprintf("%014x", n) }
	for n := range 2 {
		wg.Go(func() {
			if _, err := g1.Grant(t.Context(), aGrant(id(n))); err != nil {
				t.Error(err)
			}
		})
		<-entered
	}
	_, err := g1.Grant(t.Context(), aGrant(id(9)))
	wantRefusal(t, err, "busy")
	_, err = g1.Do(t.Context(), lifecycle.Command{})
	wantFault(t, err, fault.Exhausted, "busy")
	if fault.As(err).RetryAfter == 0 {
		t.Error("busy does not say when to ask again")
	}
	if _, err := g1.Record(t.Context()); err != nil {
		t.Errorf("questions are kept out by changes: %v", err)
	}
	if _, err := g2.Do(t.Context(), lifecycle.Command{}); err != nil {
		t.Errorf("one caller keeps another out: %v", err)
	}
	close(free)
	wg.Wait()
	k.give["Grant"] = aMachine()
	if _, err := g1.Grant(t.Context(), aGrant(id(9))); err != nil {
		t.Errorf("room again, and: %v", err)
	}
}

// TestBusyIsNoRefusalWhileAnAskIsPending: the ask before had no answer, so only the worker may send the buyer
// elsewhere.
func TestBusyIsNoRefusalWhileAnAskIsPending(t *testing.T) {
	c, k := newCast(t, time.Now()), newStub()
	var server *Server
	addr := c.serve(t, "w1", Options{Worker: k, Limits: Limits{Changes: 2}}, func(s *Server) { server = s })
	w := c.worker(t, "g1", addr, nil)
	k.give["Record"], k.give["Grant"] = aRecord(), fault.New(fault.Timeout, "deadline", "slow")
	_, err := w.Grant(t.Context(), aGrant(testID))
	wantFault(t, err, fault.Timeout, "deadline")
	if !server.gates[change].enterCaller("g1") {
		t.Fatal("no room for the only call")
	}
	_, err = w.Grant(t.Context(), aGrant(testID))
	wantFault(t, err, fault.Unavailable, "busy")
	_, err = w.Grant(t.Context(), aGrant(strings.Repeat("0", 14)))
	wantRefusal(t, err, "busy")
	server.gates[change].leaveCaller("g1")
	k.give["Grant"] = refusal()
	_, err = w.Grant(t.Context(), aGrant(testID))
	wantFault(t, err, fault.Exhausted, "no_capacity")
}

// TestAnsweredAsksAreNeverRepeated, by property: numbers arrive in any order, repeated and late; none reaches the worker
// once one at or above it, of the same machine, has been answered. The table stays within its bound.
func TestAnsweredAsksAreNeverRepeated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := newAsks()
		over := map[string]uint64{}
		machines := rapid.SampledFrom([]int{2, 5, maxOver + 50}).Draw(t, "machines")
		high := uint64(0)
		for range rapid.IntRange(1, 3*maxOver).Draw(t, "asks") {
			m := fmt.Sprint(rapid.IntRange(0, machines).Draw(t, "machine"))
			number := high + 1
			if late := rapid.IntRange(0, 3).Draw(t, "late") == 0; late && high > 0 {
				number = rapid.Uint64Range(1, high).Draw(t, "number")
			}
			high = max(high, number)
			turn, err := a.beginAsk(context.Background(), "g", m, number)
			if err != nil {
				t.Fatal(err)
			}
			if turn == nil && number == high && over[m] < number {
				t.Fatalf("the newest ask, %d of %s, is taken for a late one", number, m)
			}
			if turn == nil {
				continue
			}
			if number <= over[m] {
				t.Fatalf("ask %d of %s reached the worker after %d was answered", number, m, over[m])
			}
			turn.endAsk(false)
			over[m] = number
		}
		if by := a.callers["g"]; len(by.over) > maxOver || len(by.order) > maxOver || len(by.under) != 0 {
			t.Fatalf("%d %d %d are remembered", len(by.over), len(by.order), len(by.under))
		}
	})
}

func TestWaitingRepeatsAreBounded(t *testing.T) {
	a := newAsks()
	first, err := a.beginAsk(t.Context(), "g", "m", 1)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for n := range maxWaiting {
		wg.Go(func() {
			if _, err := a.beginAsk(ctx, "g", "m", uint64(2+n)); !fault.Is(err, fault.Unavailable) {
				t.Error(err)
			}
		})
	}
	for waiting := 0; waiting < maxWaiting; {
		a.mu.Lock()
		waiting = first.waiting
		a.mu.Unlock()
	}
	_, err = a.beginAsk(t.Context(), "g", "m", 99)
	wantFault(t, err, fault.Unavailable, "busy")
	cancel()
	wg.Wait()
	first.endAsk(false)
	turn, err := a.beginAsk(t.Context(), "g", "m", 0) // without a number: an older caller
	must(t, err)
	turn.endAsk(true)
}
