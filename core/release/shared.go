package release

import (
	"fmt"
	"slices"
	"strings"

	"github.com/soukhq/souk/machine"
)

// Warnings returns warnings about a valid release that is seldom intended: groups with the same name or port at the
// proxies, each of which gets a part of the requests. app is the app's name.
func (r *Release) Warnings(app string) (out []string) {
	var order []door
	at := map[door][]string{} // names of groups, in the release's order
	for i := range r.Groups {
		g := &r.Groups[i]
		for _, d := range doorsOf(g.Config, app) {
			if at[d] == nil {
				order = append(order, d)
			}
			if !slices.Contains(at[d], g.Name) {
				at[d] = append(at[d], g.Name)
			}
		}
	}
	said := map[string]bool{}
	for _, d := range order {
		groups := at[d]
		key := strings.Join(groups, " ") + d.help
		if len(groups) < 2 || said[key] { // one warning for several names is enough
			continue
		}
		said[key] = true
		last := len(groups) - 1
		out = append(out, fmt.Sprintf("groups %s and %s answer %s, and each gets a part of them: %s",
			strings.Join(groups[:last], ", "), groups[last], d.name, d.help))
	}
	return out
}

// door is an address by which outside requests reach a machine, and advice on how to separate two groups there.
type door struct{ name, help string }

// doorsOf lists the doors of a config.
func doorsOf(c *machine.Config, app string) (out []door) {
	add := func(name, help string) { out = append(out, door{name, help}) }
	const hosts = "give the services of each names of their own (hosts), or leave services out of the one that " +
		"needs none"
	for i := range c.Services {
		s := &c.Services[i]
		if s.Protocol == "udp" {
			continue // the proxies pass on only TCP
		}
		if s.IsHTTP() {
			for _, h := range s.Hosts {
				add("requests for "+h, hosts)
			}
			if len(s.Hosts) == 0 {
				add("requests for "+app, hosts)
			}
		}
		for j := range s.Ports {
			p := &s.Ports[j]
			if p.Port == nil || slices.Contains(p.Handlers, "http") && (*p.Port == 80 || *p.Port == 443) {
				continue
			}
			add(fmt.Sprintf("connections at port %d", *p.Port), "give each a port of its own (ports)")
		}
	}
	return out
}
