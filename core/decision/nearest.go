package decision

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// MaxChanges is how many changes Nearest proposes.
const MaxChanges = 5

// Limits are the bounds of what a request may ask for, so that each proposed change can be made.
type Limits struct {
	Least cluster.Resources // the least of each dimension
	Grain cluster.Resources // amounts are multiples of it; 0: any amount
}

// stepCost returns the cost of a step: for Less, the share that is given up plus a small fixed cost. What an operator
// must do costs more than what the client can do.
func stepCost(s *Step) float64 {
	switch s.Kind {
	case Less:
		return 0.1 + float64(s.From-s.To)/float64(max(1, s.From))
	case Wait:
		return 0.3
	case Evict:
		return 0.5 + 0.1*float64(s.Machines)
	case DropSpread:
		return 0.6
	case AddRegion, DropNear:
		return 0.8
	case AnyGPU:
		return 0.9
	case Tolerate, SetLabel:
		return 1.2
	case Uncordon:
		return 1.5
	}
	return 1
}

// Nearest returns the smallest changes that make a request fit which no worker takes, cheapest first. None is
// dominated: no other change does the same with less. Each is verified: after it, policy p's judge accepts the request
// on the worker that the change names. The list is empty if the request fits somewhere, or if no known change helps.
//
// For each worker the failing clauses determine the steps; room is made either by asking for less or by evicting lower
// ranks. The time is proportional to the number of workers, with a few judgements for each.
func Nearest(r placement.Request, view cluster.View, p placement.Policy, limits Limits) []Change {
	best := map[string]*Change{}
	for i := range view.Workers {
		w := &view.Workers[i]
		v := placement.JudgeAt(&r, w)
		if pv := p.Judge(&r, w); pv.Fits {
			return nil
		}
		for _, evict := range []bool{false, true} {
			c, ok := changeForWorker(&r, w, v, p, limits, evict)
			if !ok {
				continue
			}
			key := c.kindsKey()
			switch old := best[key]; {
			case old == nil:
				best[key] = &c
			case c.isBelow(old):
				c.Also = old.Also + 1
				best[key] = &c
			default:
				old.Also++
			}
		}
	}
	out := make([]Change, 0, len(best))
	for _, c := range best {
		dominated := false
		for _, o := range best {
			dominated = dominated || (o != c && o.dominatesChange(c))
		}
		if !dominated {
			c.Text = c.changeSentence(&r)
			out = append(out, *c)
		}
	}
	slices.SortFunc(out, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Cost, b.Cost), cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.kindsKey(),
			b.kindsKey()))
	})
	return out[:min(len(out), MaxChanges)]
}

// changeForWorker returns the change for one worker. evict chooses how it makes room: by eviction or by asking for
// less.
func changeForWorker(r *placement.Request, w *cluster.Record, v placement.Verdict, p placement.Policy, limits Limits,
	evict bool) (Change, bool) {
	c := Change{Worker: w.Worker}
	if v.Fits {
		return c, false // a filter of the policy refuses, which no change of the request helps
	}
	if !addConstraintSteps(r, w, v, &c) {
		return c, false
	}
	// Only room is missing now: judge again with the constraints lifted.
	for range 2 * (len(r.Resources.Dims()) + 1) {
		r2, w2 := c.Apply(*r, *w)
		left := p.Judge(&r2, &w2)
		if left.Fits {
			break
		}
		var ok bool
		if evict {
			ok = c.evictOneMore(&r2, &w2)
		} else {
			ok = c.lowerForClause(&r2, &w2, left.Failing[0].Code, left.Failing[0].Wanted, limits)
		}
		if !ok {
			return c, false
		}
	}
	r2, w2 := c.Apply(*r, *w)
	if evict != slices.ContainsFunc(c.Steps, func(s Step) bool { return s.Kind == Evict }) || !p.Judge(&r2, &w2).Fits {
		return c, false
	}
	slices.SortFunc(c.Steps, func(a, b Step) int { return cmp.Compare(a.kindKey(), b.kindKey()) })
	for i := range c.Steps {
		c.Cost += stepCost(&c.Steps[i])
	}
	return c, true
}

