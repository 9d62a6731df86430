package cell

import (
	"slices"

	"github.com/soukhq/souk/sim/ticks"
)

// Report is the result of a run.
type Report struct {
	Class       [2]ClassReport `json:"class"` // Batch, Service
	Utilisation float64        `json:"utilisation"`
	Reserved    float64        `json:"reserved"` // CPU time held without use, as a share of CPU time used
	Placed      int            `json:"placed_tasks"`
	Events      int            `json:"events"`
	OverCommits int            `json:"over_commits"` // must be 0
	used        int64
	reserved    int64
}

// ClassReport is the part of a Report about one class's jobs and schedulers. Times are seconds.
type ClassReport struct {
	Jobs      int     `json:"jobs"`
	Attempted int     `json:"attempted"`
	Placed    int     `json:"placed"` // completely placed
	Abandoned int     `json:"given_up"`
	Wait      Waits   `json:"wait"`          // from submission to the start of the first attempt
	FullWait  Waits   `json:"full_wait"`     // total wait in queues until completely placed
	Busy      float64 `json:"busy"`          // share of the time in decisions that placed or conflicted
	Wasted    float64 `json:"wasted"`        // share of Busy that ended in a conflict
	Blocked   float64 `json:"no_room"`       // share of the time in decisions without any free room
	Conflicts float64 `json:"conflicts"`     // per successful transaction
	LateLeft  int     `json:"late_unplaced"` // not completely placed, but submitted in the last minute
}

// Waits is a sum of waiting times.
type Waits struct {
	Mean float64 `json:"mean"`
	P90  float64 `json:"p90"`
}

func summariseWaits(ts []ticks.Time) Waits {
	if len(ts) == 0 {
		return Waits{}
	}
	slices.Sort(ts)
	var sum ticks.Time
	for _, t := range ts {
		sum += t
	}
	return Waits{Mean: ticks.Seconds(sum) / float64(len(ts)), P90: ticks.Seconds(ts[int(float64(len(ts)-1)*0.9)])}
}

// sumUp computes the report; next is the first job that has not arrived.
func (r *run) sumUp(next int) {
	rep := &r.report
	for w := range int32(r.cfg.Workers) {
		if f := r.cell.Free(w); f.CPU < 0 || f.Mem < 0 {
			rep.OverCommits++
		}
	}
	var first, full [2][]ticks.Time
	for i := range r.jobs[:next] {
		j := &r.jobs[i]
		c := &rep.Class[j.Class]
		c.Jobs++
		if j.attempts > 0 {
			c.Attempted++
			first[j.Class] = append(first[j.Class], j.first)
			full[j.Class] = append(full[j.Class], j.full)
		}
		switch {
		case j.gone:
			c.Abandoned++
		case j.done:
			c.Placed++
		case j.Submit > r.cfg.Until-60*ticks.Second:
			c.LateLeft++
		}
		rep.reserved += int64(len(j.hoard)) * int64(j.Want.CPU) * (r.now - j.since)
	}
	until := float64(r.cfg.Until)
	var won, lost, scheds [2]int
	for i := range r.scheds {
		s := &r.scheds[i]
		c := &rep.Class[s.class]
		c.Busy += float64(s.useful+s.wasted) / until
		c.Wasted += float64(s.wasted) / until
		c.Blocked += float64(s.idle) / until
		won[s.class] += s.won
		lost[s.class] += s.lost
		scheds[s.class]++
	}
	for k := range rep.Class {
		c := &rep.Class[k]
		c.Wait, c.FullWait = summariseWaits(first[k]), summariseWaits(full[k])
		if n := float64(scheds[k]); n > 0 {
			c.Busy, c.Wasted, c.Blocked = c.Busy/n, c.Wasted/n, c.Blocked/n
		}
		if won[k] > 0 {
			c.Conflicts = float64(lost[k]) / float64(won[k])
		}
	}
	rep.Utilisation = float64(rep.used) / (until * float64(r.cfg.Workers) * float64(r.cfg.Each.CPU))
	if rep.used > 0 {
		rep.Reserved = float64(rep.reserved) / float64(rep.used)
	}
}
