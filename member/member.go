// Package member makes one process a member of a cluster: it announces its own worker and machines, follows those of
// the others, calls them over mutual TLS, and renews its certificate. It starts without any other member: alone it
// serves its own worker, and it joins the others when they become reachable.
//
// What a member knows of others is a view of their truth. It may choose by that view; only the worker itself decides.
package member

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/mesh/gossip"
	"github.com/soukhq/souk/mesh/pki"
	"github.com/soukhq/souk/mesh/wire"
)

// Folders in a member's directory.
const (
	IdentityDir = "identity" // certificate, key and roots: package pki
	CADir       = "ca"       // only of an issuer
	gossipDir   = "gossip"
)

// Pieces returns the paths in a member's directory that it needs at its next start.
func Pieces() []string {
	return []string{filepath.Join(IdentityDir, pki.MemberFile), filepath.Join(gossipDir, gossip.ObjectsFile),
		filepath.Join(gossipDir, gossip.MembersFile)}
}

// Options make a member. Dir, Wire and Gossip are needed.
type Options struct {
	Dir    string
	Region cluster.Region
	Build  cluster.Build                           // announced to the others
	Wire   string                                  // host:port to listen on for the other members' calls
	Listen func(addr string) (net.Listener, error) // opens Wire; nil: net.Listen
	Gossip string                                  // host:port for gossip, packets and streams
	Host   string                                  // host at which others reach both; "": the listen address
	Peers  []string
	Knobs  gossip.Knobs // zero: gossip.LAN
	Log    *slog.Logger
	Now    func() time.Time // nil: time.Now; for certificates
	Left   func()           // called when the member has left; may be nil
}

// Member is this process as a member. Call New, then Attach with the worker, then Run.
type Member struct {
	o        Options
	identity *pki.Identity
	issuer   *pki.CA // nil: this member is no issuer
	cluster  *gossip.Cluster
	client   *wire.Client
	listener net.Listener
	worker   Worker
	fleet    *fleet.Fleet
	follower follower
	own      *fleet.Own // of the own worker; set when begun
	decider  wire.Decider
	stewards wire.Stewards
	tasks    wire.Tasks
	jobs     wire.Jobs // kept here; nil: none are
	heirs    wire.Heirs
	sent     wire.Sent
	tell     reporter
	telling  sync.Mutex   // held while a machine's news goes to fleet and gossip, so both see one order
	proxy    wire.Proxied // serves what other members' proxies send here; nil: there is no proxy
	certs    wire.Certs   // answers other proxies' questions on certificates; nil: none
	loads    *fleet.Loads
	api      string
	begun    atomic.Bool

	// as of the last refresh; atomic, since it is read under the registry's lock
	removals atomic.Pointer[map[string]cluster.Removal]
	// when forgotten members were removed; follow's own
	forgotten map[cluster.WorkerID]time.Time
	// removed members whose ids joined again, with their rechecks; follow's own
	rechecked map[cluster.WorkerID]rechecks
	twins     *twins
	outcast   atomic.Bool // an issuer said that this member was removed
	voicesMu  sync.Mutex
	voices    map[cluster.WorkerID]voice // by owner
	issuers   *issuers
	begunAt   time.Time
	keysAsked time.Time     // last failed request for keys to an issuer; followKeys' own
	keysDue   chan struct{} // wakes followKeys for a waiting rotation
	holders   keyHolders
	agreement agreement
	imports   imports
	tokens    atomic.Pointer[Tokens] // nil: not opened yet
	doors     atomic.Pointer[doorList]
}

// Worker is the member's own worker.
type Worker = wire.Served

