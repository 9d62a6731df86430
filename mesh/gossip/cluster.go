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

// Cluster is one member's gossip. New builds it, Run runs it; all methods may be called from any goroutine, and before
// Run.
//
// Its locks, outermost first: writer (serializes writing our own records; held during signing and disk writes), mu (the
// registry; held for work in memory), and those of membership, roots, outbox, tree, keeper and signal; code that holds
// one of these takes no further lock. Callbacks of memberlist take only locks of this last group.
type Cluster struct {
	o        Options
	net      *transport
	seal     atomic.Pointer[sealer]
	ring     *memberlist.Keyring // nil: nothing is encrypted
	keys     atomic.Int64        // generation of the gossip keys
	keeper   *keeper
	members  *membership
	refusals refusals
	roots    roots
	odd      *slog.Logger // rate-limited log for events that strangers can cause

	announcer     *announcer
	dissemination *dissemination
	antiEntropy   *antiEntropy
	upkeep        *upkeep

	moved  *signal   // raised when anything changes: records, objects, members
	before addresses // the members' addresses as saved before this process started; never changed

	ml      *memberlist.Memberlist // set before ready is closed
	ready   chan struct{}
	leaving atomic.Bool
	met     sync.Once
	contact chan struct{} // closed when another member has first sent its member list
	loops   [loopCount]loop

	mu      sync.Mutex
	reg     *registry.Registry
	watches map[*Watch]bool
	cache
}

// New opens the sockets and reads the saved files. Call Begin next, then Run.
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
		ro.FirstIndex = uint64(time.Now().UnixMicro()) // greater than any index of an earlier process
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

// restoreObjects merges the saved objects into the registry.
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
	// After this time memberlist forgets dead members and hears those again that are alive after all. Without it, a
	// forged death with the greatest possible incarnation could never be refuted.
	conf.GossipToTheDeadTime = k.PushPull
	conf.EnableCompression, conf.HandoffQueueDepth, conf.UDPBufferSize = false, inboxSize, packetSize
	return conf
}

// Run runs the gossip until ctx ends. It sends no goodbye: see Leave.
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

// Contact is closed when another member has sent its member list for the first time.
func (c *Cluster) Contact() <-chan struct{} { return c.contact }

// Alone reports whether this member knows no other: none was saved, and Options.Peers is empty.
func (c *Cluster) Alone() bool { return len(c.before.Gossip) == 0 && len(c.o.Peers) == 0 }

// Join joins the cluster that the addresses belong to. One address that answers is enough.
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

// Exchange exchanges member lists with one random member; memberlist does so by itself only every half minute. It does
// nothing if no other member is known to be alive.
func (c *Cluster) Exchange(ctx context.Context) error {
	addr := c.members.anyPeer()
	if addr == "" {
		return nil
	}
	return c.Join(ctx, []string{addr})
}

// Leave announces that this member leaves on purpose, so that the others need not detect it.
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
			"the message that this member leaves may not have reached the others; they will notice its absence by "+
				"themselves")
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

// wakeLoop wakes a loop. If a wake-up is pending already, it does nothing: the loop then handles everything that is
// new.
func wakeLoop(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Root returns one hash of all that this member knows: two members with one root know the same.
func (c *Cluster) Root() uint64 { return c.roots.now.Load() }

// Stats counts this member's traffic since it began.
type Stats struct {
	Sent     int64 `json:"sent_bytes"` // in packets and streams
	Received int64 `json:"received_bytes"`
	Dropped  int64 `json:"dropped"` // broadcasts dropped because the inbox was full
	Queued   int   `json:"queued"`  // broadcast packets not acknowledged yet
	// messages and records refused, by error code
	Refused map[string]int64 `json:"refused,omitempty"`

	Broadcast broadcast.Stats `json:"broadcast"`
}

// Stats returns the counts.
func (c *Cluster) Stats() Stats {
	counts, waiting := c.dissemination.spreadStats()
	return Stats{Broadcast: counts, Sent: c.net.sent.Load(), Received: c.net.got.Load(),
		Dropped: c.dissemination.dropped.Load(), Queued: waiting, Refused: c.refusals.all()}
}
