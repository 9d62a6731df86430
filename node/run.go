package node

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait"
)

// Run serves the API at all of at and works until ctx ends or a part fails. Then everything ends, since a worker
// without its journal can promise nothing; machines go on running. When ctx ends the proxy's requests end first: they
// may wait for a machine to wake.
func (n *Node) Run(ctx context.Context, at ...net.Listener) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, gctx := errgroup.WithContext(work)
	requests, shut := context.WithCancel(gctx)
	defer context.AfterFunc(ctx, shut)()
	g.Go(func() error {
		defer stop()
		return n.runProxy(requests)
	})
	for i, w := range n.workers {
		g.Go(func() error { return w.Run(gctx) })
		g.Go(func() error { n.runners[i].Run(gctx, w); return nil })
	}
	if n.far != nil {
		g.Go(func() error { n.far.begin(gctx); return nil })
	}
	g.Go(func() error { return n.buyer.Run(gctx) })
	n.runFiles(gctx, g)
	if n.o.DNS != nil {
		g.Go(func() error { return n.o.DNS.Run(gctx) })
	}
	for _, s := range n.inside {
		g.Go(func() error { return s.Run(gctx) })
	}
	if n.entry != nil {
		g.Go(func() error { return n.entry.serveConns(requests) })
	}
	if n.loads != nil {
		g.Go(func() error { n.loads.Run(gctx); return nil })
	}
	if n.opening != nil {
		g.Go(func() error { keepOpen(gctx, n.opening, n.o.Log); return nil })
	}
	if n.between != nil {
		g.Go(func() error { n.between.run(gctx); return nil })
	}
	if n.o.Devices != nil {
		g.Go(func() error { n.followDevices(gctx); return nil })
	}
	g.Go(func() error { n.jobs.FollowAwaited(gctx); return nil })
	g.Go(func() error { n.services.Run(gctx); return nil })
	g.Go(func() error { n.watchTrials(gctx); return nil })
	g.Go(func() error { n.measureCPUs(gctx); return nil })
	g.Go(func() error { n.tellBudgets(gctx); return nil })
	if n.o.Member != nil {
		g.Go(func() error { n.tellApart(gctx); return nil })
	}
	g.Go(func() error { n.reserve.Keep(gctx); return nil })
	if n.images != nil {
		g.Go(func() error { n.relieveImages(gctx); return nil })
	}
	if m := n.o.Member; m != nil {
		g.Go(func() error { return m.Run(gctx) })
		g.Go(func() error { return m.FollowTwins(gctx, n.halt) })
		g.Go(func() error { m.Import(gctx, n.catalog); return nil })
		g.Go(func() error { n.tokens.Keep(gctx); return nil })
	}
	for _, ln := range at {
		g.Go(func() error {
			if err := n.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
				return fault.Wrap(err, fault.Internal, codeServe, "the API stopped serving")
			}
			return nil
		})
	}
	g.Go(func() error { return n.watchCatalog(gctx) })
	g.Go(func() error { n.catalog.Keys.Tend(gctx); return nil })
	g.Go(func() error { <-gctx.Done(); return n.shutDownAPI(gctx) })
	return g.Wait()
}

// halt has the own worker start nothing, and the buyer give out nothing, while there is a reason why.
func (n *Node) halt(ctx context.Context, why func() string) error {
	if n.far != nil {
		n.far.halt(why())
	}
	return n.workers[0].Halt(ctx, why)
}

// relieveEvery is how often the disk is checked for lack of room for images.
const relieveEvery = 10 * time.Second

// relieveImages removes unused images while their disk is nearly full, whatever fills it.
func (n *Node) relieveImages(ctx context.Context) {
	for wait.For(ctx, relieveEvery) == nil {
		freed, err := n.images.Relieve(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			n.o.Log.Warn("the disk of the images is nearly full, and unused ones could not be removed", "err", err)
		case freed > 0:
			n.o.Log.Info("the disk of the images is nearly full: unused ones were removed", "freed_mb", freed>>20)
		}
	}
}

// watchCatalog returns an error when the catalog can no longer be written.
func (n *Node) watchCatalog(ctx context.Context) error {
	select {
	case <-n.catalog.Failed():
		return fault.New(fault.Unavailable, fault.CodeCatalog,
			"the catalog could not be written: see that the disk is well and has room, then start souk again; what "+
				"runs goes on")
	case <-ctx.Done():
		return nil
	}
}

// shutDownAPI ends the API, and cuts off requests that take longer than Grace: streams with follow never end by
// themselves.
func (n *Node) shutDownAPI(ctx context.Context) error {
	if n.o.Grace == 0 {
		return n.server.Close()
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.o.Grace)
	defer cancel()
	if n.server.Shutdown(grace) != nil {
		return n.server.Close()
	}
	return nil
}
