// Package gateway serves the API of package api over HTTP: it checks who asks, reads the request, asks the workers, and
// says what they said. It holds no machine: apps, secrets and idempotency keys live in its Catalog, all else with the
// workers.
//
// What it serves is api.Routes, and nothing else; docs/reference/api.md lists it. There is no cookie and no session, so
// a browser has no ambient right that a foreign page could use; a request that a browser says comes from another site
// is refused all the same.
package gateway

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/internal/strangers"
	"github.com/soukhq/souk/store/catalog"
	"github.com/soukhq/souk/store/decisionlog"
)

// Options are what a gateway is made of. Fleet, Worker, Catalog and one of Token and Tokens must be set.
type Options struct {
	// Fleet is what is known of the workers and their machines.
	Fleet *fleet.Fleet
	// Worker returns a worker of the fleet, to be asked for something.
	Worker  func(cluster.WorkerID) (Worker, bool)
	Catalog *catalog.Catalog
	Jobs    Jobs // nil: jobs are not taken
	// Cluster is the member that this process is; nil: it is alone.
	Cluster Cluster
	// Peers are the members that decide claims, and Self is which of them this process is; nil: it is alone.
	Peers broker.Peers
	Self  cluster.WorkerID
	// Token is the one bearer token that is let in, as an admin's. Tokens take its place when they are set.
	Token  string
	Tokens Tokens
	// Stewards lists the members that carry services and that can be heard; nil: this process is alone.
	Stewards func() []cluster.WorkerID
	// LostAfter is for how long a worker is not heard until its machines are lost, where their group does not say it; 0:
	// rollout.DefaultLostAfter.
	LostAfter time.Duration
	// Evictions take all from members whose disks are in other hands; nil: this process is alone.
	Evictions Evictions
	// Agree waits until the other members that can be heard know what this one knows; worker says that a worker has changed,
	// too. nil: this process is alone.
	Agree func(ctx context.Context, worker bool)
	// Images says which images the releases of services mean; nil: they are as they are named.
	Images Images
	// Proxy is that of this process, which leads requests to machines; nil: there is none.
	Proxy Proxy
	// Certs are those that the proxy shows; nil: it speaks no TLS.
	Certs Certs
	// Region is the gateway's own: the nearest for a create that names none.
	Region cluster.Region
	// Policy ranks workers where neither a launch nor its app chose another; the zero value is the catalog's default.
	Policy placement.Policy
	// Decisions is where each placement is recorded; nil: nowhere.
	Decisions *decisionlog.Log
	Full      func() error // why nothing new is kept here; nil: it always is
	Log       *slog.Logger // nil: nothing is logged
	Rand      io.Reader    // nil: crypto/rand
	Version   string       // of souk, for /v1/souk/version
	PageBytes int          // of machines, on a page; 0: 16 MiB
}

// Gateway answers the Machines API for a set of workers. Its methods may be called from many goroutines.
type Gateway struct {
	directory *directory
	accounts  *accounts
	broker    *broker.Broker
	claims    *broker.Claimant
	mux       *http.ServeMux
	handler   http.Handler
	log       *slog.Logger
}

// New makes a gateway.
func New(o Options) (*Gateway, error) {
	switch {
	case o.Fleet == nil || o.Worker == nil || o.Catalog == nil:
		return nil, fault.New(fault.Internal, "options", "a gateway needs a Fleet, its Workers and a Catalog")
	case o.Token == "" && o.Tokens == nil:
		return nil, fault.New(fault.Invalid, "token",
			"a gateway needs a token: without one anybody could run programs here")
	}
	o.fill()
	g := &Gateway{log: o.Log, directory: &directory{fleet: o.Fleet, worker: o.Worker, apps: o.Catalog,
		pageBytes: o.PageBytes}}
	g.accounts = &accounts{catalog: o.Catalog, directory: g.directory}
	policies := &chosen{o.Catalog, o.Policy}
	fleet := known{g.directory}
	g.claims = broker.NewClaimant(o.Self, o.Peers, broker.NewDecider(fleet, o.Catalog), fleet)
	g.broker = newBroker(o, g.claims, fleet, rows{policies, o.Catalog, g.accounts})
	releases := &releasesAPI{o.Catalog, g.broker, g.directory, o.Self, o.Stewards, o.LostAfter, o.Images, o.Agree,
		o.Rand}
	counts := append(g.broker.Collectors(), workerCollector{g.directory}, decisionCollector{o.Decisions},
		clusterCollector{o.Cluster}, appCollector{releases}, jobCollector{o.Jobs},
		certCollector{o.Certs})
	if o.Proxy != nil {
		counts = append(counts, o.Proxy.Collectors()...)
	}
	metrics := newMetrics(counts...)
	front := &front{o.judge(), o.Full, o.doors(), o.Agree, o.Log, metrics}
	var err error
	if g.mux, err = front.mux(g.nouns(o, policies, releases, metrics.serve)); err != nil {
		return nil, err
	}
	g.handler = front.serve(g.mux)
	return g, nil
}

