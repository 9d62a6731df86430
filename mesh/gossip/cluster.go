package gossip

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/soukhq/souk/core/broadcast"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/strangers"
)

// Cluster is one member's gossip. New builds it, Run runs it; all methods may be called from anywhere, before Run too.
//
// Its locks, outermost first: writer (who writes records of our own; held over signatures and the disk), mu (the
// registry; held for work in memory), and those of membership, roots, outbox, tree, keeper and signal, inside which
// no other is taken. What memberlist calls takes these last alone.
type Cluster struct {
	o        Options
	net      *transport
	seal     atomic.Pointer[sealer]
	ring     *memberlist.Keyring // nil: nothing is encrypted
	keys     atomic.Int64        // the generation of the keys
	keeper   *keeper
	members  *membership
	refusals refusals
	roots    roots
	odd      *slog.Logger // takes what anybody can cause

	announcer     *announcer
	dissemination *dissemination
	antiEntropy   *antiEntropy
	upkeep        *upkeep

	moved  *signal   // raised when anything changes: records, objects, members
	before addresses // of the members as an earlier life saved them; never changed

	ml      *memberlist.Memberlist // set when ready is closed
	ready   chan struct{}
	leaving atomic.Bool
	met     sync.Once
	contact chan struct{} // closed when another member has first told whom it knows
	loops   [loopCount]loop

	mu      sync.Mutex
	reg     *registry.Registry
	watches map[*Watch]bool
	cache
}

// New takes the sockets and reads what was saved. Begin comes next, then Run.
func New(o Options) (*Cluster, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	seal, err := newSealer(o.Keys)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, codeGossipOptions, "a gossip key cannot be used")
	}
	var ring *memberlist.Keyring
	if len(o.Keys) > 0 {
		if ring, err = memberlist.NewKeyring(o.Keys[1:], o.Keys[0]); err != nil {
			return nil, fault.Wrap(err, fault.Invalid, codeGossipOptions, "the gossip keys cannot be used")
		}
	}
	d, err := openDisk(o.Dir)
	if err != nil {
		return nil, err
	}
	c := &Cluster{o: o, ring: ring, keeper: newKeeper(d, d.saved, o.Log), before: d.saved.clone(),
		moved: newSignal(), odd: strangers.Few(o.Log, 20, time.Second),
		ready: make(chan struct{}), contact: make(chan struct{}), watches: map[*Watch]bool{}}
	c.announcer = &announcer{c: c, wake: newWake(), flushes: newWake(), contests: newWake()}
	c.antiEntropy = &antiEntropy{c: c, puller: cmp.Or[Puller](o.Puller, ownPuller{c}), wake: newWake()}
	c.upkeep = &upkeep{c: c, saves: newWake(), suspects: newWake()}
	c.members = newMembership(o.Self, d.saved.addresses, hooks{changed: c.moved.signalChange,
		joined:  func() { wakeLoop(c.antiEntropy.wake) },
		unknown: func() { wakeLoop(c.upkeep.saves) }, suspect: func() { wakeLoop(c.upkeep.suspects) }})
	c.dissemination = newDissemination(c)
	c.seal.Store(seal)
	c.keys.Store(int64(o.KeysGeneration))
	ro := o.Registry
	if ro.FirstIndex == 0 {
		ro.FirstIndex = uint64(time.Now().UnixMicro()) // beyond any index of an earlier life
	}
	ro.Signed = o.Verify != nil
	c.reg = registry.New(o.Self, ro)
	c.cache.resetTo(c.reg.Index())
	c.restoreObjects(d)
	if c.net, err = listenTransport(o.Bind, o.Advertise); err != nil {
		return nil, errors.Join(err, c.keeper.close())
	}
	c.net.pulls, c.net.member = c.servePull, c.members.isAt
	c.afterChange()
	return c, nil
}

// restoreObjects takes in the objects that were kept.
func (c *Cluster) restoreObjects(d *disk) {
	kept, refused := c.verifyDelta(registry.Delta{Objects: d.objects})
	d.objects = nil
	if _, err := c.reg.Merge(time.Now(), "", kept); err != nil && refused == nil {
		refused = err
	}
	if refused != nil {
		c.o.Log.Warn("not all objects that were kept are taken in", "err", refused)
		c.keeper.renewObjects(c.allObjects)
	}
}

// Addr returns host:port of this member's gossip, as others reach it.
func (c *Cluster) Addr() string { return c.net.advertise.String() }

func (c *Cluster) memberlistConfig() *memberlist.Config {
	k, conf := c.o.Knobs, memberlist.DefaultLANConfig()
	conf.Name, conf.Transport = string(c.o.Self), c.net
	conf.LogOutput = logWriter{c}
	d := delegate{c}
	conf.Delegate, conf.Events, conf.Ping, conf.Alive = d, d, d, d
	conf.Conflict, conf.Merge = d, d
	conf.ProbeInterval, conf.ProbeTimeout, conf.IndirectChecks = k.Probe, k.ProbeTimeout, k.Indirect
	conf.SuspicionMult, conf.SuspicionMaxTimeoutMult, conf.RetransmitMult = k.Suspicion, k.SuspicionMax, k.Retransmit
	conf.GossipInterval, conf.GossipNodes, conf.PushPullInterval = k.Gossip, k.Fanout, k.PushPull
	conf.TCPTimeout, conf.DeadNodeReclaimTime = 3*time.Second, time.Nanosecond
	// Then the dead are forgotten, as memberlist has it too, and whoever is alive all the same is heard again: a death
	// that was forged with the greatest incarnation there is cannot be outbid.
	conf.GossipToTheDeadTime = k.PushPull
	conf.EnableCompression, conf.HandoffQueueDepth, conf.UDPBufferSize = false, inboxSize, packetSize
	return conf
}