// addConstraintSteps adds a step for each failing clause that is not about room; false if no step helps one of them.
func addConstraintSteps(r *placement.Request, w *cluster.Record, v placement.Verdict, c *Change) bool {
	steps := map[string]Step{}
	add := func(s Step) { steps[s.kindKey()] = s }
	for _, f := range v.Failing {
		switch f.Code {
		case placement.CodeState:
			add(Step{Kind: Uncordon, Name: string(w.State)})
		case placement.CodeStartRate:
			add(Step{Kind: Wait})
		case placement.CodeRegion:
			add(Step{Kind: AddRegion, Name: string(w.Region)})
		case placement.CodeGPUKind:
			if ofKind(r, w) == 0 { // otherwise asking for fewer helps
				add(Step{Kind: AnyGPU})
			}
		case placement.CodeVolume, placement.CodeAttached, placement.CodePolicy, placement.CodeMachines, CodeQuota:
			return false
		}
	}
	for i := range r.Scheduling.Require {
		q := &r.Scheduling.Require[i]
		if got, there := w.Attribute(q.Attribute); q.Of(got, there) != cluster.Met {
			add(Step{Kind: DropRequire, Index: i})
		}
	}
	for i := range w.Require {
		q := &w.Require[i]
		if got, there := r.Label(q.Attribute); q.Of(got, there) != cluster.Met {
			if (q.Op != cluster.Equal && q.Op != cluster.In) || len(q.Values) == 0 || isBuiltinLabel(q.Attribute) {
				return false
			}
			add(Step{Kind: SetLabel, Name: q.Attribute, Value: q.Values[0].String()})
		}
	}
	for _, name := range w.Reserved {
		if !slices.Contains(r.Scheduling.Tolerate, name) {
			add(Step{Kind: Tolerate, Name: name})
		}
	}
	addNeighbourSteps(r, w, add)
	for _, s := range steps {
		c.Steps = append(c.Steps, s)
	}
	return true
}

// addNeighbourSteps adds a step for each affinity or spread that fails when judged alone.
func addNeighbourSteps(r *placement.Request, w *cluster.Record, add func(Step)) {
	alone := placement.Request{App: r.App, Machine: r.Machine}
	for i := range r.Scheduling.Affinity {
		one := alone
		one.Scheduling.Affinity = r.Scheduling.Affinity[i : i+1]
		if i < len(r.Fleet.Affinity) {
			one.Fleet.Affinity = r.Fleet.Affinity[i : i+1]
		}
		if failsWithCode(&one, w, placement.CodeAffinity, placement.CodeAntiAffinity) {
			add(Step{Kind: DropNear, Index: i})
		}
	}
	for i := range r.Scheduling.Spread {
		one := alone
		one.Scheduling.Spread = r.Scheduling.Spread[i : i+1]
		if i < len(r.Fleet.Spread) {
			one.Fleet.Spread = r.Fleet.Spread[i : i+1]
		}
		if failsWithCode(&one, w, placement.CodeSpread) {
			add(Step{Kind: DropSpread, Index: i})
		}
	}
}

func failsWithCode(r *placement.Request, w *cluster.Record, codes ...string) bool {
	for _, f := range placement.JudgeAt(r, w).Failing {
		if slices.Contains(codes, f.Code) {
			return true
		}
	}
	return false
}

// isBuiltinLabel reports whether souk itself sets a label, so that a request cannot.
func isBuiltinLabel(name string) bool {
	return slices.Contains([]string{"app", "namespace", "band", "priority", "image", "gpu_kind", "unix_user"}, name)
}

// lowerForClause lowers the dimension that a clause names to what is free. If too little is left for a machine that a
// request wakes, it drops the wake.
func (c *Change) lowerForClause(r *placement.Request, w *cluster.Record, code, wanted string, limits Limits) bool {
	dim, free := code, w.Free()
	to := free.Get(dim)
	switch code {
	case placement.CodeHeadroom:
		if _, err := fmt.Sscan(wanted, &dim); err != nil { // "memory 512 MiB beside ..."
			return false
		}
		to = free.Get(dim) - w.Headroom.Get(dim)
	case placement.CodePromised:
		if _, err := fmt.Sscan(wanted, &dim); err != nil { // "memory 512 MiB"
			return false
		}
		to = w.Promisable(dim) - w.Used.Get(dim) - w.Promised.Get(dim)
		if to < max(1, limits.Least.Get(dim)) {
			c.Steps = append(c.Steps, Step{Kind: NoWake})
			return true
		}
	case placement.CodeGPUDevice:
		dim, to = "gpu", largestDevices(r, w)
	case placement.CodeGPUKind:
		dim, to = "gpu", ofKind(r, w)
	}
	if grain := limits.Grain.Get(dim); grain > 1 {
		to -= to % grain
	}
	return c.askForLess(r, dim, to, limits)
}

