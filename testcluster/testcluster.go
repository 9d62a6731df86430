// Package testcluster makes whole clusters for tests of what they promise: n members in one process, each with a worker, a
// gateway and sockets of its own on loopback, over mutual TLS, with the gossip's fast knobs. A member keeps its state on disk,
// so it can be killed and come back. For real processes on hosts that can be cut off see packages faults and netns below.
//
//	c := testcluster.New(t, 3, testcluster.Options{})
//	m, err := c.Client(0).Launch(...)
//	c.Kill(1)
//	c.Restart(1)
package testcluster

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/catalog"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/gateway"
	"github.com/soukhq/souk/gossip"
	"github.com/soukhq/souk/journal/bolt"
	"github.com/soukhq/souk/member"
	"github.com/soukhq/souk/pki"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/worker"
)

// Options say what members are. The zero value is good.
type Options struct {
	Capacity cluster.Resources // of each worker; zero: room for 16 machines of the smallest size
	Knobs    gossip.Knobs      // zero: gossip.Fast
	Log      io.Writer         // of all members; nil: nowhere
}

// token is what every member lets in.
const token = "a token of the test cluster"

// patience bounds every wait of this package.
const patience = 20 * time.Second

// Cluster is one. Its methods are for the test's goroutine; they end the test when something goes wrong.
type Cluster struct {
	t       testing.TB
	o       Options
	dir     string
	ca      *pki.CA
	members []*node
}

// node is one member: what outlives it, and while it runs the rest.
type node struct {
	id     string
	dir    string
	wire   string // as first listened on
	gossip string
	api    string
	world  *fake.Runtime

	m    *member.Member
	stop func() // nil: it does not run
	cl   *client.Client
}

