package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/testcluster/history"
)

const (
	app     = "load"
	slotMB  = 256             // memory of a machine
	askTime = 5 * time.Second // until a client gives one try up
	holdFor = 5 * time.Second
)

// load is the clients at work.
type load struct {
	ms    []*member
	o     *Options
	rec   *history.Recorder
	stop  chan struct{} // no new calls
	until time.Time     // after stop: when calls without an answer are given up
	wg    sync.WaitGroup
	count atomic.Int64 // launches
	mu    sync.Mutex
	odd   []string
}

func (l *load) stopped() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// work starts the clients.
func (l *load) work(ctx context.Context) {
	for n := range l.o.Clients {
		c := &caller{load: l, number: n, rng: rand.New(rand.NewPCG(l.o.Seed, uint64(n)+100)), slow: make(chan bool, maxSlow), late: make(chan history.Op, maxGoing)}
		l.wg.Go(func() {
			c.work(ctx)
			c.calls.Wait()
		})
	}
}

// caller is one client: it asks one thing after the other.
type caller struct {
	*load
	number int
	rng    *rand.Rand
	made   int
	mine   []history.Op // machines it made and has not destroyed, oldest first
	slow   chan bool    // calls that go on while it does something else, at most maxSlow
	calls  sync.WaitGroup
	late   chan history.Op // answers of creates that went on in the background
	going  int             // how many do, at most maxGoing
}

// maxGoing bounds the creates of one client that have no answer yet, and soon is how long it waits for one before it does
// something else: a create that may have been granted at the other side of a cut is not answered before that is mended.
const (
	maxGoing = 8
	soon     = 500 * time.Millisecond
)

// maxSlow bounds the calls of one client that go on in the background: of a machine that is cut off there is no answer for long.
const maxSlow = 4

// work launches, and destroys what it launched, until it is told to stop. Every few launches go the long way: a hold at one
// worker, redeemed there, and a lease on what came of it.
func (c *caller) work(ctx context.Context) {
	share := max(1, c.o.Slots*len(c.ms)*6/5/c.o.Clients) // a fifth more than there is room for, so that some are refused
	for !c.stopped() && ctx.Err() == nil {
		c.takeLate(c.going >= maxGoing)
		if len(c.mine) > 0 && (len(c.mine) >= share || c.rng.IntN(4) == 0 || c.count.Load() >= int64(c.o.Most)) {
			i := c.rng.IntN(len(c.mine))
			m := c.mine[i]
			c.mine = slices.Delete(c.mine, i, i+1)
			c.destroy(ctx, m, c.some(m))
			continue
		}
		if c.count.Add(1) > int64(c.o.Most) {
			c.pause(ctx, 20*time.Millisecond)
			continue
		}
		at := c.ms[c.rng.IntN(len(c.ms))]
		var made history.Op
		if c.rng.IntN(5) == 0 {
			made = c.holdAndGrant(ctx, at)
		} else if made = c.createSoon(ctx, at); made.Outcome == "" {
			continue // it goes on in the background
		}
		if made.Outcome != history.Yes {
			c.pause(ctx, time.Duration(20+c.rng.IntN(80))*time.Millisecond)
			continue
		}
		if c.rng.IntN(4) == 0 {
			c.lease(ctx, at, made)
		}
		c.mine = append(c.mine, made)
	}
}

