package member

import (
	"context"
	"net"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/mesh/wire"
)

// Proxies is a member as its proxy needs it: it reaches the proxies of other members.
type Proxies struct{ m *Member }

// ProxiesOf returns the Proxies of a member.
func ProxiesOf(m *Member) Proxies { return Proxies{m} }

// Serve sets the handler of requests from other members' proxies. Call it before Member.Run.
func (p Proxies) Serve(h wire.Proxied) { p.m.proxy = h }

// DialProxy connects to the proxy of the member that a worker belongs to.
func (p Proxies) DialProxy(ctx context.Context, id cluster.WorkerID) (net.Conn, error) {
	return p.m.client.DialProxy(ctx, string(id), p.m.addressOf(id))
}

// ServeCerts sets what answers other proxies' questions on certificates. Call it before Member.Run.
func (p Proxies) ServeCerts(c wire.Certs) { p.m.certs = c }

// heardMembers lists the other members that are reachable now.
func (p Proxies) heardMembers() (list []*Far) {
	for _, f := range p.m.Others() {
		if f.unheardError() == nil {
			list = append(list, f)
		}
	}
	return list
}

// askAtOnce bounds how many members Challenge asks concurrently.
const askAtOnce = 16

// Challenge asks all reachable members for the proof of a name's ACME challenge, which one of them has.
func (p Proxies) Challenge(ctx context.Context, name, token string) (proof string, known bool) {
	ctx, found := context.WithCancel(ctx)
	defer found()
	proofs := make(chan string, 1)
	var g errgroup.Group
	g.SetLimit(askAtOnce)
	for _, f := range p.heardMembers() {
		g.Go(func() error {
			// an error counts as no proof; the first proof ends ctx
			if s, has, err := f.Link.Challenge(ctx, name, token); err == nil && has {
				select {
				case proofs <- s:
					found()
				default: // a second proof; tokens are unique, so it is the same
				}
			}
			return nil
		})
	}
	_ = g.Wait() // the functions return no error
	select {
	case proof = <-proofs:
		return proof, true
	default:
		return "", false
	}
}

// Ranked lists the reachable members in the order in which they care for the certificate of a name: those before this
// one, and those after it.
func (p Proxies) Ranked(name string) (before, after []cluster.WorkerID) {
	ids := []cluster.WorkerID{p.m.ID()}
	for _, f := range p.heardMembers() {
		ids = append(ids, f.id)
	}
	ids = cluster.Rendezvous(ids, "certificate\x00"+name)
	own := slices.Index(ids, p.m.ID())
	return ids[:own], ids[own+1:]
}

// Certificate asks another member's proxy for the certificate for a name and its key, as PEM.
func (p Proxies) Certificate(ctx context.Context, id cluster.WorkerID, name string, kept bool) (chain, key []byte,
	err error) {
	f, known := p.m.Other(id)
	if !known {
		return nil, nil, fault.New(fault.NotFound, codeMemberNotFound, "no member %s is known here", id)
	}
	return f.Link.Certificate(ctx, name, kept)
}
