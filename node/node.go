// Package node assembles one souk process: its workers with their journals and runtimes, the buyer of tasks, the
// catalog, the decision log, the gateway and, in a cluster, the member that it is. "souk dev", "souk agent", package
// testcluster and the benchmarks all run what New makes, so that tests and measurements exercise the product.
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
	"github.com/soukhq/souk/core/backfill"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/fleet/buyers"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/internal/unixuser"
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
	"github.com/soukhq/souk/store/kept"
	"github.com/soukhq/souk/store/sent"
	"github.com/soukhq/souk/worker"
	"github.com/soukhq/souk/worker/batch"
)

// Names in the directory of a process's state.
const (
	DecisionsDir  = "decisions"
	catalogFile   = "catalog.journal"
	secretsFile   = "secrets.key"
	jobsFile      = "jobs.journal"
	copiesFile    = "copies.journal" // of the jobs of other members
	jobsDir       = "jobs"
	sentDir       = "sent"
	workerKept    = "kept"
	workerShares  = "shares.json" // what accounts have used there
	workerJournal = "journal"     // in the worker's own directory
	workerRun     = "run"
	imagesDir     = "images"
)

// Options say what runs in one process. Dir, Token and at least one of Workers are needed.
type Options struct {
	Dir   string // must exist; used by one process at a time
	Token string // valid for the API; in a cluster the member's own
	// KeepToken stores each token that replaces Token, for local readers; nil: Token is never replaced.
	KeepToken func(token string) error
	Region    cluster.Region
	Workers   []Worker
	Build     cluster.Build // reported by the API

	// Reserve keeps spare room on the disk of Dir, so that the process can go on when the disk is full.
	Reserve    bool
	AllowRoot  bool            // machines may run as root
	Backfill   backfill.Policy // what tasks may have reserved room until it is used
	UnixUsers  *unixuser.Users // whom tasks may run as; nil: nobody
	Sized      bool            // new volumes have an enforced size
	DecisionMB int64           // size of the decision log; 0: no log
	DNS        *names.Server   // the DNS server to run; nil: none
	Member     *member.Member  // in a cluster: the member, with one worker of the same id; nil: alone
	Log        *slog.Logger    // nil: nothing is logged

	// Emptying says that the Node is opened for Empty, not for Run: waiting tasks are not started.
	Emptying bool

	// Grace is how long requests under way may take once the process ends; 0: they are cut off.
	Grace      time.Duration
	Pace       worker.Pace  // of the workers
	Containers *Containers  // how images run; nil: images do not run
	Proxy      *Proxy       // nil: machines are reached only by their own ports
	Devices    *devices.Set // this host's devices; nil: none are looked for
	// Runtime opens the runtime of one worker, with its state in dir; nil: the runtime for Containers, or for
	// processes, under a reaper.
	Runtime func(w Worker, dir string) (Runtime, error)
}

// Containers says how a process's workers run images.
type Containers struct {
	Engines []string // names or paths of OCI runtimes; the first is the default
	Budget  int64    // bytes of unused images to keep; 0: all
	Ready   int      // how many stopped machines have a container prepared for their start
	// Credentials returns a registry's credentials; nil: none
	Credentials func(registry string) (remote.Credentials, error)
	Registries  map[string]remote.Registry

	AllowHost bool  // machines may share their host's network
	NoNetwork error // why containers cannot have a network on this host; nil: they can

	// ForwardChain is a chain of the host's own firewall that souk opens for containers' packets, see
	// hostnet.NewOpening; "": none is changed.
	ForwardChain string

	Between   netplan.Way // how containers of different hosts reach each other; "": not at all
	BetweenAt netip.Addr  // this host's address for the other hosts
	Helper    []string    // see hostnet.TunnelOptions
}

// Runtime is a worker's runtime. Closing it when the process ends leaves its programs running.
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
	fleet     *fleet.Fleet     // the picture of these workers and, in a cluster, of the others
	images    *image.Store     // shared by all workers here; nil: none
	network   *oci.Network     // the containers' network; nil: they have only loopback
	inside    []*names.Server  // the containers' DNS servers; may be empty
	between   *between         // the tunnel to other hosts' containers; nil: none
	opening   *hostnet.Opening // the rules in the host's own firewall; nil: none
	entry     *entry           // the containers' entry to sleeping and remote apps; nil: none
	workers   []*worker.Worker
	ports     worker.Ports    // this host's ports in use
	owns      []*fleet.Own    // feeds of the fleet, if this process is alone
	proxy     *proxy.Proxy    // nil: there is none
	certs     *certs.Certs    // the proxy's; nil: none
	loads     *fleet.Loads    // the proxy's loads, if this process is alone
	runtimes  []Runtime       // of the workers, in the same order
	runners   []*batch.Runner // of the workers, in the same order
	buyer     *batch.Buyer
	sent      *sent.Store   // what jobs are sent
	kept      []*kept.Store // the files that tasks leave, of the workers, in the same order
	far       *farRunners   // connects the buyer with other members' runners; nil: there are none
	jobs      *buyers.Jobs  // of all members
	catalog   *catalog.Catalog
	tokens    *member.Tokens  // nil: this process is alone
	directory *find.Directory // finds the workers and their machines
	broker    *broker.Broker
	claims    *broker.Claimant // keeps names and keys unique in an app
	services  *services.Services
	server    *http.Server
	reserve   *disk.Reserve  // nil: no reserve
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
	if err := n.openSent(); err != nil {
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

// Running counts the machines that run or are about to. It includes starting ones: after a kill of souk during a start,
// the worker learns only a moment later that the machine runs.
func (n *Node) Running(ctx context.Context) int {
	count := 0
	for _, w := range n.workers {
		ms, err := w.Machines(ctx, "", false)
		if err != nil {
			continue // the count is only informational
		}
		for _, m := range ms {
			if m.State == machine.Started || m.State == machine.Suspended || m.State.Transient() {
				count++
			}
		}
	}
	return count
}

// Leave ends what the runtimes keep on the host for machines. Call it before Close if no machine runs and no new souk
// process follows.
func (n *Node) Leave(ctx context.Context) error {
	var err error
	for _, r := range n.runtimes {
		if l, is := r.(interface{ Leave(context.Context) error }); is {
			err = errors.Join(err, l.Leave(ctx))
		}
	}
	return err
}

// Close closes everything, last opened first. Machines go on running.
func (n *Node) Close() error {
	var errs []error
	for i := len(n.closers) - 1; i >= 0; i-- {
		errs = append(errs, n.closers[i]())
	}
	n.closers = nil
	return errors.Join(errs...)
}

func (n *Node) pathBelow(name string) string { return filepath.Join(n.o.Dir, name) }
