// Package gateway serves the API of package api over HTTP: it checks the token, reads the request, asks the workers,
// and passes on their answers. It keeps no machines: apps, secrets and idempotency keys are in its Catalog, all else is
// at the workers.
//
// What it serves is api.Routes, and nothing else; docs/reference/api.md lists it. There is no cookie and no session, so
// a browser has no ambient authority that a foreign page could use; cross-site browser requests are refused all the
// same.
package gateway

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/broker/known"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/fleet/trials"
	"github.com/soukhq/souk/internal/strangers"
	"github.com/soukhq/souk/internal/unixuser"
	"github.com/soukhq/souk/services/releases"
	"github.com/soukhq/souk/store/catalog"
	"github.com/soukhq/souk/store/decisionlog"
)

// Options are what a gateway is made of. Directory, Catalog, Broker, Claims and one of Token and
// Tokens must be set.
type Options struct {
	// Directory finds the workers and their machines, and calls them.
	Directory *find.Directory
	Catalog   *catalog.Catalog
	Broker    Broker
	Claims    Claims
	Jobs      Jobs     // nil: jobs are not taken
	OwnJobs   OwnJobs  // for metrics; nil: this member keeps no jobs
	JobFiles  JobFiles // nil: jobs are sent no files, and no files of tasks are kept
	// Cluster is this process as a member of a cluster; nil: it is alone.
	Cluster Cluster
	Self    cluster.WorkerID // this process's member id; "": it is alone
	// Token is the only valid bearer token, with the role admin. Tokens replaces it if set.
	Token  string
	Tokens Tokens
	// Stewards lists the reachable members that can be stewards of services; nil: this process is alone.
	Stewards func() []cluster.WorkerID
	// LostAfter is how long a worker is unreachable before its machines count as lost, unless their group says
	// otherwise; 0: release.DefaultLostAfter.
	LostAfter time.Duration
	// Evictions revoke the credentials of members whose disks were stolen; nil: this process is alone.
	Evictions Evictions
	// Agree waits until the reachable members know what this one knows; worker says that a worker has changed, too.
	// nil: this process is alone.
	Agree func(ctx context.Context, worker bool)
	// Images resolves the image names of releases; nil: names are used as they are.
	Images releases.Images
	// Proxy is this process's proxy; nil: there is none.
	Proxy Proxy
	// Certs are the proxy's certificates; nil: it serves no TLS.
	Certs Certs
	// Region is the gateway's own region: the nearest for a create that names none.
	Region cluster.Region
	// Decisions is where the broker records each placement; nil: nowhere.
	Decisions *decisionlog.Log
	UnixUsers UnixUsers     // of this host, that users.sock serves; nil: there is no such socket
	Full      func() error  // why the disk takes no new objects; nil: it always does
	Log       *slog.Logger  // nil: nothing is logged
	Rand      io.Reader     // nil: crypto/rand
	Build     cluster.Build // of souk, for /v1/souk/version and metrics
	PageBytes int           // bytes of machines on a page; 0: 16 MiB
}

// Broker is what a gateway needs of its process's broker.
type Broker interface {
	machineBroker
	moveBroker
	placingBroker
	bidBroker
	releases.Broker
	regionBroker
	Collectors() []prometheus.Collector
}

// OwnJobs is what a gateway needs of its process's own buyer of tasks.
type OwnJobs interface {
	// List lists the jobs of an app, "" for all, oldest first.
	List(ctx context.Context, app string) ([]jobs.Job, error)
	// SchedulerMessages returns how many messages each scheduler that jobs name has sent here, by its name.
	SchedulerMessages(ctx context.Context) (map[string]int64, error)
}

// Claims is what a gateway needs of the broker's Claimant.
type Claims interface {
	// KeyPairs asks all members for keys that a network partition has left bound to several machines.
	KeyPairs(ctx context.Context) []broker.Pair
}

// Gateway answers the Machines API for a set of workers. Its methods may be called from many goroutines.
type Gateway struct {
	directory *directory
	mux       *http.ServeMux
	handler   http.Handler
	log       *slog.Logger
}

// New makes a gateway.
func New(o Options) (*Gateway, error) {
	switch {
	case o.Directory == nil || o.Catalog == nil || o.Broker == nil || o.Claims == nil:
		return nil, fault.New(fault.Internal, codeOptions,
			"a gateway needs a Directory, a Catalog, a Broker and its Claims")
	case o.Token == "" && o.Tokens == nil:
		return nil, fault.New(fault.Invalid, fault.CodeToken,
			"a gateway needs a token: without one anybody could run programs here")
	}
	o.setDefaults()
	g := &Gateway{log: o.Log, directory: &directory{o.Directory, o.PageBytes}}
	policies := known.Policies{Apps: o.Catalog.Apps, Catalog: o.Catalog.Policies}
	services := &releases.Releases{Apps: o.Catalog.Apps, Namespaces: o.Catalog.Namespaces, Catalog: o.Catalog.Services,
		Broker: o.Broker, Directory: o.Directory, Self: o.Self, Stewards: o.Stewards, LostAfter: o.LostAfter,
		Images: o.Images, Agree: o.Agree, Rand: o.Rand}
	counts := append(o.Broker.Collectors(), workerCollector{g.directory}, decisionCollector{o.Decisions},
		clusterCollector{o.Cluster}, appCollector{services}, jobCollector{o.OwnJobs},
		certCollector{o.Certs})
	if o.Proxy != nil {
		counts = append(counts, o.Proxy.Collectors()...)
	}
	metrics := newMetrics(append(counts, buildInfo(o.Build))...)
	front := &front{o.tokenJudge(), o.UnixUsers, g.directory.forOwner, o.Full, o.doorsMark(), o.Agree, o.Log, metrics}
	var err error
	if g.mux, err = front.newMux(g.allNouns(o, policies, services, metrics.serve)); err != nil {
		return nil, err
	}
	g.handler = front.wrapRoutes(g.mux)
	return g, nil
}

