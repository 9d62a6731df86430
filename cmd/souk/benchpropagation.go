package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/fault"
)

// propagationRow is one measurement of a cluster. What does not apply is left out.
type propagationRow struct {
	Name   string   `json:"name"`
	Nodes  int      `json:"nodes"`
	Pace   string   `json:"pace"`
	N      int      `json:"n"`
	P50    *float64 `json:"p50_ms,omitempty"`
	P99    *float64 `json:"p99_ms,omitempty"`
	Max    *float64 `json:"max_ms,omitempty"`
	Value  *float64 `json:"value,omitempty"` // the mean over the members
	Worst  *float64 `json:"worst,omitempty"` // of a member
	Unit   string   `json:"unit,omitempty"`
	Wanted string   `json:"wanted,omitempty"`
	Met    *bool    `json:"met,omitempty"`
}

type propagationFlags struct {
	nodes, n, deaths int
	idle             time.Duration
	pace             string
}

// crowd is how many members a core bears at the pace of a LAN: each takes half a percent of one, and a few times that while
// others join, and must be scheduled within the 80 ms that a probe waits.
const crowd = 40

const propagationLong = `Run a cluster of so many processes on this host, each a member with gossip over loopback, encrypted, and measure what follows.
Their pace is a LAN's, the default of souk agent; where there are more than 40 members a core it is a WAN's, for they cannot all be
scheduled in the time that a LAN's probe allows.

  propagation        a change at a random member until all others have it
  propagation_each   the same, each other member by itself
  idle_cpu           what a member takes of one core while nothing changes
  idle_bytes         what it sends and receives then, in packets and streams
  idle_memory        what it has then (PSS): what members share counts once
  join_cpu           what a member took of a core from its start until all knew all
  death              a member killed (SIGKILL) until all others hold it for dead
  false_suspicions   members thought dead that were not, in the whole run`

func (c *cli) cmdBenchPropagation() *cobra.Command {
	o := new(propagationFlags)
	cmd := &cobra.Command{Use: "propagation", Short: "Measure how fast a cluster hears of a change, and what hearing costs", Long: propagationLong,
		Example: "  souk bench propagation\n  souk bench propagation --nodes 50 --json", Args: args(0, 0, "no argument")}
	f := cmd.Flags()
	f.IntVar(&o.nodes, "nodes", 50, "how many processes")
	f.IntVar(&o.n, "n", 200, "how many changes")
	f.IntVar(&o.deaths, "deaths", 5, "how many members are killed")
	f.StringVar(&o.pace, "pace", "", "lan or wan, see souk agent (default: lan up to 40 members a core, else wan)")
	f.DurationVar(&o.idle, "idle", 20*time.Second, "for how long idleness is measured")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.nodes < 2 || o.nodes > 1000 || o.n < 1 || o.deaths < 0 || o.deaths > o.nodes-2 || o.idle < time.Second {
			return usagef("--nodes is from 2 to 1000, --n at least 1, --deaths at most two less than the nodes, --idle at least 1s")
		}
		if o.pace == "" {
			if o.pace = "lan"; o.nodes > crowd*runtime.NumCPU() {
				o.pace = "wan"
			}
		}
		if _, err := paceOf(o.pace); err != nil {
			return err
		}
		return c.benchPropagation(cmd.Context(), o)
	}
	return cmd
}

func (c *cli) benchPropagation(ctx context.Context, o *propagationFlags) error {
	done := c.progress("starting %d members", o.nodes)
	f, err := startFleet(ctx, o.nodes, o.pace, c.err)
	done()
	if err != nil {
		return benchFault(err, "the members did not come up")
	}
	defer f.close()
	f.row(c, propagationRow{Name: "join", N: o.nodes, Value: new(f.joined.Seconds()), Unit: "s until all had all"})
	for _, step := range []func(context.Context, *cli, *propagationFlags) error{f.idle, f.changes, f.deaths} {
		if err := step(ctx, c, o); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return benchFault(err, "a member did not do as it should")
		}
	}
	f.row(c, propagationRow{Name: "false_suspicions", N: f.wrong, Unit: "members", Wanted: "0", Met: new(f.wrong == 0)})
	return nil
}

func (f *fleet) row(c *cli, r propagationRow) {
	r.Nodes, r.Pace = len(f.members), f.pace
	if c.json {
		c.jsonLine(c.out, r)
		return
	}
	text := fmt.Sprintf("%-18s %4d members, %s %6d", r.Name, r.Nodes, r.Pace, r.N)
	if r.P50 != nil {
		text += fmt.Sprintf("   p50 %.1f ms   p99 %.1f ms   max %.1f ms", *r.P50, *r.P99, *r.Max)
	}
	if r.Value != nil {
		text += fmt.Sprintf("   %.2f %s", *r.Value, r.Unit)
	}
	if r.Worst != nil {
		text += fmt.Sprintf(", at most %.2f", *r.Worst)
	}
	if r.Met != nil {
		text += "   wanted: " + r.Wanted
		if !*r.Met {
			text += "  MISSED"
		}
	}
	fmt.Fprintln(c.out, text)
}

// wanted gives a limit on times where there is one: at a LAN's pace.
func (f *fleet) wanted(limit string) string {
	if f.pace != "lan" {
		return ""
	}
	return limit
}

