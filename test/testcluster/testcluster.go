// Package testcluster makes whole clusters for tests of their promises: n members in one process, each as in souk agent
// (package node) except for a fake runtime: journals, decision log, worker, gateway and sockets of its own on loopback,
// over mutual TLS, with the gossip's fast knobs. A member keeps its state on disk, so it can be killed and come back.
// For real processes on hosts that can be cut off see packages test/faults and test/netns.
//
//	c := testcluster.New(t, 3, testcluster.Options{})
//	m, err := c.Client(0).Launch(...)
//	c.Kill(1)
//	c.Restart(1)
package testcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/member"
	"github.com/soukhq/souk/mesh/gossip"
	"github.com/soukhq/souk/mesh/gossip/gossiptest"
	"github.com/soukhq/souk/mesh/pki"
	"github.com/soukhq/souk/mesh/wire"
	"github.com/soukhq/souk/node"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/fake"
)

// Options describe the members. The zero value is usable.
type Options struct {
	Capacity cluster.Resources // of each worker; zero: room for 16 machines of the smallest size
	Knobs    gossip.Knobs      // zero: gossiptest.Fast
	Log      io.Writer         // of all members; nil: nowhere
	// Proxy changes a member's proxy options; nil: HTTP, for names below localhost
	Proxy func(i int, p *node.Proxy)
}

// region is the region of every member.
const region = "local"

// Cluster is a test cluster. Its methods are for the test's goroutine; they end the test on an error.
type Cluster struct {
	t       testing.TB
	o       Options
	dir     string
	ca      *pki.CA
	members []*host
}

// host is one member's host: its persistent state, and while the member runs its process.
type host struct {
	id     string
	dir    string
	wire   string // as first listened on
	gossip string
	api    string
	http   string // the proxy's address
	token  string // the member's own token, valid at every member
	world  *fake.Runtime

	m        *member.Member
	stop     func() // nil: it does not run
	cl       *client.Client
	uncalled bool // calls do not reach it, but gossip does
}

