package node

import (
	"context"
	"errors"
	"maps"
	"path/filepath"

	"github.com/soukhq/souk/broker/known"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/buyers"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/gateway"
	"github.com/soukhq/souk/internal/atrest"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/member"
	"github.com/soukhq/souk/runtime/image"
	"github.com/soukhq/souk/runtime/image/remote"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/runtime/process"
	"github.com/soukhq/souk/runtime/reaper/proc"
	"github.com/soukhq/souk/store/catalog"
	"github.com/soukhq/souk/store/decisionlog"
	"github.com/soukhq/souk/store/disk"
	"github.com/soukhq/souk/store/journal"
	"github.com/soukhq/souk/store/journal/bolt"
	"github.com/soukhq/souk/store/journal/wal"
	"github.com/soukhq/souk/worker"
	"github.com/soukhq/souk/worker/batch"
)

func (n *Node) openCatalog() error {
	j, err := n.openJournal(n.pathBelow(catalogFile))
	if err != nil {
		return err
	}
	n.catalog, err = catalog.Open(j, n.pathBelow(secretsFile))
	return err
}

func (n *Node) openJournal(path string) (journal.Journal, error) {
	j, err := bolt.Open(path, bolt.Options{Write: n.reserve.Write})
	if err != nil {
		return nil, err
	}
	n.closers = append(n.closers, j.Close)
	return j, nil
}

// openWorkerJournal opens a journal whose commits callers wait for: a log in front of it halves the cost of a commit.
func openWorkerJournal(path string, write journal.Writing) (journal.Journal, error) {
	inner, err := bolt.Open(path, bolt.Options{Write: write})
	if err != nil {
		return nil, err
	}
	j, err := wal.Open(inner, path, wal.Options{Write: write})
	if err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	return j, nil
}

// openWorker opens one worker, with its journal, its runtime and its runner of tasks.
func (n *Node) openWorker(ctx context.Context, p Worker) error {
	j, err := openWorkerJournal(filepath.Join(p.Dir, workerJournal), n.reserve.Write)
	if err != nil {
		return err
	}
	n.closers = append(n.closers, j.Close)
	r, err := n.openRuntime(p, filepath.Join(p.Dir, workerRun))
	if err != nil {
		return err
	}
	n.closers, n.runtimes = append(n.closers, r.Close), append(n.runtimes, r)
	n.completeOffer(&p)
	anew, err := n.canBeginAnew(p)
	if err != nil {
		return err
	}
	tasks, err := n.newRunner(&p, r)
	if err != nil {
		return err
	}
	own := n.fleet.Own(p.ID)
	var observer worker.Observer = own
	if n.o.Member != nil { // the member informs the fleet and the other members
		observer = n.o.Member
	}
	var mayBegin func(context.Context, bool) string
	if n.o.Member != nil {
		mayBegin = n.o.Member.MayBegin
	}
	w, err := worker.New(
		ctx,
		worker.Options{
			ID:       p.ID,
			Boot:     proc.BootID(),
			Observer: observer,
			Region:   n.o.Region,
			Dir:      p.Dir,
			Capacity: p.Capacity,
			Offer:    p.Offer,
			Journal:  j,
			Runtime:  r,
			Ports:    &n.ports,
			Images:   n.images,
			Wanted:   n.catalog.Services.WantedImages,
			Sized:    n.o.Sized,
			Secrets:  awaitSecrets(ctx, n.catalog.Secrets.OpenSecrets),
			Users:    n.o.UnixUsers,
			Tasks:    tasks,
			Drain:    n.drainMachine,
			MayBegin: mayBegin,
			Log:      n.o.Log,
			Pace:     n.o.Pace,
			Anew:     anew,
			Full:     n.reserve.Full,
			Findings: n.findingsOf(len(n.workers)),
		},
	)
	if err != nil {
		return err
	}
	n.workers, n.runners = append(n.workers, w), append(n.runners, tasks)
	if n.o.Member != nil {
		return nil // Attach will enter its machines
	}
	n.owns = append(n.owns, own)
	return own.Begin(ctx, w)
}

// completeOffer adds to a worker's offer what its host has.
func (n *Node) completeOffer(p *Worker) {
	n.offerEngines(p)
	n.offerDevices(p)
	n.offerUsers(p)
	if n.between != nil {
		n.between.addAttributes(p.Offer.Attributes)
	}
}

// newRunner makes the runner of tasks of one worker.
func (n *Node) newRunner(w *Worker, r Runtime) (*batch.Runner, error) {
	files, err := n.openKept(*w)
	if err != nil {
		return nil, err
	}
	o := batch.RunnerOptions{Worker: w.ID, Runtime: r, Log: n.o.Log, Users: n.o.UnixUsers, Sent: n.sent, Kept: files,
		SharesFile: filepath.Join(w.Dir, workerShares), Secrets: openForTask(n.catalog.Secrets.OpenNamed),
		Backfill: n.o.Backfill}
	if n.o.Member != nil {
		o.Removed = n.o.Member.IsRemoved
	}
	return batch.NewRunner(o), nil
}

