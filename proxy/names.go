package proxy

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
)

// keyOf returns which machines a request is for, by the door that it came in at and the name that it asks for.
func (p *Proxy) keyOf(d *Door, host string) (key, error) {
	if d.App != "" {
		return key{app: d.App, port: d.Port}, nil
	}
	name := bareHost(host)
	s := p.o.Fleet.Snapshot()
	for _, domain := range p.o.Domains {
		label, below := strings.CutSuffix(name, domain)
		if label, below2 := strings.CutSuffix(label, "."); below && below2 && label != "" {
			if k, known := keyOfLabel(s, label); known {
				return k, nil
			}
		}
	}
	if app, claimed := s.AppOfHost(name); claimed {
		return key{app: app, host: name}, nil
	}
	if k, kept := p.keyKept(name); kept {
		return k, nil
	}
	return key{}, p.nobodyIs(name)
}

// learnTime is how long after its start a proxy may not know all names yet, since other members have not reported their
// machines.
const learnTime = 5 * time.Second

// keyOnce is keyOf, but for an unknown name it first waits until the other members have reported: the name may be one
// of theirs.
func (p *Proxy) keyOnce(ctx context.Context, d *Door, host string) (key, error) {
	k, err := p.keyOf(d, host)
	if err == nil || time.Since(p.began) > learnTime || !p.pools.places.Enter("") {
		return k, err
	}
	defer p.pools.places.Leave("")
	late := time.NewTimer(time.Until(p.began.Add(learnTime)))
	defer late.Stop()
	for {
		s := p.o.Fleet.Snapshot()
		if k, err = p.keyOf(d, host); err == nil || !isUnreported(s) {
			return k, err
		}
		select {
		case <-s.Past():
		case <-late.C:
			return k, err
		case <-ctx.Done():
			return k, errClientGone
		}
	}
}

// isUnreported reports whether some member may not have reported its machines yet.
func isUnreported(s *fleet.Snapshot) bool {
	return slices.ContainsFunc(s.MustAsk(), func(id cluster.WorkerID) bool {
		w, known := s.Worker(id)
		return known && !w.Own
	})
}

// Answers reports whether some app answers to a name.
func (p *Proxy) Answers(name string) bool {
	_, err := p.keyOf(&Door{p: p}, name)
	return err == nil
}

// keyOfLabel returns the key of a label below one of the domains: an app's own name goes before names that services
// claim.
func keyOfLabel(s *fleet.Snapshot, label string) (key, bool) {
	own := key{app: label}
	for m := range s.MachinesOf(label) {
		if own.serviceIn(m.Services) != nil {
			return own, true
		}
	}
	if app, claimed := s.AppOfHost(label); claimed {
		return key{app: app, host: label}, true
	}
	return key{}, false
}

func (p *Proxy) nobodyIs(name string) error {
	domain := "a domain of this proxy"
	if len(p.o.Domains) > 0 {
		domain = p.o.Domains[0]
	}
	return fault.New(fault.NotFound, codeHost,
		"no app answers to the name %.80q here; an app with an HTTP service is APP.%s, and souk routes lists them",
		name, domain)
}

// bareHost returns a host in lower case, without its port and the dot at its end.
func bareHost(host string) string {
	if strings.HasPrefix(host, "[") || strings.Count(host, ":") == 1 {
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

func regionOf(s string) cluster.Region {
	first, _, _ := strings.Cut(s, ",")
	return cluster.Region(strings.TrimSpace(first))
}

// trustsClient reports whether the peer at an address is a trusted proxy, which may name its client.
func (p *Proxy) trustsClient(remote string) bool {
	if len(p.o.Trusted) == 0 {
		return false
	}
	a, err := netip.ParseAddrPort(remote)
	return err == nil && p.trustsAddr(a.Addr())
}

func (p *Proxy) trustsAddr(a netip.Addr) bool {
	for _, t := range p.o.Trusted {
		if t.Contains(a.Unmap()) {
			return true
		}
	}
	return false
}

// clientOf returns a request's client: its peer, or if that is a trusted proxy, the last address in X-Forwarded-For
// that is not one. Anyone can have written the addresses before it.
func (p *Proxy) clientOf(r *http.Request, peer string) string {
	if !p.trustsClient(r.RemoteAddr) {
		return peer
	}
	list := strings.Split(strings.Join(r.Header["X-Forwarded-For"], ","), ",")
	for _, s := range slices.Backward(list) {
		a, err := netip.ParseAddr(strings.TrimSpace(s))
		if err != nil {
			break
		}
		if peer = a.String(); !p.trustsAddr(a) {
			break
		}
	}
	return peer
}

// sourceOf returns the key by which a client's requests are counted: its address, or for IPv6 its network, since one
// client has all of it.
func sourceOf(client string) string {
	a, err := netip.ParseAddr(client)
	if err != nil || a.Is4() || a.Is4In6() {
		return client
	}
	prefix, err := a.WithZone("").Prefix(64)
	if err != nil {
		return client
	}
	return prefix.String()
}
