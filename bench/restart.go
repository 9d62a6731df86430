package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// RestartOptions say how many machines an agent has when it is killed, and how often.
type RestartOptions struct {
	Machines    int
	Running     int // running machines among them
	Changes     int // changes of machines after the last was made
	Concurrency int
	Rounds      int
}

// RestartRow is how long a killed agent is away, in ms since the start of its new process, and that process's CPU time
// by then.
type RestartRow struct {
	Name     string  `json:"name"`
	Machines int     `json:"machines"`
	Running  int     `json:"running"`
	Serves   float64 `json:"serves_ms"`  // until its API listens
	Ready    float64 `json:"ready_ms"`   // until /readyz succeeds
	Listed   float64 `json:"listed_ms"`  // until the list of all machines was read
	Created  float64 `json:"created_ms"` // until one more machine was made
	CPU      float64 `json:"cpu_ms"`     // of the agent, until then
	Floor    float64 `json:"floor_ms"`   // exec of the program, read of the same bytes, decode of the list
	Ratio    float64 `json:"ratio"`      // created_ms / floor_ms
	Wanted   string  `json:"wanted"`
	Met      bool    `json:"met"`
}

// restartLimit is how long an agent with 20,000 machines may be away, in ms.
const restartLimit = 2000

// Text returns the row as it is printed for people.
func (r RestartRow) Text() string {
	text := fmt.Sprintf("%s: %d machines, %d of them running; serves after %.0f ms, ready after %.0f ms, all listed "+
		"after %.0f ms, one made after %.0f ms with %.0f ms of CPU; floor %.0f ms, ratio %.2f; wanted: %s", r.Name,
		r.Machines, r.Running, r.Serves, r.Ready, r.Listed, r.Created, r.CPU, r.Floor, r.Ratio, r.Wanted)
	if !r.Met {
		text += "  MISSED"
	}
	return text
}

