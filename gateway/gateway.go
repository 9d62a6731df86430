package gateway

import (
	"crypto/rand"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/catalog"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/decisionlog"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/placement"
)

// Options are what a gateway is made of. Workers, Catalog and one of Token and Authenticate must be set.
type Options struct {
	// Workers gives the workers known now; it is asked anew for each request.
	Workers func() []Worker
	Catalog *catalog.Catalog
	Jobs    Jobs // nil: jobs are not taken
	// Where says which worker has a machine, as far as it is known here; nil: every worker is asked.
	Where func(id string) (cluster.WorkerID, bool)
	// Members lists the members of the cluster; nil: this process is alone.
	Members func() []cluster.Member
	// Cluster is the member that this process is; nil: it is alone.
	Cluster Cluster
	// Token is the one bearer token that is let in. Authenticate takes its place when it is set.
	Token        string
	Authenticate func(token string) bool
	// Region is the gateway's own: the nearest for a create that names none.
	Region cluster.Region
	// Policy ranks workers where neither a launch nor its app chose another; the zero value is the catalog's default.
	Policy placement.Policy
	// Decisions is where each placement is recorded; nil: nowhere.
	Decisions *decisionlog.Log
	Log       *slog.Logger // nil: nothing is logged
	Rand      io.Reader    // nil: crypto/rand
	Version   string       // of souk, for /v1/souk/version
}

// Gateway answers the Machines API for a set of workers. Its methods may be called from many goroutines.
type Gateway struct {
	*directory
	catalog *catalog.Catalog
	members func() []cluster.Member
	jobs    Jobs
	allow   func(token string) bool
	region  cluster.Region
	policy  placement.Policy
	log     *slog.Logger
	rand    io.Reader
	version string
	metrics *metrics
	broker  *broker.Broker
	started time.Time
	handler http.Handler

	decisions *decisionlog.Log
	index     candidates
	spent     *spendings
	cluster   Cluster
}

// New makes a gateway.
func New(o Options) (*Gateway, error) {
	switch {
	case o.Workers == nil || o.Catalog == nil:
		return nil, fault.New(fault.Internal, "options", "a gateway needs Workers and a Catalog")
	case o.Token == "" && o.Authenticate == nil:
		return nil, fault.New(fault.Invalid, "token", "a gateway needs a token: without one anybody could run programs here")
	}
	g := &Gateway{
		directory: &directory{workers: o.Workers, apps: o.Catalog, where: o.Where}, spent: &spendings{},
		catalog: o.Catalog, members: o.Members, jobs: o.Jobs, allow: o.Authenticate, region: o.Region, policy: o.Policy,
		log: o.Log, rand: o.Rand, version: o.Version, started: time.Now(),
		decisions: o.Decisions, cluster: o.Cluster,
	}
	if g.allow == nil {
		g.allow = oneToken(o.Token)
	}
	if g.region == "" {
		g.region = "local"
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	if g.rand == nil {
		g.rand = rand.Reader
	}
	g.broker = newBroker(g)
	g.metrics = newMetrics(g)
	mux, err := g.mux()
	if err != nil {
		return nil, err
	}
	g.handler = g.serve(mux)
	return g, nil
}

func newBroker(g *Gateway) *broker.Broker {
	o := broker.Options{Fleet: asked{g}, Directory: asked{g}, Apps: rows{g}, Policies: rows{g}, Funds: rows{g},
		Claims: broker.NewAlone(asked{g}, g.catalog), Region: g.region, Rand: g.rand}
	if g.decisions != nil {
		o.Log = g.decisions
	}
	return broker.New(o)
}

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
	return &http.Server{
		Handler: g.handler, MaxHeaderBytes: MaxHeader, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelWarn),
	}
}
