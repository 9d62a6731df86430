package bench

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// ForwardRow is one measurement of launches through a member. What does not apply is left out.
type ForwardRow struct {
	Name       string   `json:"name"` // forward, refused_first
	N          int      `json:"n"`
	Tries      int      `json:"tries,omitempty"` // refused_first: launches made until N were refused at first
	LocalP50   *float64 `json:"local_p50_ms,omitempty"`
	LocalP99   *float64 `json:"local_p99_ms,omitempty"`
	FarP50     *float64 `json:"far_p50_ms,omitempty"`
	FarP99     *float64 `json:"far_p99_ms,omitempty"`
	Extra      *float64 `json:"extra_ms,omitempty"` // far_p50_ms - local_p50_ms
	RefusedP50 *float64 `json:"refused_p50_ms,omitempty"`
	LocalCalls *float64 `json:"local_calls,omitempty"` // round trips to other members, the most of any launch
	FarCalls   *float64 `json:"far_calls,omitempty"`
	Calls      *float64 `json:"calls,omitempty"` // round trips of a launch whose first choice refused
	Wanted     string   `json:"wanted"`
	Met        bool     `json:"met"`
}

// The members of souk bench forward: the one that is asked, one with room for one large machine, and one with room
// for all.
const (
	asked, narrow, wide = "a", "b", "c"
	narrowMemory        = 8192 // MiB
)

// Forward measures launches through one of three agents of its own.
func Forward(ctx context.Context, n, refused int, to Reporter) error {
	dir, err := os.MkdirTemp("", "souk-bench-*")
	if err != nil {
		return wrapFailure(err, "no temporary directory can be made")
	}
	defer os.RemoveAll(dir)
	room := []string{"--cpus", "1000", "--memory", "1000000"}
	done := to.Working("starting three agents")
	agents, err := live.StartAgents(ctx, dir, to.Stderr(), []string{asked, narrow, wide}, nil, map[string][]string{
		asked: room, narrow: {"--cpus", "1000", "--memory", fmt.Sprint(narrowMemory)}, wide: room})
	done()
	if err != nil {
		return wrapFailure(err, "the agents did not come up")
	}
	defer agents.Close()
	f := &forwarding{agents}
	for _, step := range []func() (ForwardRow, error){
		func() (ForwardRow, error) { return f.measureForward(ctx, n) },
		func() (ForwardRow, error) { return f.refusedFirst(ctx, refused) },
	} {
		row, err := step()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return wrapFailure(err, "a launch did not go as it should")
		}
		to.Row(row)
	}
	return nil
}

// Text returns the row as it is printed for people.
func (r ForwardRow) Text() string {
	text := fmt.Sprintf("%-14s %5d", r.Name, r.N)
	if r.Extra != nil {
		text += fmt.Sprintf(
			"   local p50 %.2f ms p99 %.2f ms   far p50 %.2f ms p99 %.2f ms   extra %.2f ms   round trips %.0f and "+
				"%.0f",
			*r.LocalP50, *r.LocalP99, *r.FarP50, *r.FarP99, *r.Extra, *r.LocalCalls, *r.FarCalls)
	} else {
		text += fmt.Sprintf(" of %d tries   p50 %.2f ms   round trips %.0f", r.Tries, *r.RefusedP50, *r.Calls)
	}
	text += "   wanted: " + r.Wanted
	if !r.Met {
		text += "  MISSED"
	}
	return text
}

// pinnedTo is a launch that only these workers may take, the first of them by preference.
func pinnedTo(workers ...string) *machine.Launch {
	l := live.LaunchOf(live.Stays(), false)
	s := &machine.Scheduling{}
	set := cluster.Requirement{Attribute: "worker", Op: cluster.In}
	for _, w := range workers {
		set.Values = append(set.Values, cluster.Text(w))
	}
	s.Require = []cluster.Requirement{set}
	if len(workers) > 1 {
		first := cluster.Requirement{Attribute: "worker", Op: cluster.In, Values: set.Values[:1]}
		s.Prefer = []cluster.Preference{{Requirement: first, Weight: 1000}}
	}
	l.Scheduling = s
	return l
}

// forwarding is three agents whose launches are measured.
type forwarding struct{ *live.Agents }

// awaitReady waits until the agents know each other, and the app.
func (c *forwarding) awaitReady(ctx context.Context) error {
	if err := c.Meet(ctx); err != nil {
		return err
	}
	if _, err := c.List[0].Client.CreateApp(ctx, live.App); err != nil && !fault.Is(err, fault.Conflict) {
		return err
	}
	return live.Until(ctx, func() bool {
		_, err := c.List[1].Client.App(ctx, live.App)
		return err == nil
	})
}

