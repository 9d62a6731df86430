package server

import (
	"strings"
	"testing"

	"github.com/soukhq/souk/node"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
)

// TestUnusableNetworkModeIsRefusedAtStart: a way that cannot be had is refused before anything is opened, and none is what nobody asked for.
func TestUnusableNetworkModeIsRefusedAtStart(t *testing.T) {
	for _, c := range []struct {
		way, host string
		off       bool
		want      netplan.Way
		says      string
	}{
		{"", "h1", true, "", ""},
		{"none", "h1", true, "", ""},
		{"wireguard", "10.0.0.1", false, netplan.WireGuard, ""},
		{"vxlan", "2001:db8::1", false, netplan.VXLAN, ""},
		{"ipsec", "10.0.0.1", false, "", `none, vxlan or wireguard, not "ipsec"`},
		{"wireguard", "h1", false, "", `needs an IP address at which the other hosts reach this one, not "h1"`},
		{"wireguard", "127.0.0.1", false, "", "give --host"},
		{"wireguard", "10.0.0.1", true, "", "this worker runs none: --containers is off"},
	} {
		o := &agentFlags{Between: c.way, Host: c.host, Wire: defaultWire}
		p := containerPlan{how: new(node.Containers)}
		if c.off {
			p = containerPlan{why: "--containers is off"}
		}
		err := o.planBetween(&p)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s at %s: %v, want %q", c.way, c.host, err, c.says)
		}
		if p.how != nil && p.how.Between != c.want {
			t.Errorf("%s at %s: %q, want %q", c.way, c.host, p.how.Between, c.want)
		}
	}
}