// askForLess lowers a dimension to to; false if to is nothing, too little, or no less than before.
func (c *Change) askForLess(r *placement.Request, dim string, to int64, limits Limits) bool {
	from := r.Resources.Get(dim)
	if to <= 0 || to < limits.Least.Get(dim) || to >= from {
		return false
	}
	for i := range c.Steps {
		if s := &c.Steps[i]; s.Kind == Less && s.Dim == dim {
			s.To = min(s.To, to)
			return true
		}
	}
	step := Step{Kind: Less, Dim: dim, From: from, To: to}
	if grain := limits.Grain.Get(dim); grain > 1 {
		step.Each = grain
	}
	c.Steps = append(c.Steps, step)
	return true
}

// ofKind returns how much GPU of the requested kind the worker has.
func ofKind(r *placement.Request, w *cluster.Record) (all int64) {
	for _, g := range w.GPUs {
		if r.GPUKind == "" || g.Kind == r.GPUKind {
			all += 1000
		}
	}
	return all
}

// largestDevices returns the most GPU that one request can have there: whole devices, or else the largest part of one.
func largestDevices(r *placement.Request, w *cluster.Record) int64 {
	var whole, part int64
	for _, g := range w.GPUs {
		if r.GPUKind != "" && g.Kind != r.GPUKind {
			continue
		}
		if g.Free >= 1000 {
			whole += 1000
		}
		part = max(part, g.Free)
	}
	return max(whole, min(part, 1000))
}

// evictOneMore adds the next rank to the eviction, lowest first. The summaries do not say which devices a machine has,
// so eviction makes no room on GPUs that the record lists one by one.
func (c *Change) evictOneMore(r *placement.Request, w *cluster.Record) bool {
	if r.Resources.GPU > 0 && len(w.GPUs) > 0 {
		return false
	}
	at := slices.IndexFunc(c.Steps, func(s Step) bool { return s.Kind == Evict })
	last := -1
	if at >= 0 {
		last = c.Steps[at].Rank
	}
	for _, e := range w.Evictable {
		if e.Rank <= last || e.Rank >= r.Scheduling.Rank() || e.Machines == 0 {
			continue
		}
		if at < 0 {
			c.Steps = append(c.Steps, Step{Kind: Evict})
			at = len(c.Steps) - 1
		}
		s := &c.Steps[at]
		s.Rank, s.Machines, s.Frees = e.Rank, s.Machines+e.Machines, s.Frees.Add(e.Resources)
		return true
	}
	return false
}

// kindsKey returns a key that is equal for changes with the same kinds of steps on the same parts of the request.
func (c *Change) kindsKey() string {
	out := ""
	for i := range c.Steps {
		out += c.Steps[i].kindKey() + ";"
	}
	return out
}

func (s *Step) kindKey() string {
	switch s.Kind {
	case Evict, Wait, Uncordon, AnyGPU, NoWake:
		return string(s.Kind)
	case Less:
		return string(s.Kind) + " " + s.Dim
	}
	return fmt.Sprintf("%s %s %d %s", s.Kind, s.Name, s.Index, s.Value)
}

// isBelow reports whether c is the better of two changes with the same key.
func (c *Change) isBelow(o *Change) bool {
	if c.dominatesChange(o) {
		return true
	}
	return !o.dominatesChange(c) && (c.Cost < o.Cost || (c.Cost == o.Cost && c.Worker < o.Worker))
}

// dominatesChange reports whether c has only steps of o, none of them larger, and is smaller in at least one way.
func (c *Change) dominatesChange(o *Change) bool {
	smaller := len(c.Steps) < len(o.Steps)
	for i := range c.Steps {
		s := &c.Steps[i]
		j := slices.IndexFunc(o.Steps, func(t Step) bool { return t.kindKey() == s.kindKey() })
		if j < 0 {
			return false
		}
		t := &o.Steps[j]
		if s.From-s.To > t.From-t.To || s.Machines > t.Machines {
			return false
		}
		smaller = smaller || s.From-s.To < t.From-t.To || s.Machines < t.Machines
	}
	return smaller
}
