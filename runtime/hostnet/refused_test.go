package hostnet_test

import (
	"net"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/runtime/hostnet"
)

// TestBlockedConnectionIsRefusedAtOnce: a connection that is not let through ends at once, by IPv4 and IPv6, wherever it is refused.
func TestBlockedConnectionIsRefusedAtOnce(t *testing.T) {
	world(t, apart(t)) // a host that knows a way out refuses what one that knows none does not pass on either
	n := hostnet.New("souk-t")
	in, at := map[string]*space{}, map[string]hostnet.Addresses{}
	for _, id := range []string{"a", "b", "closed"} {
		p := plan(id, id)
		p.Closed = id == "closed"
		s := inner(t)
		a, err := n.Attach(s.pid, id, p)
		must(t, err)
		in[id], at[id] = s, a
	}
	in["a"].serve(80, "a")
	// Some resets of a new namespace's first connection are lost (Linux 6.18).
	for _, from := range []string{"b", "closed"} {
		_, _ = in[from].get(net.JoinHostPort(at["a"].V6.String(), "80"))
	}
	nobody := cluster.MachineAddress(cluster.AppNetwork(network, "b"), "nobody")
	for _, x := range []struct{ what, from, to string }{
		{"another app", "b", net.JoinHostPort(at["a"].V6.String(), "80")},
		{"another app by IPv4", "b", net.JoinHostPort(at["a"].V4.String(), "80")},
		{"an address that nobody has", "b", net.JoinHostPort(nobody.String(), "80")},
		{"the host", "b", "[fe80::1%eth0]:80"},
		{"the host by IPv4", "b", "169.254.1.1:80"},
		{"metadata", "b", "[fd00:ec2::254]:80"},
		{"metadata by IPv4", "b", "169.254.169.254:80"},
		{"the outside, of a closed one", "closed", "[2001:db8::1]:80"},
		{"the outside by IPv4, of a closed one", "closed", "203.0.113.1:80"},
	} {
		began := time.Now()
		got, err := in[x.from].get(x.to)
		if took := time.Since(began); err == nil || took > 500*time.Millisecond {
			t.Errorf("%s: %q, %v, after %v", x.what, got, err, took)
		}
	}
}
