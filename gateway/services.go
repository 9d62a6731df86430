package gateway

import (
	"cmp"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/routing"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
)

// Proxy is what a gateway needs of its process's proxy.
type Proxy interface {
	// Doors describes the open doors.
	Doors() api.Doors
	// Held returns how many requests for an app wait for a machine.
	Held(app string) int
	// Usage returns the proxy's counters.
	Usage() api.ProxyUsage
	// Recent returns the record of a request; only some are kept, and not for long.
	Recent(id string) (api.ProxiedRequest, bool)
	Collectors() []prometheus.Collector
}

// Certs is what a gateway needs of the proxy's certificates.
type Certs interface {
	// Problems lists the apps' names that have no certificate, or no newer one, and why.
	Problems() []api.CertificateProblem
	// Failures counts failed tries of this process to get or renew a certificate.
	Failures() uint64
}

// servicesAPI serves the services that requests from outside can reach.
type servicesAPI struct {
	proxy     Proxy // nil: this process has none
	certs     Certs // nil: the proxy serves no TLS
	directory *directory
}

func (a *servicesAPI) opHandlers() handlers {
	return handlers{
		"GET /v1/souk/services":           a.listServices,
		"GET /v1/souk/routes":             a.listRoutes,
		"GET /v1/souk/requests/{request}": a.getRequest,
	}
}

func noProxy() error {
	return fault.New(fault.Precondition, codeNoProxy,
		"this souk has no proxy, so it forwards no requests to machines; ask another member, or start it with --http")
}

func (a *servicesAPI) listServices(w http.ResponseWriter, r *http.Request) error {
	app := r.URL.Query().Get("app")
	if app != "" {
		if _, err := a.directory.Apps.App(app); err != nil {
			return err
		}
	}
	out := api.ServiceList{Services: []api.ServiceInfo{}}
	var doors api.Doors
	if a.proxy != nil {
		doors = a.proxy.Doors()
		out.Doors = &doors
	}
	for _, s := range servicesOf(a.directory.Fleet.Snapshot(), app, &doors) {
		if a.proxy != nil {
			s.Held = a.proxy.Held(s.App)
		}
		out.Services = append(out.Services, *s)
	}
	answerJSON(w, http.StatusOK, out)
	return nil
}

func (a *servicesAPI) getRequest(w http.ResponseWriter, r *http.Request) error {
	if a.proxy == nil {
		return noProxy()
	}
	id := r.PathValue("request")
	q, known := a.proxy.Recent(id)
	if !known {
		return fault.New(fault.NotFound, codeRequestNotFound, "the request %s is not kept here: only the member "+
			"that took a request keeps it, for a while, and only if it woke a machine or failed; ask that member, "+
			"or look in its access log", clipText(id, 80))
	}
	answerJSON(w, http.StatusOK, q)
	return nil
}

// servicesOf lists the services of an app, "" for all apps, by app and port.
func servicesOf(s *fleet.Snapshot, app string, doors *api.Doors) []*api.ServiceInfo {
	all := s.AllMachines()
	if app != "" {
		all = s.MachinesOf(app)
	}
	byGroup := map[string]*api.ServiceInfo{}
	for m := range all {
		heard := false
		if w, known := s.Worker(m.Worker); known {
			heard = w.Reachable()
		}
		one := api.ServiceMachine{ID: m.ID, Name: m.Name, State: m.State, Worker: m.Worker, Region: m.Region,
			Load: m.Load, Failing: m.Failing, Cordoned: m.Cordoned, Unheard: !heard}
		for i := range m.Services {
			x := &m.Services[i]
			group := m.App + " " + strconv.Itoa(x.InternalPort) + " " + strings.Join(x.Hosts, " ")
			g := byGroup[group]
			if g == nil {
				g = serviceInfo(m.App, x, doors)
				byGroup[group] = g
			}
			g.Machines = append(g.Machines, one)
			if m.Replica != nil {
				g.Groups = withGroups(g.Groups, m.Replica.Group)
			}
			g.Load += m.Load
			if b := (routing.Backend{Power: routing.PowerOf(m.State), Autostart: x.Autostart == nil || *x.Autostart,
				Cordoned: m.Cordoned, Unheard: !heard}); b.Sleeps() {
				g.Spares++
			}
			if heard && m.State == machine.Started && !m.Failing && !m.Cordoned {
				g.Up++
			}
		}
	}
	return slices.SortedFunc(maps.Values(byGroup), func(a, b *api.ServiceInfo) int {
		return cmp.Or(cmp.Compare(a.App, b.App), cmp.Compare(a.Port, b.Port), slices.Compare(a.Hosts, b.Hosts))
	})
}

