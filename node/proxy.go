package node

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/member"
	"github.com/soukhq/souk/proxy"
	"github.com/soukhq/souk/proxy/certs"
)

// Proxy says where the proxy listens for requests from outside.
type Proxy struct {
	HTTP    net.Listener // nil: none
	HTTPS   net.Listener // nil: none; needs Certs
	Certs   *Certs       // nil: nothing is served over TLS
	Domains []string     // domains below which each app has a name
	// Listen opens a port that a service asks for; nil: none is opened.
	Listen func(port int) (net.Listener, error)
	// Inside opens the listener for this host's containers, on a loopback address; nil: net.Listen.
	Inside  func(addr string) (net.Listener, error)
	Trusted []netip.Prefix // proxies in front that may name their clients
	// ProxyProtocol are TCP proxies in front whose connections begin with a PROXY protocol header
	ProxyProtocol []netip.Prefix
	Access        io.Writer // access log, a line per request; nil: none
	Sample        float64   // share of requests that Access logs; 0: all
}

// Certs says where the proxy's certificates come from, besides souk's own root for its domains.
type Certs struct {
	Files string      // a directory; "": none
	ACME  *certs.ACME // nil: none
}

// certsDir is the folder of fetched and made certificates, in the directory of the process's state.
const certsDir = "certs"

// openCerts opens the proxy's certificates. An app is looked up when a client asks for its certificate.
func (n *Node) openCerts(ctx context.Context, c *Proxy) (err error) {
	if c.Certs == nil {
		return nil
	}
	dir := n.pathBelow(certsDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fault.Wrap(err, fault.Unavailable, fault.CodeDir, "the directory %s cannot be made", dir)
	}
	n.certs, err = certs.New(ctx, certs.Options{Dir: dir, Files: c.Certs.Files, ACME: c.Certs.ACME, Local: c.Domains,
		Allowed: n.canAnswerFor, Others: n.otherProxies(), Log: n.o.Log})
	if err == nil {
		n.closers = append(n.closers, func() error { n.certs.Close(); return nil })
	}
	return err
}

func (n *Node) canAnswerFor(name string) bool { return n.proxy.Answers(name) }

// otherProxies returns this proxy's access to other members' certificates; nil: this process is alone.
func (n *Node) otherProxies() certs.Others {
	if n.o.Member == nil {
		return nil
	}
	return member.ProxiesOf(n.o.Member)
}

// serveChallenges wraps the handler of doors for HTTP in the clear to answer ACME challenges, since an authority may
// ask any member.
func (n *Node) serveChallenges(h http.Handler) http.Handler {
	if n.certs != nil {
		return n.certs.HTTPChallenge(h)
	}
	return certs.Respond(h, n.canAnswerFor, n.otherProxies())
}

// openProxy makes the proxy, which owns the machines of this process's workers.
func (n *Node) openProxy(ctx context.Context) error {
	c := n.o.Proxy
	if c == nil {
		return nil
	}
	o := proxy.Options{Fleet: n.fleet, Region: n.o.Region, Domains: c.Domains, Trusted: c.Trusted,
		ProxyProtocol: c.ProxyProtocol, Listen: c.Listen, Access: c.Access, Sample: c.Sample, Front: n.serveChallenges,
		Log: n.o.Log, Make: n.makeAnother, Kept: n.keptService}
	if err := n.openCerts(ctx, c); err != nil {
		return err
	}
	if n.certs != nil {
		o.TLS = n.certs.TLS()
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
		if n.certs != nil {
			member.ProxiesOf(m).ServeCerts(n.certs)
		}
	}
	return nil
}

// drainMachine lets the proxy drain a machine of this process. The proxy exists before workers run.
func (n *Node) drainMachine(ctx context.Context, app, machine string, most time.Duration) {
	if n.proxy != nil {
		n.proxy.Drain(ctx, app, machine, most)
	}
}

// keptService returns what souk keeps running of an app as a service.
func (n *Node) keptService(app string) (k proxy.Kept) {
	s, is := n.catalog.Services.Service(app)
	if !is || s.Head == nil || s.App.Deleting {
		return k
	}
	if r, _ := s.Applied(); r != nil {
		for i := range r.Groups {
			if g := &r.Groups[i]; s.Head.Wanted(g, s.Tenure.Scaled) > 0 && len(g.Config.Services) > 0 {
				k.Groups = append(k.Groups, proxy.KeptGroup{Name: g.Name, Services: g.Config.RoutedServices(),
					From: g.Config.From()})
			}
		}
	}
	for i := range s.Tenure.Held {
		h := &s.Tenure.Held[i]
		if k.Held == nil {
			k.Held = map[string]proxy.Held{}
		}
		k.Held[h.Machine] = proxy.Held{Why: h.Why, Until: h.Until()}
	}
	return k
}

// makeAnother makes a machine for requests; "" if one of its name exists already. The broker exists before the first
// request.
func (n *Node) makeAnother(ctx context.Context, a proxy.Another) (id string, err error) {
	m, err := n.broker.Another(ctx, a.App, a.Like, a.Name, a.Warm)
	if fault.CodeOf(err) == fault.CodeNameInUse {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return m.ID, nil
}

// runProxy runs the proxy until ctx ends, and until its last requests are answered.
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

// mostNamed bounds the certificates that a finding names.
const mostNamed = 3

// findingsOf returns the process's findings for a worker's examination: only worker 0 reports them.
func (n *Node) findingsOf(worker int) func() []cluster.Finding {
	if worker > 0 || n.o.Proxy == nil || n.o.Proxy.Certs == nil {
		return nil
	}
	return func() []cluster.Finding { return certFindings(n.certs.Problems()) }
}

// certFindings reports which certificates the proxy lacks, and why.
func certFindings(problems []api.CertificateProblem) []cluster.Finding {
	if len(problems) == 0 {
		return nil
	}
	var parts []string
	for _, p := range problems[:min(len(problems), mostNamed)] {
		what := cmp.Or(strings.Join(p.Names, ", "), p.File)
		if p.Ends != nil {
			what += " (what there is ends " + p.Ends.UTC().Format(time.RFC3339) + ")"
		}
		parts = append(parts, what+": "+p.Why)
	}
	if more := len(problems) - mostNamed; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return []cluster.Finding{{Name: "proxy: certificates",
		Have:   "not there, or not renewed: " + strings.Join(parts, "; "),
		Advice: `"souk routes" of this member says when each is tried again`}}
}
