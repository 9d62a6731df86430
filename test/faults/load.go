package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli/check/history"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

const (
	app     = "load"
	slotMB  = 256             // memory of a machine
	askTime = 5 * time.Second // timeout of one try
	maxRest = time.Second     // between tries
	holdFor = 5 * time.Second
	soon    = 500 * time.Millisecond // a client waits this long for a launch before it goes on with other things
)

// load is the clients at work.
type load struct {
	ms      []*member
	o       *Options
	rec     *history.Recorder
	command []string // command of each machine
	soon    time.Duration
	stop    chan struct{} // closed: no new calls
	until   time.Time     // set before stop is closed: when calls without an answer are given up
	wg      sync.WaitGroup
	count   atomic.Int64 // launches
	mu      sync.Mutex
	odd     []string
}

func (l *load) stopped() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// over reports whether to give up unanswered calls, and begin no others.
func (l *load) over(ctx context.Context) bool {
	return ctx.Err() != nil || l.stopped() && time.Now().After(l.until)
}

// work starts the clients.
func (l *load) work(ctx context.Context) {
	for n := range l.o.Clients {
		c := &caller{
			load:   l,
			number: n,
			rng:    rand.New(rand.NewPCG(l.o.Seed, uint64(n)+100)),
			slow:   make(chan bool, maxSlow),
			late:   make(chan history.Op, maxGoing),
		}
		l.wg.Go(func() {
			c.work(ctx)
			c.calls.Wait()
		})
	}
}

// caller is one client, which makes one call after another. Calls that are not answered soon go on in the background:
// those to a cut-off side get no answer before the repair, and the client must call the other side meanwhile.
type caller struct {
	*load
	number int
	rng    *rand.Rand
	made   int
	live   []history.Op // machines it made and has not destroyed, oldest first
	slow   chan bool    // semaphore of destroys in the background
	calls  sync.WaitGroup
	late   chan history.Op // results of launches in the background
	// launches in the background, at most maxGoing: the capacity of late, so that none blocks
	going int
}

// Bounds of a client's background calls.
const (
	maxGoing = 48
	maxSlow  = 48
)

// work launches, and destroys what it launched, until it is told to stop.
func (c *caller) work(ctx context.Context) {
	// a fifth more than there is room for, so that some are refused
	share := max(1, c.o.Slots*len(c.ms)*6/5/c.o.Clients)
	for !c.stopped() && ctx.Err() == nil {
		c.takeLate()
		many := len(c.live) >= share || c.count.Load() >= int64(c.o.Most)
		if len(c.live) > 0 && len(c.slow) < maxSlow && (many || c.rng.IntN(4) == 0) {
			i := c.rng.IntN(len(c.live))
			m := c.live[i]
			c.live = slices.Delete(c.live, i, i+1)
			c.destroy(ctx, m)
			continue
		}
		if many || c.going == maxGoing {
			c.pause(ctx, 20*time.Millisecond)
			continue
		}
		if c.o.Rate > 0 {
			c.pause(ctx, time.Duration(2*c.rng.Float64()*float64(c.o.Clients)/c.o.Rate*float64(time.Second)))
		}
		c.count.Add(1)
		c.launch(ctx)
	}
}

// takeLate reads the results of launches in the background.
func (c *caller) takeLate() {
	for {
		select {
		case m := <-c.late:
			c.keep(m)
		default:
			return
		}
	}
}

func (c *caller) keep(m history.Op) {
	if c.going--; m.Outcome == history.Yes {
		c.live = append(c.live, m)
	}
}

// launch launches at a random member, and waits for the result for a while. Every few launches use a hold at one
// worker, redeemed there; some machines get a lease.
func (c *caller) launch(ctx context.Context) {
	c.made++
	at := c.ms[c.rng.IntN(len(c.ms))]
	one := &launching{caller: c, at: at, number: c.made, rng: rand.New(rand.NewPCG(c.rng.Uint64(), c.rng.Uint64()))}
	one.ofImage = one.rng.IntN(100) < c.o.Images
	c.going++
	c.calls.Go(func() { c.late <- one.run(ctx) })
	select {
	case m := <-c.late: // this one's answer, or an earlier one's
		if c.keep(m); m.Outcome != history.Yes {
			c.pause(ctx, time.Duration(20+c.rng.IntN(80))*time.Millisecond)
		}
	case <-time.After(c.soon):
	}
}