func timesRow(name string, ds []time.Duration, wanted string, limit float64) propagationRow {
	p50, p99, most := quantile(ds, 0.5), quantile(ds, 0.99), quantile(ds, 1)
	r := propagationRow{Name: name, N: len(ds), P50: &p50, P99: &p99, Max: &most, Wanted: wanted}
	if wanted != "" {
		r.Met = new(p99 < limit)
	}
	return r
}

// changes changes something at a random member, and waits until all others have seen it, again and again.
func (f *fleet) changes(ctx context.Context, c *cli, o *propagationFlags) error {
	rng := rand.New(rand.NewPCG(1, uint64(os.Getpid())))
	var all, each []time.Duration
	for i := range o.n {
		key := fmt.Sprintf("m%06d", i)
		at := rng.IntN(len(f.members))
		if err := f.members[at].order(memberOrder{Do: "change", Key: key}); err != nil {
			return err
		}
		var began int64
		var seen []int64
		err := f.until(ctx, time.Minute, func(_ int, x memberLine) bool {
			switch {
			case x.What == "changed" && x.Key == key:
				began = x.At
			case x.What == "saw" && x.Key == key:
				seen = append(seen, x.At)
			}
			return began > 0 && len(seen) == len(f.members)-1
		})
		if err != nil {
			return fmt.Errorf("change %d was seen by %d of %d members: %w", i, len(seen), len(f.members)-1, err)
		}
		for _, at := range seen {
			each = append(each, time.Duration(at-began))
		}
		all = append(all, time.Duration(slices.Max(seen)-began))
		if err := rest(ctx, time.Duration(20+rng.IntN(80))*time.Millisecond); err != nil { // in any phase of their clocks
			return err
		}
	}
	f.row(c, timesRow("propagation", all, f.wanted("p99 < 200 ms"), 200))
	f.row(c, timesRow("propagation_each", each, "", 0))
	return nil
}

// idle measures what members cost while nothing changes.
func (f *fleet) idle(ctx context.Context, c *cli, o *propagationFlags) error {
	if err := rest(ctx, 3*time.Second); err != nil { // what joining began may still be going on
		return err
	}
	before, err := f.stats(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := rest(ctx, o.idle); err != nil {
		return err
	}
	after, err := f.stats(ctx)
	if err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	var cpu, bytes, worstCPU, worstBytes float64
	for i := range after {
		x := 100 * (after[i].CPU - before[i].CPU).Seconds() / took
		y := float64(after[i].Gossip.Sent+after[i].Gossip.Received-before[i].Gossip.Sent-before[i].Gossip.Received) / took / 1000
		cpu, bytes, worstCPU, worstBytes = cpu+x, bytes+y, max(worstCPU, x), max(worstBytes, y)
	}
	n := float64(len(after))
	var joining, worstJoining float64
	for _, x := range before {
		joining, worstJoining = joining+x.CPU.Seconds(), max(worstJoining, x.CPU.Seconds())
	}
	f.row(c, propagationRow{Name: "join_cpu", N: len(before), Value: new(joining / n), Worst: &worstJoining, Unit: "s"})
	f.row(c, propagationRow{Name: "idle_cpu", N: len(after), Value: new(cpu / n), Worst: &worstCPU, Unit: "% of a core", Wanted: "< 1 %", Met: new(cpu/n < 1)})
	if err := f.memory(ctx, c); err != nil {
		return err
	}
	f.row(c, propagationRow{Name: "idle_bytes", N: len(after), Value: new(bytes / n), Worst: &worstBytes, Unit: "KB/s", Wanted: "< 10 KB/s", Met: new(bytes/n < 10)})
	return nil
}

// memory measures what members have.
func (f *fleet) memory(ctx context.Context, c *cli) error {
	xs, err := f.ask(ctx, memberOrder{Do: "stats", Memory: true})
	if err != nil {
		return err
	}
	var sum, worst float64
	for _, x := range xs {
		sum, worst = sum+float64(x.PSS)/1e6, max(worst, float64(x.PSS)/1e6)
	}
	f.row(c, propagationRow{Name: "idle_memory", N: len(xs), Value: new(sum / float64(len(xs))), Worst: &worst, Unit: "MB"})
	return nil
}

// deaths kills members one after another, each time until all others hold it for dead.
func (f *fleet) deaths(ctx context.Context, c *cli, o *propagationFlags) error {
	var all []time.Duration
	for range o.deaths {
		victim := f.members[len(f.members)-1]
		f.members = f.members[:len(f.members)-1]
		began := time.Now().UnixNano()
		victim.kill()
		var seen []int64
		f.expected[victim.id] = true
		err := f.until(ctx, time.Minute, func(from int, x memberLine) bool {
			if x.What == "member" && x.Key == victim.id && x.State == "dead" {
				seen = append(seen, x.At)
			}
			return len(seen) == len(f.members)
		})
		if err != nil {
			return fmt.Errorf("the death of %s was noticed by %d of %d members: %w", victim.id, len(seen), len(f.members), err)
		}
		all = append(all, time.Duration(slices.Max(seen)-began))
	}
	if len(all) > 0 {
		f.row(c, timesRow("death", all, f.wanted("< 3 s"), 3000))
	}
	return nil
}

func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

var errSilent = fault.New(fault.Timeout, "silent", "nothing was heard of it in time")