// New opens what the member's directory holds. NotFound says that it has joined no cluster yet.
func New(o Options) (m *Member, err error) {
	if o.Knobs == (gossip.Knobs{}) {
		o.Knobs = gossip.LAN()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	m = &Member{o: o, begunAt: time.Now(), keysDue: make(chan struct{}, 1),
		tell: reporter{wake: make(chan struct{}, 1)}, forgotten: map[cluster.WorkerID]time.Time{},
		rechecked: map[cluster.WorkerID]rechecks{}}
	m.removals.Store(&map[string]cluster.Removal{})
	m.loads = fleet.NewLoads(func(list []fleet.Load) { tellLoads(m, list) })
	if m.identity, err = pki.Load(filepath.Join(o.Dir, IdentityDir)); err != nil {
		return nil, err
	}
	m.issuer, err = pki.OpenCA(filepath.Join(o.Dir, CADir))
	if err == nil {
		err = m.issuer.Guard()
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	if o.Listen == nil {
		o.Listen = func(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }
	}
	if m.listener, err = o.Listen(o.Wire); err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, fault.CodeListen,
			"%s cannot be listened on for other members", o.Wire)
	}
	m.client = wire.NewClient(m.identity, o.Now)
	m.client.Deny(deniedAt(m))
	m.api = reachableAt(m.listener.Addr().String(), o.Host)
	m.twins = openTwins(m)
	if err := m.openGossip(); err != nil {
		return nil, errors.Join(err, m.listener.Close())
	}
	m.issuers = openIssuers(m)
	m.openFleet()
	return m, nil
}

// openGossip makes the member's part of the registry. Every record and object is signed by its writer.
func (m *Member) openGossip() (err error) {
	keys := m.identity.GossipKeys()
	sign := func(raw []byte) []byte {
		s, err := m.identity.Sign(signContext, raw)
		if err != nil {
			m.o.Log.Error("a record could not be signed, so others will refuse it", "err", err)
			return nil
		}
		return append(s.Signature, s.Certificate...) // signatures have a fixed length
	}
	m.cluster, err = gossip.New(gossip.Options{
		Self: m.ID(), Role: "worker", API: m.api, Capability: wire.Capability, Build: m.o.Build, Bind: m.o.Gossip,
		Advertise: advertise(m.o.Gossip, m.o.Host),
		Keys:      keys.Keys, KeysGeneration: keys.Generation, Dir: filepath.Join(m.o.Dir, gossipDir), Peers: m.o.Peers,
		Knobs: m.o.Knobs, Log: m.o.Log,
		Sign: sign, Verify: doorkeeper{m}.verifySigner, May: doorkeeper{m}.mayWrite, Incarnation: m.firstIncarnation(),
		Registry: registry.Options{Reserved: isReserved, SigSize: ed25519.SignatureSize},
		Conflict: m.twins.noteClaim,
		Stuck: func(consumer string, since time.Duration) {
			m.o.Log.Error("something does not move", "who", consumer, "since", since)
		},
	})
	return err
}

// advertise returns the address to announce; "": the listen address.
func advertise(listen, host string) string {
	if host == "" {
		return ""
	}
	return reachableAt(listen, host)
}

func reachableAt(listen, host string) string {
	if host == "" {
		return listen
	}
	_, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	return net.JoinHostPort(host, port)
}

// ID returns the id of the member and of its worker.
func (m *Member) ID() cluster.WorkerID { return cluster.WorkerID(m.identity.Name().ID) }

// Address returns where other members call this one, and where new members join if it is an issuer.
func (m *Member) Address() string { return m.api }

// GossipAddress returns where others join the gossip.
func (m *Member) GossipAddress() string { return m.cluster.Addr() }

// Cluster returns the gossip's view of all members.
func (m *Member) Cluster() *gossip.Cluster { return m.cluster }

// Identity returns the member's certificate and keys.
func (m *Member) Identity() *pki.Identity { return m.identity }

// Issuer returns the certificate authority; nil: another member has it.
func (m *Member) Issuer() *pki.CA { return m.issuer }