func (c *caller) pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// ask repeats a call at one member until it is answered, or until the end of the run. An unanswered call may have been
// carried out. A client repeats a create at the gateway that it asked first.
func (c *caller) ask(ctx context.Context, op *history.Op, do func(ctx context.Context) error) {
	op.Client, op.Call, op.App = c.number, time.Now().UnixNano(), app
	if c.over(ctx) {
		op.Outcome = history.No
		return // the run ends: a call that was never sent is not in the history
	}
	for rest := 50 * time.Millisecond; ; rest = min(2*rest, maxRest) {
		op.Tries++
		try, cancel := context.WithTimeout(ctx, askTime)
		err := do(try)
		cancel()
		op.Return = time.Now().UnixNano()
		switch f := fault.As(err); {
		case err == nil:
			op.Outcome = history.Yes
		case unanswered(f):
			if !c.over(ctx) {
				c.pause(ctx, rest/2+rand.N(rest)) // not from the seed: c.rng is not safe for goroutines
				continue
			}
			op.Outcome, op.Code = history.Unsure, f.Code
		case op.Tries > 1 && op.Kind == history.ReleaseLease:
			op.Outcome = history.Yes // an earlier try was carried out, but its answer was lost
		case op.Tries > 1 && op.Kind == history.Lease:
			// this client may hold it itself, by a try whose answer was lost
			op.Outcome, op.Code = history.Unsure, f.Code
		case doubtful(f):
			op.Outcome, op.Code = history.No, f.Code
			if op.Tries > 1 { // says nothing about earlier tries
				op.Outcome = history.Unsure
			}
		default:
			op.Outcome, op.Code = history.No, f.Code
			if f.Kind != fault.Exhausted && op.Kind != history.Lease {
				// a second taker must get this answer
				c.oddAnswer(fmt.Sprintf("%s by %s: %s", op.Kind, op.Gateway, f.Error()))
			}
		}
		c.rec.Add(*op)
		return
	}
}

// unanswered reports whether the call may have been carried out, or may yet be. A conflict with a call of this client
// that is still under way counts, too.
func unanswered(f *fault.Error) bool {
	return f != nil &&
		(f.Kind == fault.Unavailable || f.Kind == fault.Timeout || f.Kind == fault.Internal || f.Code == fault.CodeBusy)
}

// doubtful reports whether the member or worker starts nothing, since it has a twin.
func doubtful(f *fault.Error) bool { return f.Code == fault.CodeTwin || f.Code == lifecycle.CodeHalted }

func (c *caller) oddAnswer(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.odd) < 5 {
		c.odd = append(c.odd, text)
	}
}

func (l *load) launchOf(id string, ofImage bool) *machine.Launch {
	c := &machine.Config{Image: "souk/host", Init: machine.Init{Exec: l.command},
		Guest:   &machine.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: slotMB},
		Restart: &machine.Restart{Policy: "always"}}
	if ofImage {
		c.Image, c.Init.Exec = imageName, containerCommand()
	}
	return &machine.Launch{ID: id, Config: c}
}

// begun returns an error for a create that is not done: it may yet fail, and then there is no machine.
func begun(m *machine.Machine) error {
	if m.Begun == nil {
		return nil
	}
	return fault.New(fault.Timeout, fault.CodeBegun, "machine %s is not up yet", m.ID)
}

type reader struct{ rng *rand.Rand }

// Read never fails.
func (r reader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r.rng.Uint32())
	}
	return len(p), nil
}

// launching is one launch of a client.
type launching struct {
	*caller
	at      *member
	number  int
	rng     *rand.Rand
	ofImage bool
}

func (l *launching) run(ctx context.Context) history.Op {
	made := history.Op{}
	if l.rng.IntN(5) == 0 {
		made = l.holdAndGrant(ctx)
	} else {
		made = l.create(ctx)
	}
	if made.Outcome == history.Yes && l.rng.IntN(4) == 0 {
		l.lease(ctx, made)
	}
	return made
}

// id draws a machine's id before the first request.
func (l *launching) id() string { return machine.NewID(reader{l.rng}) }

func (l *launching) create(ctx context.Context) history.Op {
	op := history.Op{Kind: history.Create, Gateway: l.at.id}
	m := l.launchOf("", l.ofImage)
	o := client.LaunchOptions{Key: fmt.Sprintf("k-%d-%d-%d", l.o.Seed, l.caller.number, l.number), NewKey: true}
	if l.caller.number%5 == 0 {
		// with an own id: a gateway refuses it while it cannot ask every worker whether the id is in use
		m, o = l.launchOf(l.id(), l.ofImage), client.LaunchOptions{}
		op.Machine = m.ID
	}
	l.ask(ctx, &op, func(ctx context.Context) error {
		m, err := l.at.cl.Launch(ctx, app, m, o)
		if err == nil {
			op.Machine, op.Worker, op.Instance = m.ID, m.Worker, m.InstanceID
			err = begun(m)
		}
		return err
	})
	return op
}