// New makes a cluster of n members that know each other.
func New(t testing.TB, n int, o Options) *Cluster {
	t.Helper()
	if o.Knobs == (gossip.Knobs{}) {
		o.Knobs = gossiptest.Fast()
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

// Join adds a member, with a new certificate, and returns its index.
func (c *Cluster) Join() int {
	c.t.Helper()
	i := len(c.members)
	x := &host{
		id:     fmt.Sprintf("m%d", i+1),
		wire:   "127.0.0.1:0",
		gossip: "127.0.0.1:0",
		api:    "127.0.0.1:0",
		http:   "127.0.0.1:0",
		world:  fake.New(fake.Options{}),
	}
	x.dir, x.token = filepath.Join(c.dir, x.id), "a token of the test cluster of "+x.id
	name := pki.Name{ID: x.id, Roles: []pki.Role{pki.Gateway, pki.Worker}}
	if i == 0 { // it has the CA
		name.Roles = []pki.Role{pki.Gateway, pki.Issuer, pki.Worker}
	}
	if err := c.ca.IssueTo(filepath.Join(x.dir, member.IdentityDir), name, time.Now()); err != nil {
		c.t.Fatal(err)
	}
	if i > 0 { // like souk join
		if err := member.JoinedAt(x.dir, c.members[0].wire); err != nil {
			c.t.Fatal(err)
		}
	}
	c.members = append(c.members, x)
	c.Restart(i)
	return i
}

// Clone starts a copy of a member's disk besides the original, on its own host without machines, and returns its index.
// The original is down during the copy, and runs afterwards. Meet ignores the copy, since it is no additional member.
func (c *Cluster) Clone(i int) int {
	c.t.Helper()
	c.Kill(i)
	x, k := c.members[i], len(c.members)
	copied := &host{id: x.id, token: x.token, dir: x.dir + "-copy", wire: "127.0.0.1:0", gossip: "127.0.0.1:0",
		api: "127.0.0.1:0", http: "127.0.0.1:0", world: fake.New(fake.Options{})}
	if err := os.CopyFS(copied.dir, os.DirFS(x.dir)); err != nil {
		c.t.Fatal(err)
	}
	made, err := x.world.List(c.t.Context()) // only the directories of its machines are copied: none of them runs
	for _, s := range made {
		err = errors.Join(err, copied.world.Prepare(c.t.Context(), runtime.Spec{Machine: s.Machine}))
	}
	if err != nil {
		c.t.Fatal(err)
	}
	keys, err := filepath.Glob(filepath.Join(copied.dir, "*", "*.key"))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, key := range append(keys, filepath.Join(copied.dir, "secrets.key")) { // CopyFS lets the group read
		if err := os.Chmod(key, 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	c.Restart(i)
	c.members = append(c.members, copied)
	c.Restart(k)
	return k
}

// Move restarts a stopped member at other addresses.
func (c *Cluster) Move(i int) {
	c.t.Helper()
	c.members[i].wire, c.members[i].gossip = "127.0.0.1:0", "127.0.0.1:0"
	c.Restart(i)
}

// Runs counts the machines that run on a member's host, as the host knows them.
func (c *Cluster) Runs(i int) (n int) {
	c.t.Helper()
	all, err := c.members[i].world.List(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, s := range all {
		if s.Running {
			n++
		}
	}
	return n
}

// Starts lists the machines and the lives of tasks that were ever started on a member's host, once for each start.
func (c *Cluster) Starts(i int) (list []string) {
	for _, e := range c.members[i].world.Effects() {
		if e.Op == "start" {
			list = append(list, e.Machine)
		}
	}
	return list
}

// Rejoin lets a stopped member join again, as after the loss of its disk: by a token, at the first member. It does not
// start the member.
func (c *Cluster) Rejoin(i int) error {
	c.t.Helper()
	x := c.members[i]
	if err := os.RemoveAll(x.dir); err != nil {
		c.t.Fatal(err)
	}
	x.world = fake.New(fake.Options{})
	token, err := c.ca.NewToken(time.Now(), pki.TokenOptions{ID: x.id})
	if err != nil {
		c.t.Fatal(err)
	}
	_, err = wire.Join(c.t.Context(), wire.JoinOptions{Addr: c.members[0].wire, Token: token.String(),
		Dir:  filepath.Join(x.dir, member.IdentityDir),
		Name: pki.Name{ID: x.id, Roles: []pki.Role{pki.Gateway, pki.Worker}}})
	if err == nil {
		err = member.JoinedAt(x.dir, c.members[0].wire)
	}
	return err
}

// Ready returns a running member's answer at /readyz: whether it is ready, and its text.
func (c *Cluster) Ready(i int) (ok bool, text string) {
	c.t.Helper()
	answer, err := http.Get("http://" + c.members[i].api + "/readyz")
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer.StatusCode == http.StatusOK, string(raw)
}

// CA returns the cluster's authority, whose directory is the first member's.
func (c *Cluster) CA() *pki.CA { return c.ca }

// Client talks to the API of the member with this index.
func (c *Cluster) Client(i int) *client.Client { return c.members[i].cl }

// ClientWith talks to the API of the member with this index, with a token that is not its own.
func (c *Cluster) ClientWith(i int, token string) *client.Client {
	return client.New(c.members[i].api, token)
}

// HTTP returns the proxy's address at the member with this index.
func (c *Cluster) HTTP(i int) string { return c.members[i].http }

// Token returns the own token of the member with this index, as stored on its disk.
func (c *Cluster) Token(i int) string { return c.members[i].token }

// Member returns a running member.
func (c *Cluster) Member(i int) *member.Member { return c.members[i].m }

// Worker names the worker of a member.
func (c *Cluster) Worker(i int) cluster.WorkerID { return cluster.WorkerID(c.members[i].id) }

// Kill ends a member at once: it does not announce its end, and unwritten data is lost. Its machines go on.
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

// Restart starts a stopped member at its old addresses.
func (c *Cluster) Restart(i int) {
	c.t.Helper()
	if c.members[i].stop != nil {
		return
	}
	if err := c.start(c.members[i]); err != nil {
		c.t.Fatalf("member %s does not start: %v", c.members[i].id, err)
	}
}

// Firewall restarts a member so that calls do not reach it but gossip does, as behind a firewall; with on false calls
// reach it again.
func (c *Cluster) Firewall(i int, on bool) {
	c.t.Helper()
	c.Kill(i)
	c.members[i].uncalled = on
	c.Restart(i)
}

// start opens a member as souk agent does, and runs it.
func (c *Cluster) start(x *host) error {
	ctx, cancel := context.WithCancel(context.Background())
	n, ln, err := c.open(ctx, x)
	if err != nil {
		cancel()
		return err
	}
	transport := &http.Transport{}
	x.cl = client.WithHTTP(x.api, x.token, &http.Client{Transport: transport})
	var all errgroup.Group
	all.Go(func() error { return n.Run(ctx, ln) })
	x.stop = func() {
		cancel()
		_ = all.Wait() // it ends because it was stopped
		transport.CloseIdleConnections()
		_ = n.Close() // errors do not matter: only the disk counts
	}
	return nil
}

// open makes the process of a member, and listens for its API.
func (c *Cluster) open(ctx context.Context, x *host) (n *node.Node, ln net.Listener, err error) {
	log := slog.New(slog.NewTextHandler(c.o.Log, nil)).With("member", x.id)
	peers := []string{}
	for _, o := range c.members {
		if o != x && o.m != nil {
			peers = append(peers, o.gossip)
		}
	}
	o := member.Options{Dir: x.dir, Region: region, Wire: x.wire, Gossip: x.gossip, Peers: peers, Knobs: c.o.Knobs,
		Log: log}
	if x.uncalled { // announce an address at which only gossip listens
		o.Wire, o.Gossip, o.Host = "127.0.0.1:0", "0.0.0.0:0", "127.0.0.9"
	}
	if x.m, err = member.New(o); err != nil {
		return nil, nil, err
	}
	if x.gossip = x.m.GossipAddress(); !x.uncalled {
		x.wire = x.m.Address()
	}
	w := node.Worker{ID: x.m.ID(), Dir: filepath.Join(x.dir, "worker"), Capacity: c.o.Capacity}
	if err := os.MkdirAll(w.Dir, 0o700); err != nil {
		return nil, nil, err
	}
	door, err := net.Listen("tcp", x.http)
	if err != nil {
		return nil, nil, err
	}
	x.http = door.Addr().String()
	how := &node.Proxy{HTTP: door, Domains: []string{"localhost"}}
	if c.o.Proxy != nil {
		c.o.Proxy(slices.Index(c.members, x), how)
	}
	n, err = node.New(
		ctx,
		node.Options{Dir: x.dir, Token: x.token, Region: region, Workers: []node.Worker{w},
			Build: cluster.Build{Version: "test"}, DecisionMB: 1, Member: x.m, Log: log, Proxy: how,
			Runtime: func(node.Worker, string) (node.Runtime, error) { return x.world.Reopen(), nil }},
	)
	if err != nil {
		return nil, nil, errors.Join(err, door.Close())
	}
	if ln, err = net.Listen("tcp", x.api); err != nil {
		return nil, nil, errors.Join(err, door.Close(), n.Close())
	}
	x.api = ln.Addr().String()
	return n, ln, nil
}

// Meet waits until all running members know the same, and see each other alive.
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
				if m.State == cluster.MemberAlive {
					alive++
				}
			}
			mine := x.m.Cluster().Root()
			if alive != running || root != 0 && root != mine || x.m.Fleet().Snapshot().Ready() < running {
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
	waittest.Until(c.t, what, f)
}

// Saved returns the members that one member has saved, with their addresses.
func (c *Cluster) Saved(i int) (map[string]string, error) {
	var s struct {
		Members map[string]string `json:"members"`
	}
	raw, err := os.ReadFile(filepath.Join(c.members[i].dir, "gossip", "members.json"))
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	return s.Members, err
}
