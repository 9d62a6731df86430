package cluster_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/soukhq/souk/cluster"
)

// TestAddressesDependOnClusterAppAndMachineOnly: an address depends on cluster, app and machine and on nothing else, and lies where it should.
func TestAddressesDependOnClusterAppAndMachineOnly(t *testing.T) {
	of := cluster.Network("home")
	seen := map[netip.Addr]string{}
	for i := range 20 {
		app := cluster.AppNetwork(of, fmt.Sprint("app", i))
		if app.Bits() != 96 || !of.Contains(app.Addr()) || !app.Addr().IsPrivate() {
			t.Fatalf("%s in %s", app, of)
		}
		for j := range 200 {
			a := cluster.MachineAddress(app, fmt.Sprintf("%d", j))
			name := fmt.Sprint(i, "/", j)
			if was, is := seen[a]; is || !app.Contains(a) {
				t.Errorf("%s has %s, as %s has", name, a, was)
			}
			seen[a] = name
		}
	}
	// The addresses of machines that run must not change with a release.
	if a := cluster.MachineAddress(cluster.AppNetwork(of, "web"), "m1"); a.String() != want {
		t.Errorf("%s, want %s", a, want)
	}
}

const want = "fd56:39b6:c60d:9289:9029:724c:3ac7:2228"

func BenchmarkAppNetwork(b *testing.B) {
	for b.Loop() {
		cluster.AppNetwork(cluster.Network("home"), "web")
	}
}