// Run carries on until ctx ends. It does not say goodbye: see Leave.
func (c *Cluster) Run(ctx context.Context) error {
	defer func() { _ = c.net.Shutdown() }()
	if err := c.announcer.beginEmpty(); err != nil {
		return err
	}
	c.net.startReading()
	conf := c.memberlistConfig()
	conf.Keyring = c.ring
	var err error
	if c.ml, err = memberlist.Create(conf); err != nil {
		return fault.Wrap(err, fault.Unavailable, codeGossip, "gossip does not start")
	}
	close(c.ready)
	var all sync.WaitGroup
	for i, x := range [loopCount]struct {
		name string
		run  func(context.Context, *loop)
	}{{"announce", c.announcer.run}, {"flush", c.announcer.broadcastAnnounced}, {"take in", c.dissemination.takeIn},
		{"resend", c.dissemination.resendUnacked}, {"synchronize", c.antiEntropy.pullDifferences}, {"reconnect",
			c.upkeep.reconnectLost},
		{"tend", c.upkeep.runUpkeep}, {"suspects", c.upkeep.askSuspects}} {
		c.loops[i].name = x.name
		all.Go(func() { x.run(ctx, &c.loops[i]) })
	}
	<-ctx.Done()
	err = c.ml.Shutdown()
	all.Wait()
	return errors.Join(err, c.upkeep.saveMembers(), c.keeper.close())
}

// Ready is closed when the member can join others.
func (c *Cluster) Ready() <-chan struct{} { return c.ready }

// Contact is closed when another member has told whom it knows, for the first time.
func (c *Cluster) Contact() <-chan struct{} { return c.contact }

// Alone reports whether nobody is known who could be another member.
func (c *Cluster) Alone() bool { return len(c.before.Gossip) == 0 && len(c.o.Peers) == 0 }

// Join makes us a member of the cluster that the addresses belong to. One that answers is enough.
func (c *Cluster) Join(ctx context.Context, addrs []string) error {
	select {
	case <-c.ready:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	n, err := c.ml.Join(addrs)
	if n == 0 && len(addrs) > 0 {
		return fault.Wrap(err, fault.Unavailable, codeJoin,
			"none of the %d addresses answers as a member of a cluster with our gossip key", len(addrs))
	}
	wakeLoop(c.antiEntropy.wake)
	return nil
}

// Exchange has another member, by chance, and this one tell each other who the members are, and where: memberlist does
// so by itself only every half minute. It does nothing where nobody is known to be alive.
func (c *Cluster) Exchange(ctx context.Context) error {
	addr := c.members.anyPeer()
	if addr == "" {
		return nil
	}
	return c.Join(ctx, []string{addr})
}

// Leave tells the others that this member goes on purpose, so that they need not find out.
func (c *Cluster) Leave(ctx context.Context) error {
	select {
	case <-c.ready:
	default:
		return nil
	}
	patience := 5 * time.Second
	if end, ok := ctx.Deadline(); ok {
		patience = max(time.Until(end), time.Millisecond)
	}
	c.leaving.Store(true)
	if err := errors.Join(c.ml.UpdateNode(patience/2), c.ml.Leave(patience/2)); err != nil {
		return fault.Wrap(err, fault.Timeout, codeLeave,
			"the goodbye may not have reached anybody; they will notice by themselves")
	}
	return nil
}

// afterChange is called with the lock after anything in the registry may have changed.
func (c *Cluster) afterChange() {
	c.roots.setOwnRoot(c.reg.Root())
	if c.reg.Contested() > 0 {
		wakeLoop(c.announcer.contests)
	}
	c.absorbChanges()
	c.moved.signalChange()
}

func newWake() chan struct{} { return make(chan struct{}, 1) }

// wakeLoop wakes a loop; one that was woken already looks at everything.
func wakeLoop(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Root returns one hash of all that this member knows: two members with one root know the same.
func (c *Cluster) Root() uint64 { return c.roots.now.Load() }

// Stats counts what this member has moved since it began.
type Stats struct {
	Sent     int64 `json:"sent_bytes"` // in packets and streams
	Received int64 `json:"received_bytes"`
	Dropped  int64 `json:"dropped"` // broadcasts that came while too many waited
	Queued   int   `json:"queued"`  // packets of broadcasts that are not acknowledged
	// what came and was not believed, by why
	Refused map[string]int64 `json:"refused,omitempty"`

	Broadcast broadcast.Stats `json:"broadcast"`
}

// Stats returns the counts.
func (c *Cluster) Stats() Stats {
	counts, waiting := c.dissemination.spreadStats()
	return Stats{Broadcast: counts, Sent: c.net.sent.Load(), Received: c.net.got.Load(),
		Dropped: c.dissemination.dropped.Load(), Queued: waiting, Refused: c.refusals.all()}
}