func (c *caller) pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// ask repeats a call at one member until it is answered, or until the end of all. What nobody answered may have been done.
// A client that repeats a create goes to the gateway that it asked first: gateway.Sharing.
func (c *caller) ask(ctx context.Context, op *history.Op, do func(ctx context.Context) error) {
	op.Client, op.Call, op.App = c.number, time.Now().UnixNano(), app
	for {
		op.Tries++
		try, cancel := context.WithTimeout(ctx, askTime)
		err := do(try)
		cancel()
		op.Return = time.Now().UnixNano()
		switch f := fault.As(err); {
		case err == nil:
			op.Outcome = history.Yes
		case unanswered(f):
			if ctx.Err() == nil && (!c.stopped() || time.Now().Before(c.until)) {
				c.pause(ctx, time.Duration(50+rand.IntN(200))*time.Millisecond) // of no seed: a caller's chance is not for several goroutines
				continue
			}
			op.Outcome, op.Code = history.Unsure, f.Code
		case op.Tries > 1 && op.Kind == history.ReleaseLease:
			op.Outcome = history.Yes // a try before was carried out: what it answered was lost
		case op.Tries > 1 && op.Kind == history.Lease:
			op.Outcome, op.Code = history.Unsure, f.Code // the holder may be we ourselves, by a try whose answer was lost
		default:
			op.Outcome, op.Code = history.No, f.Code
			if f.Kind != fault.Exhausted && op.Kind != history.Lease { // that somebody has it is what the second is to be told
				c.oddAnswer(fmt.Sprintf("%s by %s: %s", op.Kind, op.Gateway, f.Error()))
			}
		}
		c.rec.Add(*op)
		return
	}
}

// unanswered says that the call may have been carried out, or may yet be. So is a conflict with a call of our own that goes on.
func unanswered(f *fault.Error) bool {
	return f != nil && (f.Kind == fault.Unavailable || f.Kind == fault.Timeout || f.Kind == fault.Internal || f.Code == "busy")
}

func (c *caller) oddAnswer(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.odd) < 5 {
		c.odd = append(c.odd, text)
	}
}

func launchOf(id string) *machine.Launch {
	return &machine.Launch{ID: id, Config: &machine.Config{Image: "souk/host", Init: machine.Init{Exec: []string{"/bin/sleep", "1000000"}},
		Guest: &machine.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: slotMB}, Restart: &machine.Restart{Policy: "always"}}}
}

// id draws the id of a machine, before anybody is asked for it.
func (c *caller) id() string { return machine.NewID(reader{c.rng}) }

type reader struct{ rng *rand.Rand }

// Read never fails.
func (r reader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r.rng.Uint32())
	}
	return len(p), nil
}

// takeLate takes in what creates in the background made; with wait it waits for one first, or for the end.
func (c *caller) takeLate(wait bool) {
	keep := func(m history.Op) {
		if c.going--; m.Outcome == history.Yes {
			c.mine = append(c.mine, m)
		}
	}
	if wait {
		select {
		case m := <-c.late:
			keep(m)
		case <-c.stop:
		}
	}
	for {
		select {
		case m := <-c.late:
			keep(m)
		default:
			return
		}
	}
}

// createSoon creates, and gives what came of it, or nothing when that takes long.
func (c *caller) createSoon(ctx context.Context, at *member) history.Op {
	create := c.create(at)
	c.going++
	c.calls.Go(func() { c.late <- create(ctx) })
	select {
	case m := <-c.late: // this one's answer, or an earlier one's
		c.going--
		return m
	case <-time.After(soon):
		return history.Op{}
	}
}

// create chooses what is to be created, and gives what does it.
func (c *caller) create(at *member) func(ctx context.Context) history.Op {
	op := history.Op{Kind: history.Create, Gateway: at.id}
	c.made++
	l, o := launchOf(""), client.LaunchOptions{Key: fmt.Sprintf("k-%d-%d-%d", c.o.Seed, c.number, c.made)}
	if c.number%5 == 0 { // a gateway cannot know that nobody has this id while it cannot ask everybody, and so says
		l, o = launchOf(c.id()), client.LaunchOptions{}
		op.Machine = l.ID
	}
	return func(ctx context.Context) history.Op {
		c.ask(ctx, &op, func(ctx context.Context) error {
			m, err := at.cl.Launch(ctx, app, l, o)
			if err == nil {
				op.Machine, op.Worker, op.Instance = m.ID, m.Worker, m.InstanceID
			}
			return err
		})
		return op
	}
}