// Attach sets the member's worker, and announces its machines. The worker's Observer should be the member.
func (m *Member) Attach(ctx context.Context, w Worker) error {
	m.worker = w
	rec, err := w.Record(ctx)
	if err != nil {
		return err
	}
	ms, err := w.Machines(ctx, "", false)
	if err != nil {
		return err
	}
	summaries := make([]gossip.Machine, len(ms))
	for i, x := range ms {
		summaries[i] = summaryOf(fleet.Summary(x))
	}
	m.own = m.fleet.Own(m.ID())
	var begin errgroup.Group
	begin.Go(func() error { return m.cluster.Begin(&rec, summaries) })
	begin.Go(func() error { return m.own.Begin(ctx, w) })
	if err := begin.Wait(); err != nil {
		return err
	}
	m.begun.Store(true)
	if m.issuer != nil && !m.identity.Name().Has(pki.Issuer) { // without the role others reject its objects
		m.o.Log.Warn("the CA is here, and this member's certificate is not an issuer's, so nobody joins or renews here",
			"next", fmt.Sprintf("souk ca issue %s --role gateway,issuer,worker --out %s, then start the agent again",
				m.ID(), filepath.Join(m.o.Dir, IdentityDir)))
		return nil
	}
	if m.issuer == nil {
		return nil
	}
	if _, told := m.cluster.Objects().Get(KindIssuer, string(m.ID())); told {
		return nil
	}
	_, err = m.cluster.Objects().Put(KindIssuer, string(m.ID()), 1, []byte("{}"))
	return err
}

// Run serves until ctx ends. It does not announce a leaving: the member may come back, and its machines go on.
func (m *Member) Run(ctx context.Context) error {
	server, err := wire.NewServer(wire.Options{Identity: m.identity, Worker: examinedWorker{m.worker, m},
		Signer:  m.certSigner(),
		Members: m.gossipAddresses,
		Known:   m.isKnown, Denied: deniedAt(m), Claims: m.decider, Stewards: m.stewards, Tasks: m.tasks, Jobs: m.jobs,
		Heirs: m.heirs, Sent: m.sent,
		Learner: m,
		Log:     m.o.Log, Now: m.o.Now, Boot: m.client.Boot(), Twin: m.twins.noteTwin, Proxy: m.proxy, Certs: m.certs,
		MemberAt:  m.cluster.MemberAt,
		LetsIn:    func(digests []string) []string { return m.tokens.Load().letIn(digests) },
		NewerKeys: m.issuers.announced,
		Keys:      func() int { return gossipKeys{m}.keysOf(m.ID()) }})
	if err != nil {
		return err
	}
	upkeep := upkeepOf(m)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return server.Serve(ctx, m.listener) })
	g.Go(func() error { return m.twins.runGossip(ctx) })
	g.Go(func() error { m.twins.examineClaims(ctx); return nil })
	g.Go(func() error { m.twins.tellWhereabouts(ctx); return nil })
	g.Go(func() error { m.follow(ctx); return nil })
	g.Go(func() error { remover{m}.followRemovals(ctx); return nil })
	g.Go(func() error { m.tellRecords(ctx); return nil })
	g.Go(func() error { m.loads.Run(ctx); return nil })
	g.Go(func() error { gossipKeys{m}.followKeys(ctx); return nil })
	g.Go(func() error {
		upkeep.Run(ctx, time.Duration(rand.Int64N(int64(time.Hour))), func(err error) {
			m.o.Log.Warn("the certificate could not be looked after", "err", err)
		})
		return nil
	})
	return g.Wait()
}

func (m *Member) certSigner() wire.Signer {
	if m.issuer == nil {
		return nil // a nil *pki.CA in an interface would not be nil
	}
	return readmitting{m.issuer, m}
}

// gossipAddresses returns the gossip addresses for a joining member.
func (m *Member) gossipAddresses() []string {
	var out []string
	for _, x := range m.cluster.Members() {
		if x.State == cluster.MemberAlive {
			out = append(out, x.Addr)
		}
	}
	return out
}

func (m *Member) isKnown(id string) bool {
	if m.removedFor(cluster.WorkerID(id)) {
		return m.stateOf(cluster.WorkerID(id)) == cluster.MemberAlive
	}
	return m.stateOf(cluster.WorkerID(id)) != ""
}

// KindIssuer is the kind of objects that name the members which sign certificates.
const KindIssuer = registry.Kind("issuer")
