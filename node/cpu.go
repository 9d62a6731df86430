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
	cpuEvery = 5 * time.Second // how often machines scaled by their CPU are measured; others are not
	cpuBand  = 5               // per cent of a machine's CPUs: smaller changes are not reported
)

// cpuMeter computes the machines' CPU use, by machine id.
type cpuMeter map[string]*cpuUse

// cpuUse is the last measurement of one machine.
type cpuUse struct {
	last     machine.Use
	reported int // per cent; -1: nothing reported yet
}

// noteUses takes new measurements, and returns the machines whose use must be reported. cpus has the machines to
// measure with their limit, in thousandths of a CPU; others are forgotten.
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
		if u.CPU < last.CPU || u.At <= last.At { // it was restarted
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

// measureCPUs measures and reports the CPU use of this process's machines that are scaled by CPU, until ctx ends.
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

// scaledByCPU returns a worker's started machines whose group is scaled by CPU, with their CPU limits.
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
