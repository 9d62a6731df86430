package sim

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/mesh/gossip"
	simgossip "github.com/soukhq/souk/sim/gossip"
	"github.com/soukhq/souk/sim/ticks"
)

type simGossipFlags struct {
	nodes, owners, machines, changes, seeds int
	seed                                    uint64
	loss, rate                              float64
	every, idle                             time.Duration
	only, pace                              string
}

// knobs returns the live package's settings for the simulator.
func (o *simGossipFlags) knobs() simgossip.Knobs { return simKnobs(gossip.Paces[o.pace]()) }

// simGossipRow is one line of souk sim gossip --json. Figures are over all its seeds.
type simGossipRow struct {
	Name     string  `json:"name"` // propagation, detection, false_positives
	Nodes    int     `json:"nodes"`
	Seeds    int     `json:"seeds"`
	Loss     float64 `json:"loss"`
	N        int     `json:"n"` // changes; deaths; hours
	P50      float64 `json:"p50_ms,omitempty"`
	P99      float64 `json:"p99_ms,omitempty"`
	Max      float64 `json:"max_ms,omitempty"`
	EachP99  float64 `json:"each_p99_ms,omitempty"`
	Owners   int     `json:"owners,omitempty"`
	Machines int     `json:"machines,omitempty"` // unchanging machines
	Missing  int     `json:"missing,omitempty"`
	Idle     float64 `json:"idle_bytes_per_s,omitempty"` // per member, sent and received
	Busy     float64 `json:"busy_bytes_per_s,omitempty"`
	Rate     float64 `json:"changes_per_s,omitempty"`
	Record   float64 `json:"record_bytes,omitempty"` // encoded size of a change's record
	// cost of a change per member, sent and received, without the idle traffic
	Change float64 `json:"bytes_per_change,omitempty"`
	Most   float64 `json:"bytes_per_change_max,omitempty"` // cost at the member with the most
	Ratio  float64 `json:"ratio,omitempty"`                // of Change to Record
	Memory int64   `json:"memory_bytes,omitempty"`         // this process's peak so far
	// traffic of memberlist's full exchanges: computed, not simulated
	Members  float64 `json:"membership_bytes_per_s,omitempty"`
	Suspects int     `json:"suspicions,omitempty"`
	False    *int    `json:"false_positives,omitempty"`
	CPU      float64 `json:"cpu_s"`
}

const simGossipLong = `Run what gossip does on thousands of members, with the settings of the live package:

  propagation      the registry's own code on each member; a change at one until all others have it, and what members
                   send and receive meanwhile: a change costs each so many times its record. Only --owners of them have
                   records: memory grows with nodes times owners
  detection        memberlist's failure detector (a model); a death until all others know, without loss
  false_positives  the same for an hour of each seed at 10 % loss, or --loss if greater: members held for dead that live`

func cmdSimGossip(c *cli.Env) *cobra.Command {
	o := new(simGossipFlags)
	cmd := &cobra.Command{
		Use:     "gossip",
		Short:   "How fast a cluster of thousands hears of a change or a death",
		Long:    simGossipLong,
		Args:    cli.Args(0, 0, "no argument"),
		Example: "  souk sim gossip --nodes 1000 --json\n  souk sim gossip --nodes 50 --seeds 20 --only detection",
	}
	f := cmd.Flags()
	f.IntVar(&o.nodes, "nodes", 1000, "how many members")
	f.IntVar(&o.owners, "owners", 50, "how many of them have records that change")
	f.IntVar(&o.machines, "machines", 0, "machines of each owner that do not change")
	f.IntVar(&o.changes, "changes", 100, "how many changes in each seed")
	f.DurationVar(&o.every, "every", 100*time.Millisecond, "between changes, on average")
	f.Float64Var(&o.rate, "rate", 0, "changes a second in the whole cluster, in place of --every")
	f.DurationVar(&o.idle, "idle", 5*time.Second, "before the first change")
	f.IntVar(&o.seeds, "seeds", 1, "how many seeds")
	f.Uint64Var(&o.seed, "seed", 1, "the first seed")
	f.Float64Var(&o.loss, "loss", 0, "share of packets lost")
	f.StringVar(&o.pace, "pace", "lan", "the settings: lan or wan, see souk agent")
	f.StringVar(&o.only, "only", "", "propagation, detection or false_positives (default the first two)")
	completeWith(cmd, "only", "propagation", "detection", "false_positives")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.rate > 0 {
			o.every = time.Duration(float64(time.Second) / o.rate)
		}
		if o.nodes < 2 || o.nodes > 100_000 || o.owners < 1 || o.changes < 1 || o.seeds < 1 || o.machines < 0 ||
			o.loss < 0 ||
			o.loss > 0.9 ||
			o.rate < 0 ||
			o.every < time.Millisecond/10 ||
			o.idle < 0 {
			return cli.Usagef(
				"--nodes is from 2 to 100000; --owners, --changes and --seeds at least 1; --loss from 0 to 0.9; " +
					"--every at " +
					"least 100us",
			)
		}
		if _, err := cli.PaceOf(o.pace); err != nil {
			return err
		}
		o.owners = min(o.owners, o.nodes)
		return simGossip(cmd.Context(), c, o)
	}
	return cmd
}