// withGroups adds missing groups to a sorted list.
func withGroups(list []string, more ...string) []string {
	for _, group := range more {
		if at, there := slices.BinarySearch(list, group); !there {
			list = slices.Insert(list, at, group)
		}
	}
	return list
}

// serviceInfo describes a service by its config.
func serviceInfo(app string, s *machine.Service, doors *api.Doors) *api.ServiceInfo {
	p := routing.PolicyOf(s)
	out := &api.ServiceInfo{App: app, Hosts: append([]string{}, s.Hosts...), Port: s.InternalPort, Protocol: "tcp",
		Outside: []int{}, URLs: []string{}, Autostart: p.Autostart, Autostop: "off", Min: p.Min, Max: p.Max,
		CreateUpTo: p.CreateUpTo, Warm: p.Warm,
		Concurrency: "connections", Soft: p.Soft, Hard: p.Hard, Machines: []api.ServiceMachine{}}
	switch p.Autostop {
	case routing.IsStopped:
		out.Autostop = "stop"
	case routing.IsSuspended:
		out.Autostop = "suspend"
	}
	if p.Autostop != routing.StaysUp {
		out.AutostopAfter = p.IdleAfter.Seconds()
	}
	if p.Requests {
		out.Concurrency = "requests"
	}
	if s.Protocol == "udp" {
		out.Protocol = "udp"
	}
	for i := range s.Ports {
		h := s.Ports[i].Handlers
		if slices.Contains(h, "http") {
			out.Protocol = "http"
		}
		if n := s.Ports[i].Port; n != nil && !(slices.Contains(h, "http") && (*n == 80 || *n == 443)) {
			out.Outside = append(out.Outside, *n)
		}
	}
	if out.Protocol == "http" {
		for _, name := range hostsOf(out) {
			out.URLs = append(out.URLs, urlsOf(name, doors)...)
		}
	}
	for _, d := range doors.Ports {
		if d.App == app && slices.Contains(out.Outside, d.Port) && !d.Shut {
			out.URLs = append(out.URLs, "tcp://"+d.At)
		}
	}
	return out
}

// hostsOf returns the host names of an HTTP service.
func hostsOf(s *api.ServiceInfo) []string {
	if len(s.Hosts) > 0 {
		return s.Hosts
	}
	return []string{s.App}
}

// urlsOf returns the URLs of a name at a member's doors.
func urlsOf(name string, doors *api.Doors) (urls []string) {
	hosts := []string{name}
	if !strings.Contains(name, ".") {
		hosts = nil
		for _, d := range doors.Domains {
			hosts = append(hosts, name+"."+d)
		}
	}
	for _, h := range hosts {
		for _, at := range doors.HTTPS {
			urls = append(urls, "https://"+h+portOf(at, "443"))
		}
		for _, at := range doors.HTTP {
			urls = append(urls, "http://"+h+portOf(at, "80"))
		}
	}
	return urls
}

// portOf returns an address's port as a URL suffix; "" for the usual one.
func portOf(at, usual string) string {
	if _, port, err := net.SplitHostPort(at); err == nil && port != usual {
		return ":" + port
	}
	return ""
}

