package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	goruntime "runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/batch"
	"github.com/soukhq/souk/catalog"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/decisionlog"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/gateway"
	"github.com/soukhq/souk/journal"
	"github.com/soukhq/souk/journal/bolt"
	"github.com/soukhq/souk/journal/wal"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/member"
	"github.com/soukhq/souk/names"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/worker"
)

// nodeOptions say what runs in this process.
type nodeOptions struct {
	dir     string
	token   string
	region  cluster.Region
	workers []workerPlan
	log     *slog.Logger

	decisionMB int64          // of the decision log; 0: none is kept
	dns        *names.Server  // nil: none
	member     *member.Member // of a cluster; nil: this process is alone
}

// node is the workers and the gateway of this process.
type node struct {
	workers []*worker.Worker
	buyer   *batch.Buyer
	runners []*batch.Runner // of workers, in the same order
	gateway *gateway.Gateway
	server  *http.Server
	member  *member.Member
	dns     *names.Server
	catalog *catalog.Catalog
	closers []func() error // in the order of opening
}

// startNode opens all there is. On an error everything that was opened is closed again.
func startNode(ctx context.Context, o nodeOptions) (n *node, err error) {
	n = &node{member: o.member, dns: o.dns}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	j, err := n.openJournal(filepath.Join(o.dir, "catalog.journal"))
	if err != nil {
		return n, err
	}
	rows, err := catalog.Open(j, filepath.Join(o.dir, "secrets.key"))
	if err != nil {
		return n, err
	}
	n.catalog = rows
	for _, p := range o.workers {
		if err := n.addWorker(ctx, o, p, rows.OpenSecrets); err != nil {
			return n, err
		}
	}
	if err := n.openBuyer(o); err != nil {
		return n, err
	}
	decisions, err := n.openDecisions(o)
	if err != nil {
		return n, err
	}
	g, err := n.openGateway(ctx, o, decisions)
	if err != nil {
		return n, err
	}
	n.gateway, n.server = g, g.Server()
	return n, nil
}

// openGateway makes the gateway: over the workers of this process, and of the cluster's other members if it is one's.
func (n *node) openGateway(ctx context.Context, o nodeOptions, decisions *decisionlog.Log) (*gateway.Gateway, error) {
	own := make([]gateway.Worker, len(n.workers))
	for i, w := range n.workers {
		own[i] = w
	}
	options := gateway.Options{Workers: func() []gateway.Worker { return own }, Catalog: n.catalog, Jobs: n.buyer, Decisions: decisions, Token: o.token,
		Region: o.region, Log: o.log, Version: version()}
	if m := o.member; m != nil {
		if err := m.Attach(ctx, n.workers[0]); err != nil {
			return nil, err
		}
		if err := m.Share(n.catalog); err != nil {
			return nil, err
		}
		if err := m.AllowToken(o.token); err != nil {
			return nil, err
		}
		options.Workers = func() []gateway.Worker {
			all := []gateway.Worker{ownWorker{n.workers[0], m}}
			for _, far := range m.Others() {
				all = append(all, far)
			}
			return all
		}
		options.Where, options.Authenticate, options.Members = m.Cluster().Where, m.Allowed, m.Cluster().Members
		options.Cluster = m
	}
	return gateway.New(options)
}

// ownWorker is a member's own worker, whose examination tells what the member knows of the others, too.
type ownWorker struct {
	*worker.Worker
	m *member.Member
}

// Examine is the worker's, and the member's.
func (o ownWorker) Examine(ctx context.Context) []runtime.Finding {
	return append(o.Worker.Examine(ctx), o.m.Finding())
}

// openDecisions opens the decision log, below the directory of this node's state; nil where it is switched off.
func (n *node) openDecisions(o nodeOptions) (*decisionlog.Log, error) {
	if o.decisionMB == 0 {
		return nil, nil
	}
	l, err := decisionlog.Open(decisionlog.Options{Dir: filepath.Join(o.dir, decisionsDir), MaxBytes: o.decisionMB << 20, Log: o.log})
	if err != nil {
		return nil, err
	}
	n.closers = append(n.closers, l.Close)
	return l, nil
}

// decisionsDir is where decisions are recorded, below the directory of souk's state.
const decisionsDir = "decisions"

func (n *node) openJournal(path string) (journal.Journal, error) {
	j, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		return nil, err
	}
	n.closers = append(n.closers, j.Close)
	return j, nil
}

// openWorkerJournal opens a journal whose commits somebody waits for: a log in front halves what one costs.
func openWorkerJournal(path string) (journal.Journal, error) {
	inner, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		return nil, err
	}
	j, err := wal.Open(inner, path, wal.Options{})
	if err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	return j, nil
}

