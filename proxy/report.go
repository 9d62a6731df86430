package proxy

import (
	dto "github.com/prometheus/client_model/go"

	"github.com/soukhq/souk/api"
)

// Doors describes the open doors.
func (p *Proxy) Doors() api.Doors {
	out := api.Doors{HTTP: []string{}, HTTPS: []string{}, Domains: append([]string{}, p.o.Domains...),
		Ports: []api.DoorPort{}}
	d := &p.doors
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.http != nil {
		out.HTTP = append(out.HTTP, d.http.addr.String())
	}
	if d.tls != nil {
		out.HTTPS = append(out.HTTPS, d.tls.addr.String())
	}
	out.Ports = append(out.Ports, d.ports...)
	return out
}

// Held returns how many requests for an app wait for a machine.
func (p *Proxy) Held(app string) (n int) {
	p.pools.forEach(func(k key, x *pool) {
		if k.app == app {
			x.mu.Lock()
			n += x.routes.Held()
			x.mu.Unlock()
		}
	})
	return n
}

// Usage returns how many requests the proxy has answered, and how many wait.
func (p *Proxy) Usage() api.ProxyUsage {
	out := api.ProxyUsage{Held: p.countHeld()}
	for _, c := range p.metrics.classes {
		var m dto.Metric
		if c.Write(&m) == nil {
			out.Requests += uint64(m.GetCounter().GetValue())
		}
	}
	return out
}
