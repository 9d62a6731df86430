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

// Proxies is a member as its proxy sees it: the way to those of the others.
type Proxies struct{ m *Member }

// ProxiesOf returns the way from a member to the proxies of the others.
func ProxiesOf(m *Member) Proxies { return Proxies{m} }

// Serve has h serve what other members' proxies send here. It is called before Member.Run.
func (p Proxies) Serve(h wire.Proxied) { p.m.proxy = h }

// DialProxy connects to the proxy of the member that a worker belongs to.
func (p Proxies) DialProxy(ctx context.Context, id cluster.WorkerID) (net.Conn, error) {
	return p.m.client.DialProxy(ctx, string(id), p.m.addressOf(id))
}

// ServeCerts has c answer what other members' proxies ask of certificates. It is called before Member.Run.
func (p Proxies) ServeCerts(c wire.Certs) { p.m.certs = c }

// heardMembers lists the other members that can be asked now.
func (p Proxies) heardMembers() (list []*Far) {
	for _, f := range p.m.Others() {
		if f.unheardError() == nil {
			list = append(list, f)
		}
	}
	return list
}

// askAtOnce bounds how many members are asked at once whether one of them has something.
const askAtOnce = 16

// Challenge asks the others, all of those that can be heard, what one of them has to prove to an ACME authority that a
// name is its own.
func (p Proxies) Challenge(ctx context.Context, name, token string) (proof string, known bool) {
	ctx, found := context.WithCancel(ctx)
	defer found()
	proofs := make(chan string, 1)
	var g errgroup.Group
	g.SetLimit(askAtOnce)
	for _, f := range p.heardMembers() {
		g.Go(func() error {
			// one that was asked in vain has nothing to prove; once one has answered, ctx has ended
			if s, has, err := f.Link.Challenge(ctx, name, token); err == nil && has {
				select {
				case proofs <- s:
					found()
				default: // tokens are an authority's own, and another was given the same
				}
			}
			return nil
		})
	}
	_ = g.Wait() // they return none
	select {
	case proof = <-proofs:
		return proof, true
	default:
		return "", false
	}
}

// Ranked lists the other members that can be heard, in the order in which they care for the certificate of a name:
// those that do so before this one, and those after it.
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
