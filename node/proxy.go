package node

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/member"
	"github.com/soukhq/souk/proxy"
	"github.com/soukhq/souk/proxy/certs"
)

// Proxy says where requests from outside come in for machines.
type Proxy struct {
	HTTP    net.Listener // nil: none
	HTTPS   net.Listener // nil: none; needs Certs
	Certs   *Certs       // nil: nothing is served over TLS
	Domains []string     // below which each app has its name
	// Listen opens a port that a service asks for; nil: none is opened.
	Listen  func(port int) (net.Listener, error)
	Trusted []netip.Prefix // who may say for whom they ask
	Access  io.Writer      // gets a line for each request; nil: none
	Sample  float64        // which share of requests Access gets; 0: all
}

// Certs says where the proxy's certificates come from, beside a root of souk's own for its domains.
type Certs struct {
	Files string      // a directory; "": none
	ACME  *certs.ACME // nil: none
}

// certsDir is where certificates that were got or made are kept, below the directory of the process's state.
const certsDir = "certs"

// openCerts opens the proxy's certificates. An app is asked for when somebody wants to see its certificate.
func (n *Node) openCerts(ctx context.Context, c *Proxy) (err error) {
	if c.Certs == nil {
		return nil
	}
	dir := n.below(certsDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fault.Wrap(err, fault.Unavailable, "dir", "the directory %s cannot be made", dir)
	}
	n.certs, err = certs.New(ctx, certs.Options{Dir: dir, Files: c.Certs.Files, ACME: c.Certs.ACME, Local: c.Domains,
		Allowed: func(name string) bool { return n.proxy.Answers(name) }, Log: n.o.Log})
	if err == nil {
		n.closers = append(n.closers, func() error { n.certs.Close(); return nil })
	}
	return err
}

// openProxy makes the proxy, which is the owner of the machines of this process's workers.
func (n *Node) openProxy(ctx context.Context) error {
	c := n.o.Proxy
	if c == nil {
		return nil
	}
	o := proxy.Options{Fleet: n.fleet, Region: n.o.Region, Domains: c.Domains, Trusted: c.Trusted, Listen: c.Listen,
		Access: c.Access, Sample: c.Sample, Log: n.o.Log}
	o.Make = n.another
	if err := n.openCerts(ctx, c); err != nil {
		return err
	}
	if n.certs != nil {
		o.TLS, o.Front = n.certs.TLS(), n.certs.HTTPChallenge
	}
	for _, w := range n.workers {
		o.Workers = append(o.Workers, w)
	}
	if m := n.o.Member; m != nil {
		o.Far, o.Report = member.ProxiesOf(m), m.Load
	} else {
		n.loads = fleet.NewLoads(func(list []fleet.Load) {
			for _, own := range n.owns {
				own.Load(list)
			}
		})
		o.Report = n.loads.Set
	}
	n.proxy = proxy.New(o)
	if m := n.o.Member; m != nil {
		member.ProxiesOf(m).Serve(n.proxy.Members())
	}
	return nil
}

// another makes a machine for requests; "" where there is one of its name already. The gateway is there before the first
// request.
func (n *Node) another(ctx context.Context, app, like, name string) (id string, err error) {
	m, err := n.gateway.Broker().Another(ctx, app, like, name)
	if fault.CodeOf(err) == "name_taken" {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return m.ID, nil
}

// runProxy runs the proxy until ctx ends, and what it has under way then.
func (n *Node) runProxy(ctx context.Context) error {
	c := n.o.Proxy
	if c == nil {
		<-ctx.Done()
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	if c.HTTP != nil {
		g.Go(func() error { return n.proxy.ServeHTTPAt(ctx, c.HTTP, nil) })
	}
	if c.HTTPS != nil && n.certs != nil {
		g.Go(func() error { return n.proxy.ServeHTTPAt(ctx, c.HTTPS, n.certs.TLS()) })
	}
	g.Go(func() error { return n.proxy.Run(ctx) })
	return g.Wait()
}
