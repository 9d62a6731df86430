// Package node assembles one souk process: its workers with their journals and runtimes, the buyer of tasks, the
// catalog, the decision log, the gateway and, in a cluster, the member that it is. "souk dev", "souk agent", package
// testcluster and the benchmarks all run what New makes, so that tests and figures are of the product.
//
//	n, err := node.New(ctx, node.Options{Dir: dir, Token: token, Workers: []node.Worker{{ID: "w1", Dir: dir, Capacity: all}}})
//	...
//	err = errors.Join(n.Run(ctx, listener), n.Close())
package node

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/member"
	"github.com/soukhq/souk/mesh/names"
	"github.com/soukhq/souk/proxy"
	"github.com/soukhq/souk/proxy/certs"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/devices"
	"github.com/soukhq/souk/runtime/hostnet"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
	"github.com/soukhq/souk/runtime/image"
	"github.com/soukhq/souk/runtime/image/remote"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/services"
	"github.com/soukhq/souk/store/catalog"
	"github.com/soukhq/souk/store/disk"
	"github.com/soukhq/souk/worker"
	"github.com/soukhq/souk/worker/batch"
)

// Below the directory of a process's state.
const (
	DecisionsDir  = "decisions"
	catalogFile   = "catalog.journal"
	secretsFile   = "secrets.key"
	jobsFile      = "jobs.journal"
	jobsDir       = "jobs"
	workerJournal = "journal" // below the worker's own directory
	workerRun     = "run"
	imagesDir     = "images"
)

// Options say what runs in one process. Dir, Token and at least one of Workers are needed.
type Options struct {
	Dir   string // exists; of one process at a time
	Token string // that the API lets in; in a cluster the member's own
	// KeepToken is given each token that takes the place of Token, for who may read it; nil: none ever does.
	KeepToken func(token string) error
	Region    cluster.Region
	Workers   []Worker
	Build     cluster.Build // that the API tells

	// Reserve keeps room on the disk of Dir, with which a process goes on when it is full.
	Reserve    bool
	AllowRoot  bool           // machines may ask to be root
	Sized      bool           // new volumes are held to their size
	DecisionMB int64          // how much of the decision log is kept; 0: nothing is recorded
	DNS        *names.Server  // nil: none
	Member     *member.Member // of a cluster, with one worker of the same id; nil: this process is alone
	Log        *slog.Logger   // nil: nothing is logged

	// Emptying says that it is opened for Empty, not for Run: the tasks that wait are given to nobody.
	Emptying bool

	// Grace is how long requests under way may take once the process is to end; 0: they are cut off.
	Grace      time.Duration
	Pace       worker.Pace  // of the workers
	Containers *Containers  // how images are run; nil: not at all
	Proxy      *Proxy       // nil: machines are reached by their own ports alone
	Devices    *devices.Set // of this host; nil: none are looked for
	// Runtime opens the runtime of one worker, with its state below dir; nil: that of Containers, or of processes,
	// under a reaper.
	Runtime func(w Worker, dir string) (Runtime, error)
}

// Containers says how a process's workers run images.
type Containers struct {
	Engines []string // names or paths of OCI runtimes; the first is that of machines that ask for none
	Budget  int64    // bytes of images that are kept beyond those in use; 0: all
	Ready   int      // how many machines at rest have a container that waits for its start
	// Credentials are those of a registry; nil: none
	Credentials func(registry string) (remote.Credentials, error)
	Registries  map[string]remote.Registry

	AllowHost bool  // machines may share their host's network
	NoNetwork error // why containers can be given no network on this host; nil: they can

	// ForwardChain is a chain of the host's own firewall in which packets of containers are let pass, see
	// hostnet.NewOpening; "": nothing is changed there.
	ForwardChain string

	Between   netplan.Way // how those of a cluster's hosts reach each other; "": not at all
	BetweenAt netip.Addr  // of this host, as the other hosts reach it
	Helper    []string    // see hostnet.TunnelOptions
}

// Runtime is a worker's runtime, which is let go of when the process ends. What runs goes on.
type Runtime interface {
	runtime.Runtime
	Close() error
}