// offerDevices adds the host's devices to the first worker, unless the operator has set its GPUs. With two workers each
// device would be granted twice.
func (n *Node) offerDevices(p *Worker) {
	if p.Offer.Found = p.Offer.Found && len(n.workers) == 0; p.Offer.Found {
		p.Offer.GPUs = n.o.Devices.Offer()
	}
}

// followDevices looks now and then for devices that came, went, or are not well.
func (n *Node) followDevices(ctx context.Context) {
	for wait.For(ctx, n.o.Devices.Next()) == nil {
		if n.o.Devices.Look(ctx) {
			n.workers[0].Devices(n.o.Devices.Offer())
		}
	}
}

// offerEngines adds a worker's OCI runtimes to its attributes; the first is the default.
func (n *Node) offerEngines(p *Worker) {
	if n.images == nil {
		return
	}
	p.Offer.Attributes = maps.Clone(p.Offer.Attributes)
	if p.Offer.Attributes == nil {
		p.Offer.Attributes = cluster.Attributes{}
	}
	engines := n.o.Containers.Engines
	p.Offer.Attributes[cluster.ContainersAttribute] = cluster.Text(filepath.Base(engines[0]))
	for _, e := range engines {
		p.Offer.Attributes[cluster.RuntimeAttribute(filepath.Base(e))] = cluster.Truth(true)
	}
}

// offerUsers adds to a worker's attributes as which Unix users it runs programs.
func (n *Node) offerUsers(p *Worker) {
	if n.o.UnixUsers == nil {
		return
	}
	p.Offer.Attributes = maps.Clone(p.Offer.Attributes)
	if p.Offer.Attributes == nil {
		p.Offer.Attributes = cluster.Attributes{}
	}
	p.Offer.Attributes[cluster.UnixUsersAttribute] = cluster.Text(n.o.UnixUsers.String())
}

// openImages opens the store of images that the workers here share.
func (n *Node) openImages() (err error) {
	c := n.o.Containers
	if c == nil {
		return nil
	}
	n.images, err = image.Open(image.Options{Dir: n.pathBelow(imagesDir), Budget: c.Budget, KeepFree: disk.Bytes,
		Remote: remote.Options{Credentials: c.Credentials, Registries: c.Registries}})
	if err == nil {
		n.closers = append(n.closers, n.images.Close)
	}
	return err
}

// openRuntime opens the runtime of one worker, with its state in dir.
func (n *Node) openRuntime(w Worker, dir string) (Runtime, error) {
	p := process.Options{Dir: dir, Log: n.o.Log, AllowRoot: n.o.AllowRoot, Devices: n.o.Devices,
		OwnUsersOnly: n.o.UnixUsers != nil}
	switch {
	case n.o.Runtime != nil:
		return n.o.Runtime(w, dir)
	case n.images != nil:
		awake, err := whyNoHibernate()
		if err != nil {
			return nil, err
		}
		return oci.Open(oci.Options{Process: p, Engines: n.o.Containers.Engines, Images: oci.Stored{Store: n.images},
			Ready: n.o.Containers.Ready, Network: n.network, Awake: awake})
	}
	return process.Open(p)
}

// whyNoHibernate returns why machines are not suspended to disk: their memory would have secrets in clear there, while
// souk seals its keys; nil: they may be. err says that this could not be determined.
func whyNoHibernate() (why, err error) {
	seals, err := atrest.Seals()
	if seals {
		why = fault.New(fault.Precondition, atrest.Fault, "the machine's secrets would be on the disk in clear, "+
			"while this worker seals secrets with a key from outside its disk (%s)", atrest.EnvFile)
	}
	return why, err
}

// openBuyer opens the buyer of tasks and connects it with the runners, before anything else is granted.
func (n *Node) openBuyer() error {
	j, err := n.openJournal(n.pathBelow(jobsFile))
	if err != nil {
		return err
	}
	o := batch.BuyerOptions{Journal: j, Dir: n.pathBelow(jobsDir), Boot: proc.BootID(),
		Caps: n.namespaceCaps, Write: n.reserve.Write, Log: n.o.Log}
	if m := n.o.Member; m != nil {
		n.far = &farRunners{member: m, buyer: func() *batch.Buyer { return n.buyer }, log: n.o.Log,
			conns: map[cluster.WorkerID]*farRunner{}}
		o.Member, o.Peers, o.Members = m.ID(), n.far, jobMembers{n.far}
		if o.Copies, err = n.openJournal(n.pathBelow(copiesFile)); err != nil {
			return err
		}
		m.RunTasksBy(servedRunner{n.runners[0]})
	}
	if n.buyer, err = batch.OpenBuyer(o); err != nil {
		return err
	}
	n.closers = append(n.closers, n.buyer.Close)
	if n.o.Emptying {
		return nil
	}
	for _, r := range n.runners {
		if err := n.buyer.Attach(context.Background(), batch.Local(r)); err != nil {
			return err
		}
	}
	return nil
}

