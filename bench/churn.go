package bench

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/machine"
)

// ChurnOptions say how many machines come and go, and how long after the last one the memory is read.
type ChurnOptions struct {
	Machines    int
	Concurrency int
	Settle      time.Duration
}

// ChurnRow is the memory of an agent's process after machines came and went. It is resident memory of the agent alone,
// in MB.
type ChurnRow struct {
	Name     string  `json:"name"`
	Machines int     `json:"machines"`
	PerSec   float64 `json:"per_second"`    // machines launched and destroyed
	CPU      float64 `json:"cpu_us"`        // of the agent, for each machine
	Floor    float64 `json:"floor_mb"`      // the same agent, Settle after its start, before the first machine
	Most     float64 `json:"rss_most_mb"`   // while they came and went, read once a second
	After    float64 `json:"rss_after_mb"`  // Settle after the last one was gone
	Heap     float64 `json:"anon_after_mb"` // the anonymous part of that: heap and stacks
	Ratio    float64 `json:"ratio"`         // rss_after_mb / floor_mb
	Wanted   string  `json:"wanted"`
	Met      bool    `json:"met"`
}

// churnLimit is the most memory that an agent may have afterwards, in MB.
const churnLimit = 80

// Text returns the row as it is printed for people.
func (r ChurnRow) Text() string {
	text := fmt.Sprintf(
		"%s: %d machines came and went, %.0f/s, %.0f us of CPU each; RSS %.1f MB before, at most %.1f MB, %.1f MB "+
			"after "+
			"(%.1f MB of it no file), "+
			"%.2f of before; wanted: %s",
		r.Name,
		r.Machines,
		r.PerSec,
		r.CPU,
		r.Floor,
		r.Most,
		r.After,
		r.Heap,
		r.Ratio,
		r.Wanted,
	)
	if !r.Met {
		text += "  MISSED"
	}
	return text
}

// Churn launches and destroys machines through an agent of its own, and reads the memory that the agent keeps.
func Churn(ctx context.Context, o ChurnOptions, to Reporter) error {
	agent, _, end, err := roomyAgent(ctx, to)
	if err != nil {
		return err
	}
	defer end()
	c := &churn{o: o, agent: agent}
	done := to.Working("launching and destroying %d machines", o.Machines)
	r, err := c.measureChurn(ctx)
	done()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return wrapFailure(err, "a machine did not come or go as it should")
	}
	to.Row(r)
	return nil
}

// roomyAgent starts an agent with unlimited room, in its own temporary directory dir, with the app of all machines. end
// ends it and removes the directory.
func roomyAgent(ctx context.Context, to Reporter, flags ...string) (a *live.Agent, dir string, end func(), err error) {
	agents, dir, end, err := roomyAgents(ctx, to, flags...)
	if err != nil {
		return nil, "", nil, err
	}
	return agents.List[0], dir, end, nil
}

// roomyAgents is roomyAgent for callers that end and start the agent themselves.
func roomyAgents(ctx context.Context, to Reporter, flags ...string) (agents *live.Agents, dir string, end func(),
	err error) {
	if dir, err = os.MkdirTemp("", "souk-bench-*"); err != nil {
		return nil, "", nil, wrapFailure(err, "no temporary directory can be made")
	}
	done := to.Working("starting an agent")
	agents, err = live.StartAgents(ctx, dir, to.Stderr(), []string{"a"},
		append([]string{"--cpus", "100000", "--memory", "100000000"}, flags...), nil)
	done()
	if err != nil {
		os.RemoveAll(dir)
		return nil, "", nil, wrapFailure(err, "the agent did not come up")
	}
	end = func() { agents.Close(); os.RemoveAll(dir) }
	if _, err := agents.List[0].Client.CreateApp(ctx, live.App); err != nil {
		end()
		return nil, "", nil, wrapFailure(err, "the app could not be made")
	}
	return agents, dir, end, nil
}

// churn is the measured agent.
type churn struct {
	o     ChurnOptions
	agent *live.Agent
}

func (c *churn) measureChurn(ctx context.Context) (r ChurnRow, err error) {
	r = ChurnRow{Name: "churn", Machines: c.o.Machines, Wanted: fmt.Sprintf("<= %d MB after", churnLimit)}
	if err := wait.For(ctx, c.o.Settle); err != nil {
		return r, err
	}
	if r.Floor, err = c.readMemory("VmRSS"); err != nil {
		return r, err
	}
	used, err := live.CPU(c.agent.PID())
	if err != nil {
		return r, err
	}
	begin := time.Now()
	if r.Most, err = c.churnAll(ctx); err != nil {
		return r, err
	}
	r.PerSec = float64(c.o.Machines) / time.Since(begin).Seconds()
	after, err := live.CPU(c.agent.PID())
	if err != nil {
		return r, err
	}
	r.CPU = float64((after - used).Microseconds()) / float64(c.o.Machines)
	if err := wait.For(ctx, c.o.Settle); err != nil {
		return r, err
	}
	if r.After, err = c.readMemory("VmRSS"); err != nil {
		return r, err
	}
	r.Heap, err = c.readMemory("RssAnon")
	r.Ratio, r.Met = r.After/r.Floor, r.After <= churnLimit
	return r, err
}

// churnAll launches and destroys the machines, and returns the peak memory meanwhile.
func (c *churn) churnAll(ctx context.Context) (most float64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watched := make(chan float64, 1)
	go func() {
		most := 0.0
		for {
			if now, err := c.readMemory("VmRSS"); err == nil {
				most = max(most, now)
			}
			if wait.For(ctx, time.Second) != nil {
				watched <- most
				return
			}
		}
	}()
	_, err = timeConcurrent(c.o.Concurrency, c.o.Machines, func(int) error { return c.churnOne(ctx) })
	cancel()
	return <-watched, err
}

// churnOne launches a machine and destroys it.
func (c *churn) churnOne(ctx context.Context) error {
	m, err := c.agent.Client.Launch(ctx, live.App, live.LaunchOf(live.Stays(), false), client.LaunchOptions{})
	if err != nil {
		return err
	}
	if m.State != machine.Started {
		return fault.New(fault.Internal, fault.CodeBench,
			"a launch was answered %q, not started%s", m.State, m.Because())
	}
	_, err = c.agent.Client.Destroy(ctx, live.App, m.ID, "", true)
	return err
}

// readMemory reads a field of the agent's status, in MB.
func (c *churn) readMemory(field string) (float64, error) {
	b, there, err := live.FieldOf(c.agent.PID(), "status", field)
	if err == nil && !there {
		err = fault.New(fault.Unavailable, fault.CodeBench, "the kernel does not report %s of a process in /proc",
			field)
	}
	return float64(b) / (1 << 20), err
}