// Worker says what one worker of this process is.
type Worker struct {
	ID       cluster.WorkerID
	Dir      string // exists
	Capacity cluster.Resources
	Offer    worker.Offer
}

// Node is the workers and the gateway of one process.
type Node struct {
	o         Options
	fleet     *fleet.Fleet     // what is known of these workers and, in a cluster, of the others
	images    *image.Store     // of all workers here; nil: none
	network   *oci.Network     // of their containers; nil: they have loopback alone
	inside    []*names.Server  // where containers find each other; none: nowhere
	between   *between         // to the containers of other hosts; nil: there is no way
	opening   *hostnet.Opening // in the host's own firewall; nil: none
	entry     *entry           // where containers come in for what sleeps or is elsewhere; nil: nowhere
	workers   []*worker.Worker
	ports     worker.Ports    // of this host
	owns      []*fleet.Own    // of workers, where this process is alone
	proxy     *proxy.Proxy    // nil: there is none
	certs     *certs.Certs    // of the proxy; nil: it has none
	loads     *fleet.Loads    // what the proxy counts, where this process is alone
	runtimes  []Runtime       // of workers, in the same order
	runners   []*batch.Runner // of workers, in the same order
	buyer     *batch.Buyer
	catalog   *catalog.Catalog
	tokens    *member.Tokens  // nil: this process is alone
	directory *find.Directory // of the workers and their machines
	broker    *broker.Broker
	claims    *broker.Claimant // decides what must be unique in an app
	services  *services.Services
	server    *http.Server
	reserve   *disk.Reserve  // nil: none is kept
	closers   []func() error // in the order of opening
}

// New opens all that the process is made of. On an error it closes again what it had opened.
func New(ctx context.Context, o Options) (*Node, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	n := &Node{o: o, fleet: fleet.New()}
	if o.Member != nil {
		n.fleet = o.Member.Fleet()
	}
	if err := n.openParts(ctx); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Node) openParts(ctx context.Context) error {
	if err := CheckPieces(n.o.Dir); err != nil {
		return err
	}
	if n.o.Reserve {
		n.reserve = disk.Open(n.o.Dir, n.o.Log)
	}
	if err := n.openCatalog(); err != nil {
		return err
	}
	if err := n.openImages(); err != nil {
		return err
	}
	if err := n.openNetwork(); err != nil {
		return err
	}
	for _, w := range n.o.Workers {
		if err := n.openWorker(ctx, w); err != nil {
			return err
		}
	}
	if err := n.openBuyer(); err != nil {
		return err
	}
	decisions, err := n.openDecisions()
	if err != nil {
		return err
	}
	if err := n.openProxy(ctx); err != nil {
		return err
	}
	if err := n.openEntry(); err != nil {
		return err
	}
	if err := n.openBroker(ctx, decisions); err != nil {
		return err
	}
	if err := n.openGateway(decisions); err != nil {
		return err
	}
	n.openServices()
	return n.notePieces()
}

// Running counts the machines that run or are about to: of a machine that was being started when souk was killed, the
// worker learns only a moment later that it runs.
func (n *Node) Running(ctx context.Context) int {
	count := 0
	for _, w := range n.workers {
		ms, err := w.Machines(ctx, "", false)
		if err != nil {
			continue // only a number for people depends on it
		}
		for _, m := range ms {
			if m.State == machine.Started || m.State == machine.Suspended || m.State.Transient() {
				count++
			}
		}
	}
	return count
}

// Leave is called before Close where no machine runs and this souk has no successor: what was there for machines ends
// with it.
func (n *Node) Leave(ctx context.Context) error {
	var err error
	for _, r := range n.runtimes {
		if l, is := r.(interface{ Leave(context.Context) error }); is {
			err = errors.Join(err, l.Leave(ctx))
		}
	}
	return err
}

// Close lets go of everything, last opened first. What runs goes on.
func (n *Node) Close() error {
	var errs []error
	for i := len(n.closers) - 1; i >= 0; i-- {
		errs = append(errs, n.closers[i]())
	}
	n.closers = nil
	return errors.Join(errs...)
}

func (n *Node) pathBelow(name string) string { return filepath.Join(n.o.Dir, name) }
