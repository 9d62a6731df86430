package gossip

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/registry"
)

// Cluster is one member's gossip. New builds it, Run runs it; all methods may be called from anywhere, before Run too.
type Cluster struct {
	o      Options
	net    *transport
	seal   atomic.Pointer[sealer]
	ring   *memberlist.Keyring // nil: nothing is encrypted
	keys   atomic.Int64        // the generation of the keys
	puller Puller
	disk   *disk

	ml       *memberlist.Memberlist // set when ready is closed
	ready    chan struct{}
	queue    *memberlist.TransmitLimitedQueue
	inbox    chan []byte
	suspects chan cluster.WorkerID
	toFlush  chan struct{}
	toSync   chan struct{}
	toSave   chan struct{}
	toDoubt  chan struct{}
	root     atomic.Uint64 // of the registry, to be read without the lock
	dropped  atomic.Int64
	leaving  atomic.Bool
	loops    [loopCount]loop

	mu       sync.Mutex // guards what follows; memberlist's own locks may be held around it, never inside it
	reg      *registry.Registry
	begun    bool
	said     cluster.Record // as last announced
	members  map[cluster.WorkerID]*seen
	peers    []*seen
	facts    factRing
	moved    chan struct{} // closed and replaced when anything changes
	unsaved  bool
	before   map[cluster.WorkerID]string // the members as an earlier life saved them; never changed
	mended   time.Time                   // when we last began a new incarnation
	roots    [32]uint64
	rootAt   int
	hint     cluster.WorkerID // who was seen to have something else
	hintRoot uint64
	agreed   time.Time // when a member was last seen to have what we have, or its difference was taken in
	budget   time.Time // until when the bytes broadcast so far take at Rate
	watches  map[*Watch]bool
	cache
}

// New takes the sockets and reads what was saved. Begin comes next, then Run.
func New(o Options) (*Cluster, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	seal, err := newSealer(o.Keys)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "gossip_options", "a gossip key cannot be used")
	}
	var ring *memberlist.Keyring
	if len(o.Keys) > 0 {
		if ring, err = memberlist.NewKeyring(o.Keys[1:], o.Keys[0]); err != nil {
			return nil, fault.Wrap(err, fault.Invalid, "gossip_options", "the gossip keys cannot be used")
		}
	}
	d, err := openDisk(o.Dir)
	if err != nil {
		return nil, err
	}
	c := &Cluster{o: o, ring: ring, disk: d, ready: make(chan struct{}), inbox: make(chan []byte, inboxSize), suspects: make(chan cluster.WorkerID, 64),
		toFlush: make(chan struct{}, 1), toSync: make(chan struct{}, 1), toSave: make(chan struct{}, 1), toDoubt: make(chan struct{}, 1),
		members: map[cluster.WorkerID]*seen{}, moved: make(chan struct{}), watches: map[*Watch]bool{}}
	c.seal.Store(seal)
	c.keys.Store(int64(o.KeysGeneration))
	ro := o.Registry
	ro.Verify = o.Verify
	if ro.FirstIndex == 0 {
		ro.FirstIndex = uint64(time.Now().UnixMicro()) // beyond any index of an earlier life
	}
	c.reg = registry.New(o.Self, ro)
	c.cache.reset(c.reg.Index())
	for _, obj := range d.objects {
		if _, err := c.reg.ApplyObject(time.Now(), obj); err != nil {
			o.Log.Warn("an object that was kept is not taken in", "kind", obj.Kind, "key", obj.Key, "err", err)
		}
	}
	d.objects = nil
	c.before = maps.Clone(d.Members)
	c.queue = &memberlist.TransmitLimitedQueue{NumNodes: c.count, RetransmitMult: o.Knobs.Repeat}
	if c.net, err = listen(o.Bind, o.Advertise, o.lose); err != nil {
		return nil, errors.Join(err, d.close())
	}
	c.net.pulls = c.serve
	if c.puller = o.Puller; c.puller == nil {
		c.puller = ownPuller{c}
	}
	c.changed()
	return c, nil
}

// Addr gives host:port of this member's gossip, as others reach it.
func (c *Cluster) Addr() string { return c.net.advertise.String() }

func (c *Cluster) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.peers) + 1
}

