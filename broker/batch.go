package broker

import (
	"context"
	"sync"
	"time"

	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait"
)

// batcher gathers purchases and has them placed together. The first that comes leads: it waits for market.Gather, takes
// the purchases that have come meanwhile, and places them; later ones join the next batch.
type batcher struct {
	*Broker
	name  string
	order market.Order
	// together is called before purchases are placed together; release afterwards. nil: nothing is.
	together func(ctx context.Context, list []*Purchase) (release func(), err error)

	mu      sync.Mutex
	waiting []*waiting
	leading bool
}

func newBatcher(b *Broker, name string, order market.Order) *batcher {
	return &batcher{Broker: b, name: name, order: order}
}

// Buy places the one machine of an order with whatever else comes in time. The error is Exhausted "busy" when
// market.Backlog machines wait already.
func (s *batcher) Buy(_ context.Context, o *Order) error {
	w := &waiting{p: o.Purchases[0], settled: make(chan struct{})}
	if err := s.joinBatch(w); err != nil {
		return err
	}
	<-w.settled
	return w.err
}

func (s *batcher) joinBatch(w *waiting) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) >= market.Backlog {
		return &fault.Error{Kind: fault.Exhausted, Code: fault.CodeBusy, Op: "broker.batching", RetryAfter: time.Second,
			Text: "4096 machines wait to be placed already, the most that are kept waiting; try again in a second"}
	}
	if !s.leading && !s.beginWork(s.leadBatches) {
		return closingError()
	}
	s.leading = true
	s.waiting = append(s.waiting, w)
	return nil
}

// leadBatches places batch after batch until nothing waits.
func (s *batcher) leadBatches() {
	for {
		_ = wait.For(s.life, market.Gather)
		s.mu.Lock()
		list := s.waiting
		s.waiting = nil
		s.leading = len(list) > 0
		s.mu.Unlock()
		if len(list) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(s.life, createTimeout)
		for _, same := range byPolicy(list) {
			s.placeBatch(ctx, same)
		}
		cancel()
	}
}

// placeBatch places purchases of one policy together.
func (s *batcher) placeBatch(ctx context.Context, list []*waiting) {
	if s.together != nil {
		purchases := make([]*Purchase, len(list))
		for i, w := range list {
			purchases[i] = w.p
		}
		release, err := s.together(ctx, purchases)
		if err != nil {
			for _, w := range list {
				w.err = err
				close(w.settled)
			}
			return
		}
		defer release()
	}
	t := transaction{Broker: s.Broker, name: s.name, order: s.order, list: list, unnamed: s.together != nil}
	t.placeAll(ctx, s.fleet.View(ctx))
}

// byPolicy splits purchases by their policy, which ranks a whole transaction.
func byPolicy(list []*waiting) [][]*waiting {
	at := map[string]int{}
	var out [][]*waiting
	for _, w := range list {
		i, ok := at[w.p.Policy.Name]
		if !ok {
			i = len(out)
			at[w.p.Policy.Name] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], w)
	}
	return out
}