// holdAndGrant holds room at a worker, and then redeems the hold, releases it, or lets it expire.
func (l *launching) holdAndGrant(ctx context.Context) history.Op {
	at, w := l.at, cluster.WorkerID(l.ms[l.rng.IntN(len(l.ms))].id)
	bid := api.Bid{
		App:    app,
		Launch: l.launchOf(l.id(), l.ofImage),
		Hold:   fmt.Sprintf("h-%d-%d-%d", l.o.Seed, l.caller.number, l.number),
		TTL:    holdFor.Seconds(),
	}
	hold := history.Op{Kind: history.Hold, Gateway: at.id, Machine: bid.Launch.ID, Worker: w, Token: bid.Hold}
	l.ask(ctx, &hold, func(ctx context.Context) error {
		h, err := at.cl.Hold(ctx, w, bid)
		hold.Expires = h.Expires.UnixNano()
		return err
	})
	if hold.Outcome != history.Yes {
		return hold
	}
	switch l.rng.IntN(4) {
	case 0:
		op := history.Op{Kind: history.Release, Gateway: at.id, Worker: w, Token: bid.Hold}
		l.ask(ctx, &op, func(ctx context.Context) error { return at.cl.ReleaseHold(ctx, w, bid.Hold) })
		op.Outcome = history.No // there is no machine
		return op
	case 1:
		return history.Op{Outcome: history.No} // the hold expires by itself
	}
	op := history.Op{Kind: history.Create, Gateway: at.id, Machine: bid.Launch.ID, Worker: w, Token: bid.Hold}
	l.ask(ctx, &op, func(ctx context.Context) error {
		m, err := at.cl.GrantAt(ctx, w, bid)
		if err == nil {
			op.Instance = m.InstanceID
			err = begun(m)
		}
		return err
	})
	return op
}

// lease takes a lease, checks that no one else can take it, and releases it.
func (l *launching) lease(ctx context.Context, of history.Op) {
	at := l.at
	take := func() history.Op {
		op := history.Op{Kind: history.Lease, Gateway: at.id, Machine: of.Machine, Worker: of.Worker}
		l.ask(ctx, &op, func(ctx context.Context) error {
			x, err := at.cl.TakeLease(ctx, app, of.Machine, "", time.Hour)
			op.Nonce = x.Nonce
			return err
		})
		return op
	}
	first := take()
	if first.Outcome != history.Yes {
		return
	}
	at = l.ms[l.rng.IntN(len(l.ms))]
	second := take()
	if second.Outcome == history.Yes {
		return // the model reports violations
	}
	op := history.Op{
		Kind:    history.ReleaseLease,
		Gateway: at.id,
		Machine: of.Machine,
		Worker:  of.Worker,
		Nonce:   first.Nonce,
	}
	l.ask(ctx, &op, func(ctx context.Context) error { return at.cl.ReleaseLease(ctx, app, of.Machine, first.Nonce) })
}

// destroy destroys a machine in the background. If one member does not answer it usually asks another; in half of the
// cases the first is the machine's own member.
func (c *caller) destroy(ctx context.Context, m history.Op) {
	rng := rand.New(rand.NewPCG(c.rng.Uint64(), c.rng.Uint64()))
	at := c.ms[rng.IntN(len(c.ms))]
	if i := slices.IndexFunc(c.ms, func(x *member) bool { return x.id == string(m.Worker) }); i >= 0 &&
		rng.IntN(2) == 0 {
		at = c.ms[i]
	}
	c.slow <- true
	c.calls.Go(func() {
		c.destroyNow(ctx, m, at, rng)
		<-c.slow
	})
}

func (c *caller) destroyNow(ctx context.Context, m history.Op, at *member, rng *rand.Rand) {
	op := history.Op{Kind: history.Destroy, Gateway: at.id, Machine: m.Machine, Worker: m.Worker}
	c.ask(ctx, &op, func(ctx context.Context) error {
		if op.Tries > 1 && rng.IntN(4) > 0 {
			at = c.ms[rng.IntN(len(c.ms))]
			op.Gateway = at.id
		}
		_, err := at.cl.Destroy(ctx, app, m.Machine, "", true)
		if fault.CodeOf(err) == fault.CodeMachineNotFound && op.Tries > 1 {
			return nil // a try before was carried out: what it answered was lost
		}
		return err
	})
}
