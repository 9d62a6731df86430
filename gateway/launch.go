package gateway

import (
	"net/http"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// readLaunch reads the body of a create or an update.
func readLaunch(w http.ResponseWriter, r *http.Request) (*machine.Launch, error) {
	raw, err := readBody(w, r)
	if err != nil {
		return nil, err
	}
	var l machine.Launch
	if err := decode(raw, &l); err != nil {
		return nil, err
	}
	if l.Config == nil || l.Config.Image == "" {
		return nil, fault.New(fault.Invalid, "config", "config.image is missing; name what is to run, such as \"souk/host\"")
	}
	return &l, nil
}

// launchResources gives what a config asks for.
func launchResources(c *machine.Config) (cluster.Resources, error) {
	g := machine.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 256}
	if c != nil && c.Guest != nil {
		g = *c.Guest
	}
	return guestResources(&g)
}

// guestResources gives what a guest alone asks for.
func guestResources(g *machine.Guest) (cluster.Resources, error) {
	per := int64(1000)
	if g.CPUKind == "shared" {
		per = 62
	}
	if g.CPUs < 0 || g.MemoryMB < 0 || g.CPUs > 1<<20 || g.MemoryMB > 1<<30 {
		return cluster.Resources{}, fault.New(fault.Invalid, "guest", "a guest of %d CPUs and %d MB cannot be", g.CPUs, g.MemoryMB)
	}
	return cluster.Resources{CPU: int64(g.CPUs) * per, Memory: int64(g.MemoryMB)}, nil
}

// presetGuest gives the guest of a preset's name.
func presetGuest(string) (machine.Guest, error) {
	return machine.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 256}, nil
}