// measureForward launches at the asked agent's own worker and at another's, in turns.
func (c *forwarding) measureForward(ctx context.Context, n int) (r ForwardRow, err error) {
	if err := c.awaitReady(ctx); err != nil {
		return r, err
	}
	kinds := []struct {
		worker string
		took   []time.Duration
		calls  float64
	}{{worker: asked}, {worker: narrow}}
	for i := range warmups + n {
		for k := range kinds {
			d, err := c.launchOnce(ctx, kinds[k].worker)
			if err != nil {
				return r, err
			}
			if i >= warmups {
				kinds[k].took = append(kinds[k].took, d)
			}
		}
	}
	for range min(n, 20) { // counted separately, since reading metrics would disturb the timing
		for k := range kinds {
			calls, _, err := c.countCalls(ctx,
				func() error { return c.launchAt(ctx, pinnedTo(kinds[k].worker), kinds[k].worker) })
			if err != nil {
				return r, err
			}
			kinds[k].calls = max(kinds[k].calls, calls)
			if err := live.DestroyAll(ctx, c.List[0].Client, live.App); err != nil {
				return r, err
			}
		}
	}
	local, far := kinds[0], kinds[1]
	r = ForwardRow{
		Name:       "forward",
		N:          n,
		LocalP50:   new(Quantile(local.took, 0.5)),
		LocalP99:   new(Quantile(local.took, 0.99)),
		FarP50:     new(Quantile(far.took, 0.5)),
		FarP99:     new(Quantile(far.took, 0.99)),
		LocalCalls: new(local.calls),
		FarCalls:   new(far.calls),
		Wanted:     "extra <= 1.5 ms, one round trip",
	}
	r.Extra = new(*r.FarP50 - *r.LocalP50)
	r.Met = *r.Extra <= 1.5 && local.calls == 0 && far.calls == 1
	return r, nil
}

// launchOnce launches a machine at a worker, and destroys it.
func (c *forwarding) launchOnce(ctx context.Context, worker string) (time.Duration, error) {
	l, begin := pinnedTo(worker), time.Now()
	m, err := c.List[0].Client.Launch(ctx, live.App, l, client.LaunchOptions{})
	took := time.Since(begin)
	if err != nil {
		return 0, err
	}
	if m.State != machine.Started || string(m.Worker) != worker {
		return 0, fault.New(fault.Internal, fault.CodeBench, "a launch for %s was answered %q on %s%s", worker, m.State,
			m.Worker,
			m.Because())
	}
	_, err = c.List[0].Client.Destroy(ctx, live.App, m.ID, "", true)
	return took, err
}

func (c *forwarding) launchAt(ctx context.Context, l *machine.Launch, worker string) error {
	m, err := c.List[0].Client.Launch(ctx, live.App, l, client.LaunchOptions{})
	if err == nil && string(m.Worker) != worker {
		return fault.New(fault.Internal, fault.CodeBench, "a machine is on %s, not on %s", m.Worker, worker)
	}
	return err
}

// countCalls returns the asked agent's round trips to other members during f, and how many grants were refused. It
// leaves out the calls that reading the metrics makes for other workers' counts.
func (c *forwarding) countCalls(ctx context.Context, f func() error) (calls, refused float64, err error) {
	const trips, bids = "souk_member_calls_total", "souk_bids_total"
	before, err := c.List[0].Counters(ctx, trips, bids)
	if err != nil {
		return 0, 0, err
	}
	if err := f(); err != nil {
		return 0, 0, err
	}
	after, err := c.List[0].Counters(ctx, trips, bids)
	if err != nil {
		return 0, 0, err
	}
	for name, v := range after {
		switch v -= before[name]; {
		case name == trips+`{call="stats"}`:
		case strings.HasPrefix(name, trips):
			calls += v
		case name == bids+`{result="refused"}`:
			refused += v
		}
	}
	return calls, refused, nil
}

// refusedFirst fills the narrow worker through its own agent, and launches through the other one before that knows. If
// it knows already nothing is refused, and the try does not count.
func (c *forwarding) refusedFirst(ctx context.Context, n int) (r ForwardRow, err error) {
	if err := c.awaitReady(ctx); err != nil {
		return r, err
	}
	big := live.LaunchOf(live.Stays(), false)
	big.Config.Guest = &machine.Guest{CPUKind: "performance", CPUs: 4, MemoryMB: narrowMemory}
	var took []time.Duration
	most, fewest := 0.0, math.Inf(1)
	for len(took) < n {
		if r.Tries++; r.Tries > 20*n+20 {
			return r, fault.New(fault.Timeout, fault.CodeBench,
				"of %d launches only %d were refused at first: gossip arrived before most of the launches",
				r.Tries, len(took))
		}
		if err := live.Until(ctx, func() bool { return c.knownFree(ctx) }); err != nil {
			return r, err
		}
		var d time.Duration
		var home string
		var hold api.Held
		calls, refused, err := c.countCalls(ctx, func() error {
			var err error
			if hold, err = c.List[1].Client.Hold(ctx, narrow,
				api.Bid{App: live.App, Launch: big, TTL: 20}); err != nil {
				return err
			}
			begin := time.Now()
			m, err := c.List[0].Client.Launch(ctx, live.App, pinnedTo(narrow, wide), client.LaunchOptions{})
			if err == nil {
				d, home = time.Since(begin), string(m.Worker)
			}
			return err
		})
		if err != nil {
			return r, err
		}
		if refused == 1 && home == wide {
			took, most, fewest = append(took, d), max(most, calls), min(fewest, calls)
		}
		if err := c.List[1].Client.ReleaseHold(ctx, narrow, hold.Hold); err != nil {
			return r, err
		}
		if err := live.DestroyAll(ctx, c.List[0].Client, live.App); err != nil {
			return r, err
		}
	}
	return ForwardRow{
		Name:       "refused_first",
		N:          n,
		Tries:      r.Tries,
		RefusedP50: new(Quantile(took, 0.5)),
		Calls:      &most,
		Wanted:     "two round trips",
		Met:        most == 2 && fewest == 2,
	}, nil
}

// knownFree reports whether the asked agent believes that the narrow worker is empty.
func (c *forwarding) knownFree(ctx context.Context) bool {
	w, err := c.List[0].Client.Workers(ctx)
	if err != nil {
		return false
	}
	for _, x := range w.Workers {
		if x.Worker == narrow {
			return x.Used.IsZero()
		}
	}
	return false
}