// openDecisions opens the decision log; it returns nil if the log is switched off.
func (n *Node) openDecisions() (*decisionlog.Log, error) {
	if n.o.DecisionMB == 0 {
		return nil, nil
	}
	l, err := decisionlog.Open(
		decisionlog.Options{Dir: n.pathBelow(DecisionsDir), MaxBytes: n.o.DecisionMB << 20, Log: n.o.Log})
	if err != nil {
		return nil, err
	}
	n.closers = append(n.closers, l.Close)
	return l, nil
}

// openBroker makes the broker, which places all machines that this process makes: over the workers of this process and,
// in a cluster, over those of the other members.
func (n *Node) openBroker(ctx context.Context, decisions *decisionlog.Log) error {
	own := map[cluster.WorkerID]find.Worker{}
	for _, w := range n.workers {
		own[w.ID()] = w
	}
	o := known.Options{Catalog: n.catalog, Region: n.o.Region, Log: decisions}
	if m := n.o.Member; m != nil {
		if err := n.connectMember(ctx, m); err != nil {
			return err
		}
		own[m.ID()] = ownWorker{n.workers[0], m}
		o.Peers, o.Self, o.Agree = m, m.ID(), m.Agree
		o.Unfit = func() error { return twinOf(m) }
	}
	n.directory = &find.Directory{Fleet: n.fleet, Apps: n.catalog.Apps,
		Worker: func(id cluster.WorkerID) (find.Worker, bool) {
			if w, here := own[id]; here || n.o.Member == nil {
				return w, here
			}
			return n.o.Member.Other(id)
		}}
	o.Directory = n.directory
	n.jobs = n.jobsOfAll()
	n.broker, n.claims = known.New(o)
	n.closers = append(n.closers, func() error { n.broker.Close(); return nil })
	if m := n.o.Member; m != nil {
		m.DecideBy(n.claims)
	}
	return nil
}

// jobsOfAll makes the jobs of all members: those of the own buyer and, in a cluster, those of the others.
func (n *Node) jobsOfAll() *buyers.Jobs {
	o := buyers.Options{Own: n.buyer, Called: n.directory.Contact.Called}
	if m := n.o.Member; m != nil {
		m.KeepJobs(n.buyer)
		m.KeepCopies(n.buyer)
		m.KeepSent(jobFiles{n})
		o.Self, o.Others, o.Other = m.ID(), m.Buyers, m.Buyer
	}
	return buyers.New(o)
}

// twinOf returns why this member may make no machines: another process with its id is alive. A removed member goes on
// with its own worker, as a cut-off one does: any holder of the gossip key could write its removal.
func twinOf(m *member.Member) error {
	if err := m.Unfit(); fault.CodeOf(err) == fault.CodeTwin {
		return err
	}
	return nil
}

// openGateway makes the gateway.
func (n *Node) openGateway(decisions *decisionlog.Log) error {
	options := gateway.Options{
		Directory: n.directory,
		Catalog:   n.catalog,
		Broker:    n.broker,
		Claims:    n.claims,
		Jobs:      n.jobs,
		OwnJobs:   n.buyer,
		JobFiles:  jobFiles{n},
		Decisions: decisions,
		UnixUsers: n.o.UnixUsers,
		Full:      n.reserve.Full,
		Token:     n.o.Token,
		Region:    n.o.Region,
		Log:       n.o.Log,
		Build:     n.o.Build,
	}
	if n.images != nil {
		options.Images = n.images
	}
	if n.proxy != nil {
		options.Proxy = n.proxy
	}
	if n.certs != nil {
		options.Certs = n.certs
	}
	if m := n.o.Member; m != nil {
		options.Tokens = n.tokens
		options.Evictions = member.NewEvictions(m, n.tokens, n.catalog)
		options.Cluster, options.Self, options.Stewards = m, m.ID(), m.Stewards
		options.LostAfter, options.Agree = m.LostAfter(), m.Agree
	}
	g, err := gateway.New(options)
	if err != nil {
		return err
	}
	n.server = g.Server()
	return nil
}

// connectMember connects the member with its worker, its catalog and its token, which it announces to the others.
func (n *Node) connectMember(ctx context.Context, m *member.Member) error {
	if err := m.Attach(ctx, n.workers[0]); err != nil {
		return err
	}
	if err := m.Share(n.catalog); err != nil {
		return err
	}
	n.tokens = member.NewTokens(m, n.o.KeepToken)
	return n.tokens.Own(n.o.Token)
}

// ownWorker is a member's own worker; Examine adds the member's findings.
type ownWorker struct {
	*worker.Worker
	m *member.Member
}

// Examine returns the findings of the worker, and the member's.
func (o ownWorker) Examine(ctx context.Context) []cluster.Finding {
	return append(o.Worker.Examine(ctx), o.m.Findings()...)
}
