package broker

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"io"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/fault"
)

// Options are what a broker is made of. Log and Unfit may be nil; all else must be set.
type Options struct {
	Fleet     Fleet
	Directory Directory
	Apps      Apps
	Policies  Policies
	Funds     Funds
	Claims    Claims
	Log       Log            // nil: decisions are not recorded
	Region    cluster.Region // the nearest for a launch that names none
	Rand      io.Reader
	// Agree waits until the reachable members know what this one knows; worker says that a worker has changed, too.
	// nil: there is no other member.
	Agree func(ctx context.Context, worker bool)
	Unfit func() error // why no machine may be made through this process; nil: it always may
}

// Broker places machines. Its methods may be called from many goroutines.
type Broker struct {
	fleet     Fleet
	directory Directory
	apps      Apps
	policies  Policies
	funds     Funds
	claims    Claims
	log       Log
	region    cluster.Region
	rand      io.Reader
	unfit     func() error
	agree     func(ctx context.Context, worker bool)

	metrics    *metrics
	decisions  decisionIDs
	creates    *keyLocks // one create at a time for each machine's id
	strategies map[string]Strategy
	gang       Strategy
	spread     Strategy // for one machine that must be spread, if no strategy is named

	// Background work that outlives its request: releasing holds of a race's losers, and batches.
	life   context.Context //nolint:containedctx // it is the broker's own life, which Close ends
	end    context.CancelFunc
	mu     sync.Mutex
	closed bool // no task may begin
	tasks  sync.WaitGroup
}

// New makes a broker. Close ends it.
func New(o Options) *Broker {
	b := &Broker{fleet: o.Fleet, directory: o.Directory, apps: o.Apps, policies: o.Policies, funds: o.Funds,
		claims: o.Claims, log: o.Log, region: o.Region, rand: o.Rand, unfit: o.Unfit, metrics: newMetrics(),
		creates: newKeyLocks()}
	if b.unfit == nil {
		b.unfit = func() error { return nil }
	}
	if b.agree = o.Agree; b.agree == nil {
		b.agree = func(context.Context, bool) {}
	}
	b.life, b.end = context.WithCancel(context.Background())
	b.strategies = map[string]Strategy{
		Direct: direct{b}, Race: race{b}, Shared: shared{b},
		Batching:  newBatcher(b, Batching, market.LargestFirst),
		FairShare: newBatcher(b, FairShare, b.orderByShares),
	}
	b.gang, b.spread = gang{b}, &spreads{Broker: b, apps: map[string]*appSpread{}}
	return b
}

// closeGrace is how long Close lets running work end by itself.
const closeGrace = 5 * time.Second

// Close waits for background work, and cancels it after closeGrace. The broker must not be used afterwards.
func (b *Broker) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	late := time.AfterFunc(closeGrace, b.end)
	b.tasks.Wait()
	late.Stop()
	b.end()
}

// beginWork starts work that Close waits for; false when the broker is closed.
func (b *Broker) beginWork(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.tasks.Go(f)
	return true
}

func (b *Broker) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

func closingError() error {
	return fault.New(fault.Unavailable, codeClosing, "this souk is ending; ask another member, or again in a moment")
}

// newHoldToken draws a name that no other buyer's hold has.
func (b *Broker) newHoldToken() string {
	var raw [12]byte
	if _, err := io.ReadFull(b.rand, raw[:]); err != nil {
		panic("broker: the source of chance failed: " + err.Error())
	}
	return hex.EncodeToString(raw[:])
}

// entropy draws numbers from a reader. It panics when the reader fails, as machine.NewID does.
type entropy struct{ r io.Reader }

// Uint64 draws 64 bits.
func (e entropy) Uint64() uint64 {
	var b [8]byte
	if _, err := io.ReadFull(e.r, b[:]); err != nil {
		panic("broker: the source of chance failed: " + err.Error())
	}
	return binary.BigEndian.Uint64(b[:])
}

// clipText returns the first n bytes of what others sent, for a sentence that names it.
func clipText(s string, n int) string { return s[:min(n, len(s))] }
