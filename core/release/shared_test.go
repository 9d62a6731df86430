package release

import (
	"slices"
	"strings"
	"testing"

	"github.com/soukhq/souk/machine"
)

// TestGroupsSharingANameOrPortAreReported: groups that answer to one name or port are named with what sets them apart, each set of
// them once; names, ports and protocols of their own are nobody's concern.
func TestGroupsSharingANameOrPortAreReported(t *testing.T) {
	web := func(hosts ...string) machine.Service {
		return machine.Service{InternalPort: 8080, Hosts: hosts, Ports: []machine.Port{
			{Port: new(80), Handlers: []string{"http"}}, {Port: new(443), Handlers: []string{"tls", "http"}}}}
	}
	tcp := func(port int) machine.Service {
		return machine.Service{InternalPort: 5432, Ports: []machine.Port{{Port: &port}}}
	}
	udp := tcp(53)
	udp.Protocol = "udp"
	for name, c := range map[string]struct {
		groups [][]machine.Service
		want   []string
	}{
		"one group":        {[][]machine.Service{{web(), web()}}, nil},
		"without services": {[][]machine.Service{{web()}, nil}, nil},
		"the app's name": {[][]machine.Service{{web()}, {web()}},
			[]string{"groups a and b answer requests for shop, and each"}},
		"names of their own": {[][]machine.Service{{web()}, {web("admin")}, {web("www.example.com")}}, nil},
		"one name of several": {[][]machine.Service{{web("x", "y")}, {web("z", "y")}},
			[]string{"groups a and b answer requests for y, and"}},
		"several names, once": {[][]machine.Service{{web("x", "y")}, {web("x", "y")}},
			[]string{"answer requests for x, and"}},
		"three": {[][]machine.Service{{web()}, {web()}, {web()}},
			[]string{"groups a, b and c answer requests for shop"}},
		"a port": {[][]machine.Service{{tcp(5432)}, {tcp(5433)}, {tcp(5432)}},
			[]string{"groups a and c answer connections at port 5432"}},
		"UDP": {[][]machine.Service{{udp}, {udp}}, nil},
		"a name and a port": {[][]machine.Service{{web(), tcp(22)}, {web(), tcp(22)}},
			[]string{"requests for shop", "at port 22"}},
		"no ports, no handler": {[][]machine.Service{{{InternalPort: 8080}}, {{InternalPort: 8080}}}, nil},
	} {
		var r Release
		for i, list := range c.groups {
			r.Groups = append(r.Groups, Group{Name: string(rune('a' + i)), Config: &machine.Config{Services: list}})
		}
		got := r.Warnings("shop")
		same := slices.EqualFunc(got, c.want, strings.Contains)
		if !same {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