// fill sets what has a default.
func (o *Options) fill() {
	if o.Region == "" {
		o.Region = "local"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Agree == nil {
		o.Agree = func(context.Context, bool) {}
	}
	if o.Full == nil {
		o.Full = func() error { return nil }
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Stewards == nil {
		o.Stewards = func() []cluster.WorkerID { return []cluster.WorkerID{o.Self} }
	}
	if o.PageBytes == 0 {
		o.PageBytes = 16 << 20
	}
}

// judge returns what says of which token a secret is, or why it is not let in.
func (o *Options) judge() func(secret string) (api.Token, error) {
	if o.Tokens == nil {
		return oneToken(o.Token)
	}
	return o.Tokens.Judge
}

// doors returns what tells the mark of the list of doors.
func (o *Options) doors() func() string {
	if o.Cluster == nil {
		return func() string { return "" }
	}
	return func() string {
		_, mark := o.Cluster.Doors()
		return mark
	}
}

// digest returns what finds the digest of a token by its id.
func (o *Options) digest() func(id string) (digest string, err error) {
	if o.Tokens != nil {
		return o.Tokens.Digest
	}
	digest := api.TokenDigest(o.Token)
	return func(id string) (string, error) {
		if id != api.TokenID(digest) {
			return "", errNotValid()
		}
		return digest, nil
	}
}

// nouns returns all that is served, each with what it needs.
func (g *Gateway) nouns(o Options, policies *chosen, releases *releasesAPI, metrics http.Handler) []noun {
	d := g.directory
	return []noun{
		&appsAPI{o.Catalog, d},
		&secretsAPI{o.Catalog},
		&namespacesAPI{o.Catalog, d, g.accounts},
		&policiesAPI{o.Catalog, policies, d, o.Decisions},
		&orgsAPI{o.Catalog, d},
		&machinesAPI{o.Catalog, g.broker, d},
		&verbsAPI{g.broker, d},
		&metadataAPI{d},
		&leasesAPI{d},
		&consoleAPI{d, o.Log},
		&servicesAPI{o.Proxy, o.Certs, d},
		releases,
		&movesAPI{g.broker, releases},
		&volumesAPI{o.Catalog, g.broker, policies, d, o.Rand},
		&jobsAPI{o.Jobs, o.Catalog, d, o.Rand, o.Log},
		&bidsAPI{o.Catalog, g.broker, d},
		&placingAPI{o.Catalog, g.broker, d, o.Jobs},
		&platformAPI{o.Region, g.broker, policies, d},
		&decisionsAPI{o.Decisions, policies, d},
		&membersAPI{o.Cluster, d, o.Proxy, o.Tokens},
		&imagesAPI{d, o.Log},
		&tokensAPI{o.Catalog, o.Tokens, o.Evictions},
		&healthAPI{o.Cluster, d, g.claims},
		&processAPI{o.Version, o.Region, time.Now(), o.Cluster, d, metrics, o.Full, o.digest()},
	}
}

func newBroker(o Options, claims *broker.Claimant, fleet known, rows rows) *broker.Broker {
	b := broker.Options{Fleet: fleet, Directory: fleet, Apps: rows, Policies: rows, Funds: rows,
		Claims: claims, Region: o.Region, Rand: o.Rand, Agree: o.Agree}
	if o.Decisions != nil {
		b.Log = o.Decisions
	}
	if o.Cluster != nil {
		b.Unfit = func() error { return twinOf(o.Cluster) }
	}
	return broker.New(b)
}

// Limits is what a worker is to be told of budgets: see lifecycle.Supervisor.Budgets.
func (g *Gateway) Limits(_ context.Context, worker cluster.WorkerID) quota.Limits {
	return g.accounts.limits(worker)
}

// Claims decides what must be unique in an app, for this member and for others that ask it.
func (g *Gateway) Claims() *broker.Claimant { return g.claims }

// Broker returns what the gateway buys machines by.
func (g *Gateway) Broker() *broker.Broker { return g.broker }

// Close waits for what still goes on behind answers that were given. It is called when nothing is served any more.
func (g *Gateway) Close() { g.broker.Close() }

// Handler gives the gateway as an HTTP handler.
func (g *Gateway) Handler() http.Handler { return g.handler }

// Limits of an HTTP server in front of the gateway.
const (
	MaxHeader     = 64 << 10 // bytes of a request's line and headers
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
)

// Server gives an HTTP server with the gateway's limits, ready for Serve. Bodies have limits of their own, and answers
// none, since a stream may last.
func (g *Gateway) Server() *http.Server {
	s := &http.Server{
		Handler: g.handler, MaxHeaderBytes: MaxHeader, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(strangers.Few(g.log, 20, time.Second).Handler(), slog.LevelWarn),
	}
	strangers.New(strangers.Most()).Attach(s)
	return s
}
