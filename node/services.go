package node

import (
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/gateway"
	"github.com/soukhq/souk/services"
)

// openServices makes what keeps the services that this process carries. The gateway is there, whose broker places their
// machines.
func (n *Node) openServices(worker func(cluster.WorkerID) (gateway.Worker, bool)) {
	hands := services.Market{Broker: n.gateway.Broker(),
		Worker: func(id cluster.WorkerID) (services.Operator, bool) { return worker(id) }}
	o := services.Options{Self: n.workers[0].ID(), Catalog: n.catalog, Fleet: n.fleet, Log: n.o.Log, Hands: hands}
	if m := n.o.Member; m != nil {
		o.Members, o.LostAfter = m, m.LostAfter()
	}
	n.services = services.New(o)
	if n.o.Member != nil {
		n.o.Member.CarryBy(n.services)
	}
}