// setDefaults fills in the defaults.
func (o *Options) setDefaults() {
	if o.UnixUsers == nil {
		o.UnixUsers = (*unixuser.Users)(nil)
	}
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

// tokenJudge returns the function that finds the token of a secret, or says why it is not valid.
func (o *Options) tokenJudge() func(secret string) (api.Token, error) {
	if o.Tokens == nil {
		return oneToken(o.Token)
	}
	return o.Tokens.Judge
}

// trialReader returns the reader of the jobs of comparisons; nil: jobs are not taken.
func (o *Options) trialReader() *trials.Reader {
	if o.Jobs == nil {
		return nil
	}
	return trials.NewReader(o.Jobs)
}

// doorsMark returns the function that returns the mark of the list of doors.
func (o *Options) doorsMark() func() string {
	if o.Cluster == nil {
		return func() string { return "" }
	}
	return func() string {
		_, mark := o.Cluster.Doors()
		return mark
	}
}

// digestFinder returns the function that finds a token's digest by its id.
func (o *Options) digestFinder() func(id string) (digest string, err error) {
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

// Parts of the catalog that one noun needs together.
type (
	appsAndSecrets struct {
		*catalog.Apps
		*catalog.Secrets
	}
	appsAndServices struct {
		*catalog.Apps
		*catalog.Services
	}
	appsAndPolicies struct {
		*catalog.Apps
		*catalog.Policies
	}
	appsAndNamespaces struct {
		*catalog.Apps
		*catalog.Namespaces
	}
	appsNamespacesSecrets struct {
		*catalog.Apps
		*catalog.Namespaces
		*catalog.Secrets
	}
)

// allNouns returns all nouns, each with its dependencies.
func (g *Gateway) allNouns(o Options, policies known.Policies, services *releases.Releases,
	metrics http.Handler) []noun {
	d, c := g.directory, o.Catalog
	return []noun{
		&appsAPI{c.Apps, d},
		&secretsAPI{c.Secrets},
		&namespacesAPI{appsAndNamespaces{c.Apps, c.Namespaces},
			known.Accounts{Catalog: c.Namespaces, Fleet: o.Directory.Fleet}},
		&schedulersAPI{c.Namespaces, o.trialReader(), o.Rand},
		&policiesAPI{appsAndPolicies{c.Apps, c.Policies}, policies, d, o.Decisions},
		&orgsAPI{c.Apps, d},
		&machinesAPI{appsAndSecrets{c.Apps, c.Secrets}, o.Broker, d},
		&verbsAPI{o.Broker, d},
		&metadataAPI{d},
		&leasesAPI{d},
		&consoleAPI{d, o.Log},
		&servicesAPI{o.Proxy, o.Certs, d},
		&releasesAPI{appsAndServices{c.Apps, c.Services}, services},
		&movesAPI{o.Broker, services, d},
		&volumesAPI{appsAndNamespaces{c.Apps, c.Namespaces}, o.Broker, policies, d, o.Rand},
		&jobsAPI{o.Jobs, o.JobFiles, o.Images,
			appsNamespacesSecrets{c.Apps, c.Namespaces, c.Secrets}, d, o.Rand, o.Log},
		&bidsAPI{c.Apps, o.Broker, d},
		&placingAPI{c.Apps, o.Broker, d, o.Jobs},
		&platformAPI{o.Region, o.Broker, policies, d},
		&decisionsAPI{o.Decisions, policies, d},
		&membersAPI{o.Cluster, d, o.Proxy, o.Tokens},
		&imagesAPI{d, o.Log},
		&tokensAPI{c.Apps, o.Tokens, o.Evictions},
		&healthAPI{o.Cluster, d, o.Claims},
		&processAPI{o.Build, o.Region, time.Now(), o.Cluster, d, metrics, o.Full, o.digestFinder()},
	}
}

// Handler returns the gateway as an HTTP handler.
func (g *Gateway) Handler() http.Handler { return g.handler }

// Limits of an HTTP server in front of the gateway.
const (
	MaxHeader     = 64 << 10 // bytes of a request's line and headers
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
)

// Server returns an HTTP server with the gateway's limits, ready for Serve. Bodies have limits of their own; answers
// have none, since a stream may last long.
func (g *Gateway) Server() *http.Server {
	s := &http.Server{
		Handler: g.handler, MaxHeaderBytes: MaxHeader, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(strangers.Few(g.log, 20, time.Second).Handler(), slog.LevelWarn),
	}
	strangers.New(strangers.Most()).Attach(s)
	identifyPeers(s)
	return s
}