// New makes a cluster of n members that know each other.
func New(t testing.TB, n int, o Options) *Cluster {
	t.Helper()
	if o.Knobs == (gossip.Knobs{}) {
		o.Knobs = gossip.Fast()
	}
	if o.Capacity.IsZero() {
		o.Capacity = cluster.Resources{CPU: 16_000, Memory: 16 * 256, Disk: 100_000, Ports: 1000}
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	c := &Cluster{t: t, o: o}
	dir := t.TempDir()
	var err error
	if c.ca, err = pki.Init(filepath.Join(dir, "m1", member.CADir), time.Now()); err != nil {
		t.Fatal(err)
	}
	c.dir = dir
	for range n {
		c.Join()
	}
	t.Cleanup(func() {
		for i := range c.members {
			c.Kill(i)
		}
	})
	c.Meet()
	return c
}

// Join adds a member, with a certificate made now, and gives its index.
func (c *Cluster) Join() int {
	c.t.Helper()
	i := len(c.members)
	x := &node{id: fmt.Sprintf("m%d", i+1), wire: "127.0.0.1:0", gossip: "127.0.0.1:0", api: "127.0.0.1:0", world: fake.New(fake.Options{})}
	x.dir = filepath.Join(c.dir, x.id)
	name := pki.Name{ID: x.id, Roles: []pki.Role{pki.Gateway, pki.Worker}}
	if i == 0 { // it has the CA
		name.Roles = []pki.Role{pki.Gateway, pki.Issuer, pki.Worker}
	}
	if err := c.ca.IssueTo(filepath.Join(x.dir, member.IdentityDir), name, time.Now()); err != nil {
		c.t.Fatal(err)
	}
	if i > 0 { // as souk join does
		if err := member.JoinedAt(x.dir, c.members[0].wire); err != nil {
			c.t.Fatal(err)
		}
	}
	c.members = append(c.members, x)
	c.Restart(i)
	return i
}

// CA gives the cluster's authority, whose directory is the first member's.
func (c *Cluster) CA() *pki.CA { return c.ca }

// Client talks to the API of the member with this index.
func (c *Cluster) Client(i int) *client.Client { return c.members[i].cl }

// Member gives a member that runs.
func (c *Cluster) Member(i int) *member.Member { return c.members[i].m }

// Worker names the worker of a member.
func (c *Cluster) Worker(i int) cluster.WorkerID { return cluster.WorkerID(c.members[i].id) }

// Kill ends a member at once: it tells nobody, and what it has not written is lost. Its machines go on.
func (c *Cluster) Kill(i int) {
	c.t.Helper()
	if x := c.members[i]; x.stop != nil {
		x.stop()
		x.stop = nil
	}
}

// PowerOff kills a member and every machine of its host.
func (c *Cluster) PowerOff(i int) {
	c.t.Helper()
	c.Kill(i)
	c.members[i].world.CrashHost()
}

// Restart starts a member that does not run, at the addresses it had.
func (c *Cluster) Restart(i int) {
	c.t.Helper()
	if c.members[i].stop != nil {
		return
	}
	if err := c.start(c.members[i]); err != nil {
		c.t.Fatalf("member %s does not start: %v", c.members[i].id, err)
	}
}

// start opens a member as souk agent does, and lets it run.
func (c *Cluster) start(x *node) (err error) {
	ctx, cancel := context.WithCancel(context.Background())
	var closers []func() error
	closeAll := func() {
		for i := len(closers) - 1; i >= 0; i-- {
			_ = closers[i]() // what is on disk counts
		}
	}
	defer func() {
		if err != nil {
			cancel()
			closeAll()
		}
	}()
	log := slog.New(slog.NewTextHandler(c.o.Log, nil)).With("member", x.id)
	peers := []string{}
	for _, o := range c.members {
		if o != x && o.m != nil {
			peers = append(peers, o.gossip)
		}
	}
	if x.m, err = member.New(member.Options{Dir: x.dir, Region: "local", Wire: x.wire, Gossip: x.gossip, Peers: peers, Knobs: c.o.Knobs, Log: log}); err != nil {
		return err
	}
	x.wire, x.gossip = x.m.Address(), x.m.GossipAddress()
	rows, err := bolt.Open(filepath.Join(x.dir, "catalog.journal"), bolt.Options{})
	if err != nil {
		return err
	}
	closers = append(closers, rows.Close)
	shared, err := catalog.Open(rows, filepath.Join(x.dir, "secrets.key"))
	if err != nil {
		return err
	}
	j, err := bolt.Open(filepath.Join(x.dir, "worker.journal"), bolt.Options{})
	if err != nil {
		return err
	}
	rt := x.world.Reopen()
	closers = append(closers, j.Close, rt.Close)
	w, err := worker.New(ctx, worker.Options{ID: cluster.WorkerID(x.id), Region: "local", Dir: x.dir, Capacity: c.o.Capacity, Journal: j, Runtime: rt,
		Secrets: shared.OpenSecrets, Observer: x.m, Log: log})
	if err != nil {
		return err
	}
	g, err := openGateway(ctx, x.m, w, shared, log)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", x.api)
	if err != nil {
		return err
	}
	x.api = ln.Addr().String()
	transport := &http.Transport{}
	x.cl = client.WithHTTP(x.api, token, &http.Client{Transport: transport})
	server := g.Server()
	closers = append(closers, server.Close)
	var all errgroup.Group
	all.Go(func() error { return w.Run(ctx) })
	all.Go(func() error { return x.m.Run(ctx) })
	all.Go(func() error { x.m.Import(ctx, shared); return nil })
	all.Go(func() error { return server.Serve(ln) })
	x.stop = func() {
		cancel()
		_ = server.Close()
		_ = all.Wait() // it ends because it was told to
		transport.CloseIdleConnections()
		closeAll()
	}
	return nil
}

func openGateway(ctx context.Context, m *member.Member, w *worker.Worker, shared *catalog.Catalog, log *slog.Logger) (*gateway.Gateway, error) {
	if err := m.Attach(ctx, w); err != nil {
		return nil, err
	}
	if err := m.Share(shared); err != nil {
		return nil, err
	}
	workers := func() []gateway.Worker {
		all := []gateway.Worker{own{w, m}}
		for _, far := range m.Others() {
			all = append(all, far)
		}
		return all
	}
	return gateway.New(gateway.Options{Workers: workers, Catalog: shared, Token: token, Region: "local", Log: log, Version: "test",
		Where: m.Cluster().Where, Members: m.Cluster().Members})
}

// own is a member's own worker, as souk agent has it.
type own struct {
	*worker.Worker
	m *member.Member
}

// Examine is the worker's, and the member's.
func (o own) Examine(ctx context.Context) []runtime.Finding {
	return append(o.Worker.Examine(ctx), o.m.Finding())
}

// Meet waits until all members that run know the same, and each other for alive.
func (c *Cluster) Meet() {
	c.t.Helper()
	c.Until("all members know the same", func() bool {
		var root uint64
		running := 0
		for _, x := range c.members {
			if x.stop != nil {
				running++
			}
		}
		for _, x := range c.members {
			if x.stop == nil {
				continue
			}
			alive := 0
			for _, m := range x.m.Cluster().Members() {
				if m.State == gossip.Alive {
					alive++
				}
			}
			mine := x.m.Cluster().Root()
			if alive != running || root != 0 && root != mine || len(x.m.Others()) < running-1 {
				return false
			}
			root = mine
		}
		return true
	})
}

// Until waits for a condition that has no event of its own.
func (c *Cluster) Until(what string, f func() bool) {
	c.t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-late.C:
			c.t.Fatalf("waited %v, and it is still not so that %s", patience, what)
		case <-tick.C:
		}
	}
}