func (n *node) addWorker(ctx context.Context, o nodeOptions, p workerPlan, secrets gateway.SecretsOf) error {
	j, err := openWorkerJournal(filepath.Join(p.dir, "journal"))
	if err != nil {
		return err
	}
	n.closers = append(n.closers, j.Close)
	r, err := openRuntime(filepath.Join(p.dir, "run"), o.log)
	if err != nil {
		return err
	}
	n.closers = append(n.closers, r.Close)
	tasks := batch.NewRunner(batch.RunnerOptions{Worker: p.id, Runtime: r, Log: o.log})
	var observer worker.Observer
	if o.member != nil {
		observer = o.member
	}
	w, err := worker.New(ctx, worker.Options{ID: p.id, Observer: observer, Region: o.region, Dir: p.dir, Capacity: p.capacity, Offer: p.offer, Journal: j, Runtime: r,
		Secrets: secrets, Tasks: tasks, Log: o.log})
	if err != nil {
		return err
	}
	n.workers, n.runners = append(n.workers, w), append(n.runners, tasks)
	return nil
}

// openBuyer opens the buyer of tasks and connects it with what runs them, before anything else is granted.
func (n *node) openBuyer(o nodeOptions) error {
	j, err := n.openJournal(filepath.Join(o.dir, "jobs.journal"))
	if err != nil {
		return err
	}
	boot, _ := readLine("/proc/sys/kernel/random/boot_id") // "" only leaves the number of an attempt in doubt
	if n.buyer, err = batch.OpenBuyer(batch.BuyerOptions{Journal: j, Dir: filepath.Join(o.dir, "jobs"), Boot: boot, Log: o.log}); err != nil {
		return err
	}
	n.closers = append(n.closers, n.buyer.Close)
	for _, r := range n.runners {
		n.buyer.Attach(r)
	}
	return nil
}

// shutdownGrace is how long requests under way may take once souk is to end.
const shutdownGrace = 1 * time.Second

// serve works until ctx ends, or until a part fails: then all of it ends, since a worker without its journal can
// promise nothing, and what runs goes on anyway.
func (n *node) serve(ctx context.Context, ln net.Listener) error {
	g, gctx := errgroup.WithContext(ctx)
	for i, w := range n.workers {
		g.Go(func() error { return w.Run(gctx) })
		g.Go(func() error { n.runners[i].Run(gctx, w); return nil })
	}
	g.Go(func() error { return n.buyer.Run(gctx) })
	if n.dns != nil {
		g.Go(func() error { return n.dns.Run(gctx) })
	}
	g.Go(func() error { n.tellBudgets(gctx); return nil })
	if n.member != nil {
		g.Go(func() error { return n.member.Run(gctx) })
		g.Go(func() error { n.member.Import(gctx, n.catalog); return nil })
	}
	g.Go(func() error {
		if err := n.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			return fault.Wrap(err, fault.Internal, "serve", "the API stopped serving")
		}
		return nil
	})
	g.Go(func() error {
		select {
		case <-n.catalog.Failed():
			return fault.New(fault.Unavailable, "catalog", "the catalog could not be written: see that the disk is well and has room, then start souk again; what runs goes on")
		case <-gctx.Done():
			return nil
		}
	})
	g.Go(func() error {
		<-gctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer cancel()
		if n.server.Shutdown(grace) != nil {
			return n.server.Close() // streams that follow something have no end of their own
		}
		return nil
	})
	return g.Wait()
}

// running counts the machines that run, or are on their way: of one whose start was under way when souk was killed the
// worker knows only a moment later that it runs.
func (n *node) running(ctx context.Context) int {
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

// close lets go of everything, last opened first. What runs goes on.
func (n *node) close() error {
	var errs []error
	for i := len(n.closers) - 1; i >= 0; i-- {
		errs = append(errs, n.closers[i]())
	}
	n.closers = nil
	return errors.Join(errs...)
}

// portsOffered is how many listening ports a worker's machines may ask for.
const portsOffered = 10_000

// capacityOf gives what this host has to offer, or what the flags say it has.
func capacityOf(dir string, o *devFlags) (cluster.Resources, error) {
	r := cluster.Resources{CPU: int64(goruntime.NumCPU()) * 1000, Ports: portsOffered}
	if o.cpus != 0 {
		r.CPU = int64(o.cpus) * 1000
	}
	r.Memory = o.memory
	if r.Memory == 0 {
		total, err := memInfo("MemTotal")
		if err != nil {
			return r, fault.Wrap(err, fault.Unavailable, "memory", "how much memory this host has cannot be read; give --memory")
		}
		r.Memory = total
	}
	disk, err := freeDisk(dir)
	if err != nil {
		return r, fault.Wrap(err, fault.Unavailable, "disk", "how much room %s has cannot be read", dir)
	}
	r.Disk = disk
	if r.CPU <= 0 || r.Memory <= 0 || !r.Valid() {
		return r, usagef("--cpus and --memory are sensible numbers above 0")
	}
	return r, nil
}