// listRoutes lists the names and ports of apps. If several apps claim the same one, the proxy serves one of them, and
// the entry names the others.
func (a *servicesAPI) listRoutes(w http.ResponseWriter, _ *http.Request) error {
	if a.proxy == nil {
		return noProxy()
	}
	out := api.RouteList{Doors: a.proxy.Doors(), Routes: []api.RouteInfo{}}
	byKey := map[string]*api.RouteInfo{}
	var order []*api.RouteInfo
	add := func(x api.RouteInfo, s *api.ServiceInfo, wins bool) {
		x.App, x.Inside, x.Up, x.Machines = s.App, s.Port, s.Up, len(s.Machines)
		x.Spares, x.Warm, x.Made, x.Groups = s.Spares, s.Warm, s.CreateUpTo, slices.Clone(s.Groups)
		key := x.Host + ":" + strconv.Itoa(x.Port)
		old := byKey[key]
		switch {
		case old == nil:
			byKey[key] = &x
			order = append(order, &x)
		case old.App == x.App:
			old.Up, old.Machines, old.Groups = old.Up+x.Up, old.Machines+x.Machines, withGroups(old.Groups, x.Groups...)
			old.Spares, old.Warm, old.Made = old.Spares+x.Spares, old.Warm+x.Warm, old.Made+x.Made
		case wins:
			x.Shadowed = append(old.Shadowed, old.App)
			*old = x
		case !slices.Contains(old.Shadowed, x.App):
			old.Shadowed = append(old.Shadowed, x.App)
		}
	}
	for _, s := range servicesOf(a.directory.Fleet.Snapshot(), "", &out.Doors) {
		if s.Protocol == "http" {
			for _, h := range hostsOf(s) {
				x := api.RouteInfo{Host: h}
				if urls := urlsOf(h, &out.Doors); len(urls) > 0 {
					x.URL = urls[0]
				}
				add(x, s, len(s.Hosts) == 0) // an app's own name goes before names that services claim
			}
		}
		for _, port := range s.Outside {
			x := api.RouteInfo{Port: port}
			for _, d := range out.Doors.Ports {
				if d.Port == port && d.Shut {
					x.Problem = "the port cannot be opened here: something else may have it; see souk's log"
				} else if d.Port == port {
					x.URL = "tcp://" + d.At
				}
			}
			if x.URL == "" && x.Problem == "" {
				x.Problem = "no port is open here for it"
			}
			add(x, s, false)
		}
	}
	slices.SortStableFunc(order, func(a, b *api.RouteInfo) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port))
	})
	a.tellCertificates(order, out.Doors.Domains)
	for _, x := range order {
		out.Routes = append(out.Routes, *x)
	}
	answerJSON(w, http.StatusOK, out)
	return nil
}

// tellCertificates adds the certificate problems known here to the routes.
func (a *servicesAPI) tellCertificates(routes []*api.RouteInfo, domains []string) {
	if a.certs == nil {
		return
	}
	byName := map[string]*api.CertificateProblem{}
	problems := a.certs.Problems()
	for i := range problems {
		for _, name := range problems[i].Names {
			byName[name] = &problems[i]
		}
	}
	for _, x := range routes {
		names := []string{x.Host}
		if !strings.Contains(x.Host, ".") {
			names = nil
			for _, d := range domains {
				names = append(names, x.Host+"."+d)
			}
		}
		for _, name := range names {
			x.Certificate = cmp.Or(x.Certificate, byName[name])
		}
	}
}

// certCollector counts failed certificate orders. Only the member that orders a certificate counts it.
type certCollector struct{ certs Certs }

// Describe describes nothing, as workerCollector's does.
func (certCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the count, if the proxy has certificates.
func (c certCollector) Collect(out chan<- prometheus.Metric) {
	if c.certs != nil {
		desc := prometheus.NewDesc("souk_proxy_certificate_failures_total",
			"Certificates that this member tried to get or renew and an ACME authority did not give.", nil, nil)
		out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(c.certs.Failures()))
	}
}
