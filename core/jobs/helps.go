package jobs

import (
	"fmt"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// explainHelp says in one sentence what would have waiting tasks of a job start sooner, or at all; "": nothing is known
// that would. Whether a worker can hold a task is the judge's verdict.
func (d *Dispatcher) explainHelp(now time.Time, j *job) string {
	if text, gated := d.explainGateHelp(j); gated {
		return text
	}
	sh := d.queueOf(j.shape())
	if _, name := d.capOf(sh, 1); name != "" {
		return fmt.Sprintf("a larger limit of %s for namespace %s (\"souk quota set --max\")", name,
			j.terms.account().Namespace)
	}
	v := d.countVerdicts(&sh.request, sh.shape.Place)
	switch {
	case v.all == 0:
		return ""
	case v.never == v.all:
		return d.findSmaller(sh, cluster.Resources{}, "could run on",
			func(w verdicts) int { return w.all - w.never })
	case v.fit > 0 && j.spec.AtOnce > 0 && j.counts[granted]+j.counts[running] >= j.spec.AtOnce:
		return fmt.Sprintf("a larger number behind the %% of its array: %s room for another task of it now",
			countNoun(v.fit, "worker has", "workers have"))
	case v.fit == 0:
		least := cluster.Resources{CPU: 50, Memory: 16}
		if text := d.findSmaller(sh, least, "fits now on", func(w verdicts) int { return w.fit }); text != "" {
			return text
		}
	}
	if d.isBehindNamespaces(now, j) {
		return fmt.Sprintf("a higher weight of namespace %s (\"souk quota set --weight\") has it go first more often",
			j.terms.account().Namespace)
	}
	return ""
}

// explainGateHelp says what would let a job go; gated is false if nothing but room keeps it.
func (d *Dispatcher) explainGateHelp(j *job) (text string, gated bool) {
	switch {
	case j.uncertain || j.fresh || !j.unpaid.IsZero():
		return "", true
	case j.onHold:
		return fmt.Sprintf("\"souk job release %s\" lets it go", j.id), true
	}
	for i := range j.after {
		x := &j.after[i]
		if a := d.jobs[x.Job]; x.state == depNever && x.Kind != AfterFail && a != nil && a.why == "" {
			return fmt.Sprintf("\"souk job rerun --failed %s\", if those tasks succeed then", x.Job), true
		}
	}
	return "", j.isGated()
}

// verdicts counts workers by the judge's verdict on a task.
type verdicts struct {
	all, fit, never int
}

func (d *Dispatcher) countVerdicts(r *placement.Request, p Place) (out verdicts) {
	for _, s := range d.inOrder {
		if !s.here && !s.near {
			continue
		}
		out.all++
		v := placement.JudgeAt(r, &s.record)
		if s.refused[p] != "" {
			v.Fits = false
		}
		switch {
		case v.Never:
			out.never++
		case v.Fits && (s.free > 0 || !s.here):
			out.fit++
		}
	}
	return out
}

// findSmaller says with how much less a task of a shape would do: with less memory, fewer cores, or without one of its
// requirements. count counts the workers for such a task, and fits says what it can do there; least is the least that is
// tried. "": nothing of this helps.
func (d *Dispatcher) findSmaller(sh *shapeQueue, least cluster.Resources, fits string, count func(verdicts) int,
) string {
	try := func(r *placement.Request) (int, bool) {
		n := count(d.countVerdicts(r, sh.shape.Place))
		return n, n > 0
	}
	want := sh.request.Resources
	var mem, cpu []int64
	for _, s := range d.inOrder {
		for _, room := range []cluster.Resources{s.record.Capacity, s.record.Capacity.Sub(s.record.Used)} {
			mem, cpu = append(mem, room.Memory), append(cpu, room.CPU)
		}
	}
	for _, amount := range descending(mem, max(1, least.Memory), want.Memory) {
		r := sh.request
		r.Resources.Memory = amount
		if n, ok := try(&r); ok {
			return fmt.Sprintf("less memory: a task with %d MiB instead of %d MiB %s %s", amount, want.Memory, fits,
				countNoun(n, "worker", "workers"))
		}
	}
	for _, amount := range descending(cpu, max(1, least.CPU), want.CPU) {
		r := sh.request
		r.Resources.CPU = amount
		if n, ok := try(&r); ok {
			return fmt.Sprintf("fewer cores: a task with %g instead of %g %s %s", float64(amount)/1000,
				float64(want.CPU)/1000, fits, countNoun(n, "worker", "workers"))
		}
	}
	for i, q := range sh.request.Scheduling.Require {
		r := sh.request
		r.Scheduling.Require = slices.Delete(slices.Clone(r.Scheduling.Require), i, i+1)
		if n, ok := try(&r); ok {
			return fmt.Sprintf("without the requirement \"%s\" a task %s %s", q, fits,
				countNoun(n, "worker", "workers"))
		}
	}
	return ""
}

// descending returns the amounts of at least least and below most, the largest first, each once.
func descending(amounts []int64, least, most int64) []int64 {
	slices.Sort(amounts)
	amounts = slices.DeleteFunc(slices.Compact(amounts), func(n int64) bool { return n < least || n >= most })
	slices.Reverse(amounts)
	return amounts
}

// isBehindNamespaces reports whether other namespaces go before that of a job on some worker.
func (d *Dispatcher) isBehindNamespaces(now time.Time, j *job) bool {
	return slices.ContainsFunc(d.sharesOf(j), func(x AccountShare) bool {
		return now.Sub(x.At) <= shareFresh && x.NamespaceLevel > 0
	})
}
