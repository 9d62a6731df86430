package node

import (
	"context"
	"maps"
	"time"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/machine"
)

const (
	cpuEvery = 5 * time.Second // that machines are measured which are scaled by their CPU, and no others
	cpuBand  = 5               // per cent of a machine's CPUs: a smaller change is not told
)

// cpuMeter finds out how much of their CPUs machines use.
type cpuMeter map[string]*cpuUse

// cpuUse is what is known of one machine.
type cpuUse struct {
	last     machine.Use
	reported int // per cent; -1: nothing yet
}

// noteUses takes what machines use, and returns those of which to tell. cpus says for each machine to measure how much
// CPU it may use, in thousandths of a CPU; others are forgotten.
func (c cpuMeter) noteUses(uses []machine.Use, cpus map[string]int64) (list []fleet.CPU) {
	maps.DeleteFunc(c, func(id string, _ *cpuUse) bool { return cpus[id] == 0 })
	for _, u := range uses {
		if cpus[u.Machine] == 0 {
			continue
		}
		x := c[u.Machine]
		if x == nil {
			c[u.Machine] = &cpuUse{u, -1}
			continue
		}
		last := x.last
		x.last = u
		if u.CPU < last.CPU || u.At <= last.At { // it has begun anew
			continue
		}
		percent := int((u.CPU - last.CPU) * 100_000 / (u.At - last.At) / cpus[u.Machine])
		if x.reported < 0 || percent >= x.reported+cpuBand || percent <= x.reported-cpuBand {
			x.reported = percent
			list = append(list, fleet.CPU{Machine: u.Machine, Percent: percent})
		}
	}
	return list
}

// measureCPUs tells how much of their CPUs those machines of this process use that are scaled by it, until ctx ends.
func (n *Node) measureCPUs(ctx context.Context) {
	meters := make([]cpuMeter, len(n.workers))
	for wait.For(ctx, cpuEvery) == nil {
		for i, w := range n.workers {
			cpus := n.scaledByCPU(i)
			if len(cpus) == 0 {
				meters[i] = nil
				continue
			}
			if meters[i] == nil {
				meters[i] = cpuMeter{}
			}
			uses, err := w.Use(ctx)
			if err != nil {
				n.o.Log.Warn("machines that are scaled by their CPU cannot be measured", "worker", w.ID(), "err", err)
				continue
			}
			list := meters[i].noteUses(uses, cpus)
			switch {
			case len(list) == 0:
			case n.o.Member != nil:
				n.o.Member.CPU(list)
			default:
				n.owns[i].CPU(list)
			}
		}
	}
}

// scaledByCPU returns how much CPU each machine of a worker may use that is up and whose group is scaled by it.
func (n *Node) scaledByCPU(worker int) map[string]int64 {
	var out map[string]int64
	id, app := n.workers[worker].ID(), ""
	var groups []release.Group
	for m := range n.fleet.Snapshot().AllMachines() { // by app
		if m.Worker != id || m.Replica == nil || m.State != machine.Started {
			continue
		}
		if m.App != app {
			app, groups = m.App, nil
			if s, is := n.catalog.Services.Service(app); is {
				if r, _ := s.InForce(); r != nil {
					groups = r.Groups
				}
			}
		}
		for i := range groups {
			if g := &groups[i]; g.Name == m.Replica.Group && g.Autoscale != nil && g.Autoscale.By() == release.CPU {
				if out == nil {
					out = map[string]int64{}
				}
				out[m.ID] = machine.MostCPU(g.Config)
			}
		}
	}
	return out
}
