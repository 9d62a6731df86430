package place

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

func defaultCallers() int { return runtime.GOMAXPROCS(0) }

// measureFloor measures grants at workers in turn: the cost of a create without deciding, checking or recording.
func (t *testbed) measureFloor(o Options) (us float64, err error) {
	var c cost
	for c.creates < o.Creates {
		launches := make([]*machine.Launch, endEvery)
		for i := range launches {
			launches[i] = t.newLaunch(true)
		}
		made := make([]*machine.Machine, 0, endEvery)
		begin, used := time.Now(), cpuTime()
		for i, l := range launches {
			id := fmt.Sprintf("%014x", t.made.Add(1))
			s := t.sellers[(c.creates+i)*7919%len(t.sellers)]
			req := placement.Request{App: appName(i % apps), Machine: id, Start: true,
				Resources: cluster.Resources{CPU: 100, Memory: 256, Disk: 1000}}
			m, err := s.Grant(context.Background(), lifecycle.Grant{Request: req, Launch: l, Region: "iad"})
			if err != nil {
				return 0, err
			}
			made = append(made, m)
		}
		c.wall, c.use, c.creates = c.wall+time.Since(begin), c.use+cpuTime()-used, c.creates+endEvery
		for _, m := range made {
			t.byID[m.Worker].endMachine(m.ID)
		}
	}
	return c.cpuMicros(), nil
}
