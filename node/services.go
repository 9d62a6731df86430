package node

import (
	"context"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fleet/trials"
	"github.com/soukhq/souk/services"
)

// watchTrials ends comparisons of schedulers by themselves, until ctx ends.
func (n *Node) watchTrials(ctx context.Context) {
	o := trials.Options{Jobs: n.jobs, Catalog: n.catalog.Namespaces, Log: n.o.Log}
	if m := n.o.Member; m != nil {
		o.Self, o.Members = m.ID(), m.Stewards
	}
	trials.NewWatch(o).Run(ctx)
}

// openServices makes the services.Services of this process.
func (n *Node) openServices() {
	hands := services.Market{Broker: n.broker,
		Worker: func(id cluster.WorkerID) (services.Operator, bool) { return n.directory.Worker(id) }}
	o := services.Options{Self: n.workers[0].ID(), Catalog: n.catalog.Services, Fleet: n.fleet, Log: n.o.Log,
		Hands: hands}
	if m := n.o.Member; m != nil {
		o.Members, o.LostAfter = m, m.LostAfter()
	}
	n.services = services.New(o)
	if n.o.Member != nil {
		n.o.Member.CarryBy(n.services)
	}
}
