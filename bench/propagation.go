package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/soukhq/souk/internal/wait"
)

// PropagationRow is one measurement of a cluster. What does not apply is left out.
type PropagationRow struct {
	Name   string   `json:"name"`
	Nodes  int      `json:"nodes"`
	Pace   string   `json:"pace"`
	N      int      `json:"n"`
	P50    *float64 `json:"p50_ms,omitempty"`
	P99    *float64 `json:"p99_ms,omitempty"`
	Max    *float64 `json:"max_ms,omitempty"`
	Value  *float64 `json:"value,omitempty"` // the mean over the members
	Worst  *float64 `json:"worst,omitempty"` // of the worst member
	Unit   string   `json:"unit,omitempty"`
	Wanted string   `json:"wanted,omitempty"`
	Met    *bool    `json:"met,omitempty"`
}

type PropagationOptions struct {
	Nodes, N, Deaths int
	Idle             time.Duration
	Pace             string
}

// Crowd is how many members one core can run at the pace of a LAN: each uses half a percent of a core, several times
// that during joins, and must be scheduled within a probe's 80 ms.
const Crowd = 40

// Propagation measures a fleet of members of its own.
func Propagation(ctx context.Context, o *PropagationOptions, to Reporter) error {
	done := to.Working("starting %d members", o.Nodes)
	f, err := startFleet(ctx, o.Nodes, o.Pace, to.Stderr())
	done()
	if err != nil {
		return wrapFailure(err, "the members did not come up")
	}
	defer f.closeMembers()
	f.writeRow(to, PropagationRow{Name: "join", N: o.Nodes, Value: new(f.joined.Seconds()),
		Unit: "s until all had all"})
	for _, step := range []func(context.Context, Reporter, *PropagationOptions) error{f.measureIdle, f.measureChanges,
		f.measureDeaths} {
		if err := step(ctx, to, o); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return wrapFailure(err, "a member did not do as it should")
		}
	}
	f.writeRow(to, PropagationRow{Name: "false_suspicions", N: f.wrong, Unit: "members", Wanted: "0",
		Met: new(f.wrong == 0)})
	return nil
}

func (f *fleet) writeRow(to Reporter, r PropagationRow) {
	r.Nodes, r.Pace = len(f.members), f.pace
	to.Row(r)
}

// Text returns the row as it is printed for people.
func (r PropagationRow) Text() string {
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
	return text
}

// wantedLimit returns a limit on times at a LAN's pace; "" at others.
func (f *fleet) wantedLimit(limit string) string {
	if f.pace != "lan" {
		return ""
	}
	return limit
}

func timesRow(name string, ds []time.Duration, wanted string, limit float64) PropagationRow {
	p50, p99, most := Quantile(ds, 0.5), Quantile(ds, 0.99), Quantile(ds, 1)
	r := PropagationRow{Name: name, N: len(ds), P50: &p50, P99: &p99, Max: &most, Wanted: wanted}
	if wanted != "" {
		r.Met = new(p99 < limit)
	}
	return r
}

// measureChanges changes something at a random member, and waits until all others have seen it, again and again.
func (f *fleet) measureChanges(ctx context.Context, to Reporter, o *PropagationOptions) error {
	rng := rand.New(rand.NewPCG(1, uint64(os.Getpid())))
	var all, each []time.Duration
	for i := range o.N {
		key := fmt.Sprintf("m%06d", i)
		at := rng.IntN(len(f.members))
		if err := f.members[at].sendOrder(memberOrder{Do: "change", Key: key}); err != nil {
			return err
		}
		var began int64
		var seen []int64
		err := f.readUntil(ctx, time.Minute, func(_ int, x memberLine) bool {
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
		if err := wait.For(ctx, time.Duration(20+rng.IntN(80))*time.Millisecond); err != nil {
			// start at a random phase of the members' timers
			return err
		}
	}
	f.writeRow(to, timesRow("propagation", all, f.wantedLimit("p99 < 200 ms"), 200))
	f.writeRow(to, timesRow("propagation_each", each, "", 0))
	return nil
}

// measureIdle measures what members cost while nothing changes.
func (f *fleet) measureIdle(ctx context.Context, to Reporter, o *PropagationOptions) error {
	if err := wait.For(ctx, 3*time.Second); err != nil { // effects of joining may still go on
		return err
	}
	before, err := f.readStats(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := wait.For(ctx, o.Idle); err != nil {
		return err
	}
	after, err := f.readStats(ctx)
	if err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	var cpu, bytes, worstCPU, worstBytes float64
	for i := range after {
		x := 100 * (after[i].CPU - before[i].CPU).Seconds() / took
		y := float64(
			after[i].Gossip.Sent+after[i].Gossip.Received-before[i].Gossip.Sent-before[i].Gossip.Received) / took / 1000
		cpu, bytes, worstCPU, worstBytes = cpu+x, bytes+y, max(worstCPU, x), max(worstBytes, y)
	}
	n := float64(len(after))
	var joining, worstJoining float64
	for _, x := range before {
		joining, worstJoining = joining+x.CPU.Seconds(), max(worstJoining, x.CPU.Seconds())
	}
	f.writeRow(to, PropagationRow{Name: "join_cpu", N: len(before), Value: new(joining / n), Worst: &worstJoining,
		Unit: "s"})
	f.writeRow(to, PropagationRow{
		Name:   "idle_cpu",
		N:      len(after),
		Value:  new(cpu / n),
		Worst:  &worstCPU,
		Unit:   "% of a core",
		Wanted: "< 1 %",
		Met:    new(cpu/n < 1),
	})
	if err := f.measureMemory(ctx, to); err != nil {
		return err
	}
	f.writeRow(to, PropagationRow{
		Name:   "idle_bytes",
		N:      len(after),
		Value:  new(bytes / n),
		Worst:  &worstBytes,
		Unit:   "KB/s",
		Wanted: "< 10 KB/s",
		Met:    new(bytes/n < 10),
	})
	return nil
}

// measureMemory measures the members' memory.
func (f *fleet) measureMemory(ctx context.Context, to Reporter) error {
	xs, err := f.askMembers(ctx, memberOrder{Do: "stats", Memory: true})
	if err != nil {
		return err
	}
	var sum, worst float64
	for _, x := range xs {
		sum, worst = sum+float64(x.PSS)/1e6, max(worst, float64(x.PSS)/1e6)
	}
	f.writeRow(to,
		PropagationRow{Name: "idle_memory", N: len(xs), Value: new(sum / float64(len(xs))), Worst: &worst, Unit: "MB"})
	return nil
}

// measureDeaths kills members one after another, each time until all others consider it dead.
func (f *fleet) measureDeaths(ctx context.Context, to Reporter, o *PropagationOptions) error {
	var all []time.Duration
	for range o.Deaths {
		victim := f.members[len(f.members)-1]
		f.members = f.members[:len(f.members)-1]
		began := time.Now().UnixNano()
		victim.killMember()
		var seen []int64
		f.expected[victim.id] = true
		err := f.readUntil(ctx, time.Minute, func(from int, x memberLine) bool {
			if x.What == "member" && x.Key == victim.id && x.State == "dead" {
				seen = append(seen, x.At)
			}
			return len(seen) == len(f.members)
		})
		if err != nil {
			return fmt.Errorf("the death of %s was noticed by %d of %d members: %w", victim.id, len(seen),
				len(f.members), err)
		}
		all = append(all, time.Duration(slices.Max(seen)-began))
	}
	if len(all) > 0 {
		f.writeRow(to, timesRow("death", all, f.wantedLimit("< 3 s"), 3000))
	}
	return nil
}
