package member

import (
	"context"
	"net"
	"net/http"

	"github.com/soukhq/souk/cluster"
)

// Proxies is a member as its proxy sees it: the way to those of the others.
type Proxies struct{ m *Member }

// ProxiesOf returns the way from a member to the proxies of the others.
func ProxiesOf(m *Member) Proxies { return Proxies{m} }

// Serve has h serve what other members' proxies send here. It is called before Member.Run.
func (p Proxies) Serve(h http.Handler) { p.m.proxy = h }

// DialProxy connects to the proxy of the member that a worker belongs to.
func (p Proxies) DialProxy(ctx context.Context, id cluster.WorkerID) (net.Conn, error) {
	return p.m.client.DialProxy(ctx, string(id), p.m.addressOf(id))
}