// holdAndGrant has a worker hold room, and then either redeems the hold, gives it back, or lets it end.
func (c *caller) holdAndGrant(ctx context.Context, at *member) history.Op {
	w := cluster.WorkerID(c.ms[c.rng.IntN(len(c.ms))].id)
	c.made++
	bid := client.Bid{App: app, Launch: launchOf(c.id()), Hold: fmt.Sprintf("h-%d-%d-%d", c.o.Seed, c.number, c.made), TTL: holdFor.Seconds()}
	hold := history.Op{Kind: history.Hold, Gateway: at.id, Machine: bid.Launch.ID, Worker: w, Token: bid.Hold}
	c.ask(ctx, &hold, func(ctx context.Context) error {
		h, err := at.cl.Hold(ctx, w, bid)
		hold.Expires = h.Expires.UnixNano()
		return err
	})
	if hold.Outcome != history.Yes {
		return hold
	}
	switch c.rng.IntN(4) {
	case 0:
		op := history.Op{Kind: history.Release, Gateway: at.id, Worker: w, Token: bid.Hold}
		c.ask(ctx, &op, func(ctx context.Context) error { return at.cl.ReleaseHold(ctx, w, bid.Hold) })
		op.Outcome = history.No // there is no machine
		return op
	case 1:
		return history.Op{Outcome: history.No} // it ends by itself
	}
	op := history.Op{Kind: history.Create, Gateway: at.id, Machine: bid.Launch.ID, Worker: w, Token: bid.Hold}
	c.ask(ctx, &op, func(ctx context.Context) error {
		m, err := at.cl.GrantAt(ctx, w, bid)
		if err == nil {
			op.Instance = m.InstanceID
		}
		return err
	})
	return op
}

// lease takes a lease, sees that nobody else can, and gives it back.
func (c *caller) lease(ctx context.Context, at *member, of history.Op) {
	take := func() history.Op {
		op := history.Op{Kind: history.Lease, Gateway: at.id, Machine: of.Machine, Worker: of.Worker}
		c.ask(ctx, &op, func(ctx context.Context) error {
			l, err := at.cl.TakeLease(ctx, app, of.Machine, "", time.Hour)
			op.Nonce = l.Nonce
			return err
		})
		return op
	}
	first := take()
	if first.Outcome != history.Yes {
		return
	}
	at = c.ms[c.rng.IntN(len(c.ms))]
	second := take()
	if second.Outcome == history.Yes {
		return // the model says what is wrong
	}
	op := history.Op{Kind: history.ReleaseLease, Gateway: at.id, Machine: of.Machine, Worker: of.Worker, Nonce: first.Nonce}
	c.ask(ctx, &op, func(ctx context.Context) error { return at.cl.ReleaseLease(ctx, app, of.Machine, first.Nonce) })
}

// some gives a member to ask about a machine: its own, or any.
func (c *caller) some(of history.Op) *member {
	at := c.ms[c.rng.IntN(len(c.ms))]
	if c.rng.IntN(2) == 0 {
		for _, m := range c.ms {
			if m.id == string(of.Worker) {
				at = m
			}
		}
	}
	return at
}

// destroy destroys, in the background unless too much goes on there already.
func (c *caller) destroy(ctx context.Context, m history.Op, at *member) {
	c.slow <- true
	c.calls.Go(func() {
		c.destroyNow(ctx, m, at)
		<-c.slow
	})
}

func (c *caller) destroyNow(ctx context.Context, m history.Op, at *member) {
	op := history.Op{Kind: history.Destroy, Gateway: at.id, Machine: m.Machine, Worker: m.Worker}
	c.ask(ctx, &op, func(ctx context.Context) error {
		err := at.cl.Destroy(ctx, app, m.Machine, "", true)
		if fault.CodeOf(err) == "machine_not_found" && op.Tries > 1 {
			return nil // a try before was carried out: what it answered was lost
		}
		return err
	})
}
