package wire

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// cuttable is a listener whose connections can all be cut, as a network does.
type cuttable struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (c *cuttable) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.mu.Lock()
		c.conns = append(c.conns, conn)
		c.mu.Unlock()
	}
	return conn, err
}

func (c *cuttable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.conns = nil
}

// TestLostAnswerLeavesTheAskInDoubt: a connection that breaks while the worker acts leaves the ask in doubt, and says so; the repeat
// finds the machine. The next call makes a new connection by itself.
func TestLostAnswerLeavesTheAskInDoubt(t *testing.T) {
	c, k := newCast(t, time.Now()), newStub()
	s, err := NewServer(Options{Identity: c.all["w1"], Worker: k})
	must(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	cutting := &cuttable{Listener: ln}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(ctx, cutting); err != nil {
			t.Error(err)
		}
	})
	defer wg.Wait()
	defer cancel()
	w := c.worker(t, "g1", ln.Addr().String(), nil)
	defer w.Close()
	var mu sync.Mutex
	made := map[string]int{}
	k.give["Grant"] = func(_ context.Context, g lifecycle.Grant) (*machine.Machine, error) {
		mu.Lock()
		defer mu.Unlock()
		if made[g.Request.Machine]++; made[g.Request.Machine] == 1 {
			cutting.cut()
		}
		return aMachine(), nil
	}
	_, err = w.Grant(t.Context(), aGrant(testID))
	wantFault(t, err, fault.Unavailable, "lost")
	_, err = w.Grant(t.Context(), aGrant(testID))
	must(t, err)
	if made[testID] != 2 {
		t.Errorf("the worker was asked %d times for two asks", made[testID])
	}
	// A stream that is cut does not look ended.
	k.give["Watch"] = []*machine.Machine{aMachine()}
	err = w.Watch(t.Context(), "a", testID, func(*machine.Machine) bool { cutting.cut(); return true })
	wantFault(t, err, fault.Unavailable, "lost")
	// The caller's own time is its own affair.
	slow := make(chan struct{})
	k.give["Grant"] = func(context.Context, lifecycle.Grant) (*machine.Machine, error) {
		<-slow
		return aMachine(), nil
	}
	fresh := c.worker(t, "g1", ln.Addr().String(), nil) // the first may not have noticed yet that all was cut
	short, done := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer done()
	_, err = fresh.Grant(short, aGrant(testID))
	wantFault(t, err, fault.Timeout, "deadline")
	close(slow)
}

// TestPanicAnswersItsRequestOnly: a question that breaks the worker breaks nothing else.
func TestPanicAnswersItsRequestOnly(t *testing.T) {
	k := newStub()
	w := far(t, k)
	k.give["Grant"] = func(context.Context, lifecycle.Grant) (*machine.Machine, error) { panic("a bug") }
	for range 2 { // the ask's turn has ended too
		_, err := w.Grant(t.Context(), aGrant(testID))
		wantFault(t, err, fault.Internal, "panic")
	}
	_, err := w.Record(t.Context())
	must(t, err)
}