// Restart fills an agent of its own with machines, kills it, and measures how long it takes to come back, repeatedly.
func Restart(ctx context.Context, o RestartOptions, to Reporter) error {
	agents, dir, end, err := roomyAgents(ctx, to)
	if err != nil {
		return err
	}
	defer end()
	b := &restart{o: o, dir: dir, agents: agents, agent: agents.List[0]}
	done := to.Working("making %d machines", o.Machines)
	if err = b.makeApps(ctx); err == nil {
		err = b.fillMachines(ctx)
	}
	done()
	for round := 0; err == nil && round < o.Rounds; round++ {
		done := to.Working("killing the agent and starting it anew")
		var r RestartRow
		r, err = b.measureRestart(ctx)
		done()
		if err == nil {
			to.Row(r)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return wrapFailure(err, "the agent or a machine of it did not do as it should")
	}
	return nil
}

// restart is an agent that is killed and comes back.
type restart struct {
	o      RestartOptions
	dir    string
	agents *live.Agents
	agent  *live.Agent
	apps   []string
	made   int
}

// A worker keeps only so many machines of an app and of a namespace that do not run (market.MaxAppUnstarted,
// market.MaxNamespaceUnstarted), so a fleet of many is made of several.
const (
	machinesOfApp   = market.MaxAppUnstarted - market.MaxAppUnstarted/6
	appsOfNamespace = market.MaxNamespaceUnstarted / market.MaxAppUnstarted
)

// makeApps makes the apps for the machines, besides live.App, which exists.
func (b *restart) makeApps(ctx context.Context) error {
	b.apps = []string{live.App}
	for k := 1; k <= b.o.Machines/machinesOfApp; k++ {
		app, namespace := fmt.Sprintf("%s-%d", live.App, k), fmt.Sprintf("%s-%d", live.App, k/appsOfNamespace)
		if _, err := b.agent.Client.CreateApp(ctx, app); err != nil {
			return err
		}
		b.apps = append(b.apps, app)
		if k < appsOfNamespace {
			continue // they stay in the namespace default
		}
		if k%appsOfNamespace == 0 {
			if _, err := b.agent.Client.CreateNamespace(ctx, namespace); err != nil {
				return err
			}
		}
		if err := b.agent.Client.SetAppNamespace(ctx, app, namespace); err != nil {
			return err
		}
	}
	return nil
}

// fillMachines makes the machines, and then changes some of them: so that the journal's log is not empty at the
// restart.
func (b *restart) fillMachines(ctx context.Context) error {
	made := make([]*machine.Machine, b.o.Machines)
	if _, err := timeConcurrent(b.o.Concurrency, b.o.Machines, func(i int) error {
		m, err := b.launchMachine(ctx, b.apps[i/machinesOfApp], i < b.o.Running)
		made[i] = m
		return err
	}); err != nil {
		return err
	}
	b.made = b.o.Machines
	_, err := timeConcurrent(b.o.Concurrency, b.o.Changes, func(i int) error {
		at, value := i%len(made), fmt.Sprint(i)
		return b.agent.Client.PatchMetadata(ctx, b.apps[at/machinesOfApp], made[at].ID, "",
			map[string]*string{"changed": &value})
	})
	return err
}

func (b *restart) launchMachine(ctx context.Context, app string, runs bool) (*machine.Machine, error) {
	return b.agent.Client.Launch(ctx, app, live.LaunchOf(live.Stays(), !runs), client.LaunchOptions{})
}

// measureRestart kills the agent, and starts it again.
func (b *restart) measureRestart(ctx context.Context) (r RestartRow, err error) {
	r = RestartRow{Name: "restart", Machines: b.made, Running: b.o.Running,
		Wanted: fmt.Sprintf("<= %d ms with 20000 machines", restartLimit)}
	b.agents.Kill(b.agent)
	began := time.Now()
	since := func() float64 { return float64(time.Since(began)) / float64(time.Millisecond) }
	if err := b.agents.Restart(b.agent); err != nil {
		return r, err
	}
	r.Serves = since()
	if err := live.Until(ctx, func() bool { _, err := b.agent.Get(ctx, "/readyz"); return err == nil }); err != nil {
		return r, err
	}
	r.Ready = since()
	lists := make([][]byte, len(b.apps))
	for i, app := range b.apps {
		if lists[i], err = b.agent.Get(ctx, "/v1/apps/"+app+"/machines"); err != nil {
			return r, err
		}
	}
	r.Listed = since()
	if _, err := b.launchMachine(ctx, b.apps[len(b.apps)-1], false); err != nil {
		return r, err
	}
	r.Created = since()
	b.made++
	used, err := live.CPU(b.agent.PID())
	if err != nil {
		return r, err
	}
	r.CPU = float64(used) / float64(time.Millisecond)
	floor, err := b.measureFloor(ctx, lists, r.Machines)
	r.Floor = float64(floor) / float64(time.Millisecond)
	r.Ratio = r.Created / r.Floor
	r.Met = r.Machines > 20_100 || r.Created <= restartLimit
	return r, err
}

// measureFloor does the unavoidable parts of a restart: it executes the program, reads the bytes of the agent's
// journals, and decodes its machines once. It checks their number.
func (b *restart) measureFloor(ctx context.Context, lists [][]byte, machines int) (time.Duration, error) {
	exe, err := os.Executable()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := exec.CommandContext(ctx, exe, "version", "--help").Run(); err != nil {
		return 0, err
	}
	if err := filepath.WalkDir(b.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.Contains(d.Name(), "journal") {
			_, err = os.ReadFile(path)
		}
		return err
	}); err != nil {
		return 0, err
	}
	listed := 0
	for _, list := range lists {
		var decoded []*machine.Machine
		if err := json.Unmarshal(list, &decoded); err != nil {
			return 0, err
		}
		listed += len(decoded)
	}
	took := time.Since(began)
	if listed != machines {
		return 0, fault.New(fault.Internal, fault.CodeBench, "the agent lists %d machines of %d", listed, machines)
	}
	return took, nil
}