func simGossip(ctx context.Context, c *cli.Env, o *simGossipFlags) error {
	steps := map[string]func(context.Context, *simGossipFlags) (simGossipRow, error){
		"propagation":     simPropagation,
		"detection":       simDetection,
		"false_positives": simFalse,
	}
	names := []string{"propagation", "detection"}
	if o.only != "" {
		names = []string{o.only}
	}
	for _, name := range names {
		step := steps[name]
		if step == nil {
			return cli.Usagef("--only is propagation, detection or false_positives, not %q", o.only)
		}
		began := time.Now()
		r, err := step(ctx, o)
		if err != nil {
			return err
		}
		r.Name, r.Nodes, r.Seeds, r.CPU = name, o.nodes, o.seeds, time.Since(began).Seconds()
		simGossipPrint(c, r)
	}
	return nil
}

func simGossipPrint(c *cli.Env, r simGossipRow) {
	if c.JSON {
		c.JSONLine(c.Out, r)
		return
	}
	text := fmt.Sprintf("%-15s %6d members %5d", r.Name, r.Nodes, r.N)
	if r.Max > 0 {
		text += fmt.Sprintf("   p50 %.0f ms   p99 %.0f ms   max %.0f ms", r.P50, r.P99, r.Max)
	}
	if r.EachP99 > 0 {
		text += fmt.Sprintf("   a change %.0f bytes, %.2f of its record   most %.2f", r.Change, r.Ratio,
			r.Most/r.Record)
		text += fmt.Sprintf("   each p99 %.0f ms   idle %.1f KB/s   busy %.1f KB/s   membership %.1f KB/s", r.EachP99,
			r.Idle/1000, r.Busy/1000, r.Members/1000)
	}
	if r.False != nil {
		text += fmt.Sprintf("   %d suspicions, %d held for dead that live", r.Suspects, *r.False)
	}
	fmt.Fprintln(c.Out, text)
}

// simKnobs returns the simulator settings of the live package.
func simKnobs(k gossip.Knobs) simgossip.Knobs {
	us := func(d time.Duration) ticks.Time { return d.Microseconds() }
	return simgossip.Knobs{
		Probe:        us(k.Probe),
		ProbeTimeout: us(k.ProbeTimeout),
		Gossip:       us(k.Gossip),
		Settle:       us(k.Settle),
		Flush:        us(k.Flush),
		Indirect:     k.Indirect,
		Suspicion:    k.Suspicion,
		SuspicionMax: k.SuspicionMax,
		Retransmit:   k.Retransmit,
		Awareness:    8,
		Push:         k.Push,
		Fanout:       k.Fanout,
		Patience:     us(k.Patience),
	}
}

func simPropagation(ctx context.Context, o *simGossipFlags) (simGossipRow, error) {
	r := simGossipRow{Loss: o.loss, Owners: o.owners, Machines: o.owners * o.machines}
	var all, each simgossip.Times
	for k := range o.seeds {
		if err := context.Cause(ctx); err != nil {
			return r, err
		}
		x, err := simgossip.Propagate(simgossip.PropagateOptions{
			Members:  o.nodes,
			Owners:   o.owners,
			Machines: o.machines,
			Changes:  o.changes,
			Every:    o.every.Microseconds(),
			Idle:     o.idle.Microseconds(),
			Loss:     o.loss,
			Seed:     o.seed + uint64(k),
			Knobs:    o.knobs(),
		})
		if err != nil {
			return r, err
		}
		all, each = append(all, x.All...), append(each, x.Each...)
		r.Missing += x.Missing
		r.Idle += x.IdleBytes / float64(o.seeds)
		r.Busy += x.BusyBytes / float64(o.seeds)
		r.Record += x.Record / float64(o.seeds)
		r.Change += x.Change / float64(o.seeds)
		r.Most = max(r.Most, x.ChangeMost)
	}
	all, each = all.Sorted(), each.Sorted()
	r.Rate, r.Ratio = 1/o.every.Seconds(), r.Change/r.Record
	r.Memory, _, _ = live.FieldOf(os.Getpid(), "status", "VmHWM")
	r.N, r.P50, r.P99, r.Max, r.EachP99 = len(all), all.MS(0.5), all.MS(0.99), all.MS(1), each.MS(0.99)
	r.Members = simgossip.MembershipBytes(o.nodes, gossip.Paces[o.pace]().PushPull.Microseconds())
	return r, nil
}

func simDetection(ctx context.Context, o *simGossipFlags) (simGossipRow, error) {
	r := simGossipRow{False: new(0)}
	var all simgossip.Times
	deaths := max(o.seeds, 100)
	for k := range deaths {
		if err := context.Cause(ctx); err != nil {
			return r, err
		}
		seed := o.seed + uint64(k)
		x := simgossip.Detect(simgossip.DetectOptions{
			Members:  o.nodes,
			Seed:     seed,
			Duration: 120 * ticks.Second,
			Kill:     5*ticks.Second + ticks.Time(seed%1000)*777,
			Knobs:    o.knobs(),
		})
		if x.AllDead == 0 {
			r.Missing++
			continue
		}
		all = append(all, x.AllDead)
		*r.False += x.False
		r.Suspects += x.Suspicions
	}
	all = all.Sorted()
	r.N, r.P50, r.P99, r.Max = deaths, all.MS(0.5), all.MS(0.99), all.MS(1)
	return r, nil
}

func simFalse(ctx context.Context, o *simGossipFlags) (simGossipRow, error) {
	r := simGossipRow{N: o.seeds, Loss: max(o.loss, 0.1), False: new(0)}
	for k := range o.seeds {
		if err := context.Cause(ctx); err != nil {
			return r, err
		}
		x := simgossip.Detect(simgossip.DetectOptions{
			Members:  o.nodes,
			Seed:     o.seed + uint64(k),
			Loss:     r.Loss,
			Duration: 3600 * ticks.Second,
			Knobs:    o.knobs(),
		})
		*r.False += x.False
		r.Suspects += x.Suspicions
	}
	return r, nil
}