// Begin announces everything this worker has, as its journal knows it: worker may be nil for a member that is none. Until
// then the cluster hears nothing of it. It may be called again to tell all anew.
func (c *Cluster) Begin(worker *cluster.Record, machines []Machine) error {
	var recs []registry.Record
	if worker != nil {
		raw, err := json.Marshal(worker)
		if err != nil {
			return fault.Wrap(err, fault.Invalid, "record", "the worker's record cannot be told")
		}
		recs = append(recs, registry.Record{Kind: registry.Worker, Key: string(c.o.Self), Schema: schemaWorker, Payload: raw})
	}
	for _, m := range machines {
		raw, err := json.Marshal(m)
		if err != nil {
			return fault.Wrap(err, fault.Invalid, "record", "machine %s cannot be told", m.ID)
		}
		recs = append(recs, registry.Record{Kind: registry.Machine, Key: m.ID, Schema: schemaMachine, Payload: raw})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if worker != nil {
		c.said = *worker
	}
	return c.begin(recs, 0)
}

// begin starts an incarnation that is greater than all we know of.
func (c *Cluster) begin(recs []registry.Record, atLeast uint64) error {
	inc := max(c.o.Incarnation, c.disk.Incarnation+1, atLeast)
	if k, ok := c.reg.Owner(c.o.Self); ok {
		inc = max(inc, k.Incarnation+1)
	}
	if err := c.disk.begun(inc); err != nil {
		return err
	}
	if err := c.reg.Own(time.Now(), inc, recs, c.o.Sign); err != nil {
		return err
	}
	c.begun = true
	c.changed()
	c.poke(c.toFlush)
	return nil
}

// mindContest begins anew when somebody was heard speaking as us: ourselves, before an old disk came back, most likely.
// Twins of one id would so outbid each other; five seconds between their bids bound that.
func (c *Cluster) mindContest() {
	inc := c.reg.Contested()
	if inc == 0 || time.Since(c.mended) < 5*time.Second {
		return
	}
	c.mended = time.Now()
	c.o.Log.Warn("somebody else has announced records of this worker; all is told anew", "incarnation", inc+1)
	if err := c.begin(c.reg.Mine(), inc+1); err != nil {
		c.o.Log.Error("this worker's records could not be told anew", "err", err)
	}
}

func (c *Cluster) config() *memberlist.Config {
	k, conf := c.o.Knobs, memberlist.DefaultLANConfig()
	conf.Name, conf.Transport = string(c.o.Self), c.net
	conf.LogOutput = logWriter{c}
	conf.Delegate, conf.Events, conf.Ping, conf.Alive = c, c, c, c
	conf.ProbeInterval, conf.ProbeTimeout, conf.IndirectChecks = k.Probe, k.ProbeTimeout, k.Indirect
	conf.SuspicionMult, conf.SuspicionMaxTimeoutMult, conf.RetransmitMult = k.Suspicion, k.SuspicionMax, k.Retransmit
	conf.GossipInterval, conf.GossipNodes, conf.PushPullInterval = k.Gossip, k.Fanout, k.PushPull
	conf.TCPTimeout, conf.DeadNodeReclaimTime = 3*time.Second, time.Nanosecond
	conf.EnableCompression, conf.HandoffQueueDepth, conf.UDPBufferSize = false, inboxSize, packetSize
	return conf
}

// Run carries on until ctx ends. It does not say goodbye: see Leave.
func (c *Cluster) Run(ctx context.Context) error {
	defer func() { _ = c.net.Shutdown() }()
	c.mu.Lock()
	var err error
	if !c.begun {
		err = c.begin(nil, 0)
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	conf := c.config()
	conf.Keyring = c.ring
	if c.ml, err = memberlist.Create(conf); err != nil {
		return fault.Wrap(err, fault.Unavailable, "gossip", "gossip does not start")
	}
	close(c.ready)
	var all sync.WaitGroup
	for i, f := range []func(context.Context, *loop){c.takeIn, c.flush, c.synchronize, c.reconnect, c.tend, c.doubt} {
		c.loops[i].name = [...]string{"take in", "flush", "synchronize", "reconnect", "tend", "doubt"}[i]
		all.Go(func() { f(ctx, &c.loops[i]) })
	}
	<-ctx.Done()
	err = c.ml.Shutdown()
	all.Wait()
	return errors.Join(err, c.save(), c.disk.close())
}

// Ready is closed when the member can join others.
func (c *Cluster) Ready() <-chan struct{} { return c.ready }

// Join makes us a member of the cluster that the addresses belong to. One that answers is enough.
func (c *Cluster) Join(ctx context.Context, addrs []string) error {
	select {
	case <-c.ready:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	n, err := c.ml.Join(addrs)
	if n == 0 && len(addrs) > 0 {
		return fault.Wrap(err, fault.Unavailable, "join", "none of the %d addresses answers as a member of a cluster with our gossip key", len(addrs))
	}
	c.poke(c.toSync)
	return nil
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
		return fault.Wrap(err, fault.Timeout, "leave", "the goodbye may not have reached anybody; they will notice by themselves")
	}
	return nil
}

// changed is called with the lock after anything in the registry may have changed.
func (c *Cluster) changed() {
	root := c.reg.Root()
	if root != c.root.Load() {
		c.root.Store(root)
		c.rootAt = (c.rootAt + 1) % len(c.roots)
		c.roots[c.rootAt] = root
	}
	c.absorb()
	c.wake()
}

// wake is called with the lock.
func (c *Cluster) wake() {
	close(c.moved)
	c.moved = make(chan struct{})
}

func (c *Cluster) poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Root gives one hash of all that this member knows: two members with one root know the same.
func (c *Cluster) Root() uint64 { return c.root.Load() }

// Stats counts what this member has moved since it began.
type Stats struct {
	Sent     int64 `json:"sent_bytes"` // in packets and streams
	Received int64 `json:"received_bytes"`
	Dropped  int64 `json:"dropped"` // broadcasts that came while too many waited
	Queued   int   `json:"queued"`  // broadcasts being repeated
}

// Stats gives the counts.
func (c *Cluster) Stats() Stats {
	return Stats{Sent: c.net.sent.Load(), Received: c.net.got.Load(), Dropped: c.dropped.Load(), Queued: c.queue.NumQueued()}
}
