package market

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
)

// MaxWanted bounds the requests for which one worker keeps tasks from its capacity.
const MaxWanted = 256

// wanted are the requests that tasks are kept from the capacity for, by token.
type wanted map[string]cluster.Wanted

// gangOf returns the gang that a token of a hold, or of what is wanted, belongs to: both begin with its ID.
func gangOf(token string) string {
	gang, _, _ := strings.Cut(token, ".")
	return gang
}

// Want keeps new tasks from the capacity that a request needs, until the time that it returns, now+ttl. Tasks that run go
// on, and a new one begins only if it ends before the request can have its capacity. Nothing is held: a machine may still
// take it. Repeating the token renews it. It is refused where the request would not fit even without tasks.
func (s *Seller) Want(now time.Time, r placement.Request, token string, ttl time.Duration) (time.Time, error) {
	s.expireHolds(now)
	if token == "" || ttl <= 0 || ttl > MaxHoldTTL {
		return time.Time{}, fault.New(fault.Invalid, codeHold,
			"what is wanted needs a token and a time of at most %v; got %v", MaxHoldTTL, ttl)
	}
	old, renews := s.wanted[token]
	if !renews && len(s.wanted) >= MaxWanted {
		return time.Time{}, s.refuseRequest(now, r, placement.Verdict{},
			"the worker keeps tasks from its capacity for %d requests already", MaxWanted)
	}
	s.setFunds(now, &r)
	if v := placement.Judge(r, WithoutTasks(s.rec)); !v.Fits {
		delete(s.wanted, token)
		s.listWanted()
		return time.Time{}, s.refuseRequest(now, r, v, "")
	}
	w := cluster.Wanted{Namespace: cmp.Or(r.Namespace, cluster.DefaultNamespace), Resources: r.Resources,
		GPUKind: r.GPUKind, Gang: gangOf(token), Since: now, Until: now.Add(ttl)}
	if renews {
		w.Since = old.Since
	}
	s.wanted[token] = w
	s.listWanted()
	return w.Until, nil
}

// grantWanted ends what is wanted for one machine of a gang, whose hold is redeemed.
func (s *Seller) grantWanted(r *placement.Request, token string) {
	if len(s.wanted) == 0 || token == "" {
		return
	}
	first := ""
	for t, w := range s.wanted {
		if w.Gang == gangOf(token) && w.Resources.Sub(r.Resources).IsZero() && (first == "" || t < first) {
			first = t
		}
	}
	if first != "" {
		delete(s.wanted, first)
		s.listWanted()
	}
}

// expireWanted ends what is wanted no more.
func (s *Seller) expireWanted(now time.Time) {
	before := len(s.wanted)
	for token, w := range s.wanted {
		if !now.Before(w.Until) {
			delete(s.wanted, token)
		}
	}
	if len(s.wanted) != before {
		s.listWanted()
	}
}

// listWanted puts what is wanted into the record, the oldest first.
func (s *Seller) listWanted() {
	s.rec.Wanted = nil
	for _, w := range s.wanted {
		s.rec.Wanted = append(s.rec.Wanted, w)
	}
	slices.SortFunc(s.rec.Wanted, func(a, b cluster.Wanted) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Gang, b.Gang), cmp.Compare(a.Resources.CPU,
			b.Resources.CPU), a.Until.Compare(b.Until))
	})
	s.bumpVersion()
}

// countTask adds what a task occupies to the record's sum (sign 1), or removes it (-1).
func (s *Seller) countTask(g *grant, sign int64) {
	if !g.task {
		return
	}
	a := g.occupiedAmount().res
	if sign > 0 {
		s.rec.Tasks = s.rec.Tasks.Add(a)
	} else {
		s.rec.Tasks = s.rec.Tasks.Sub(a)
	}
}

// WithoutTasks returns a worker's record as if no tasks ran there. rec is not changed.
func WithoutTasks(rec cluster.Record) cluster.Record {
	if rec.Tasks.IsZero() {
		return rec
	}
	rec.Used = rec.Used.Sub(rec.Tasks)
	left := rec.Tasks.GPU
	rec.GPUs = slices.Clone(rec.GPUs)
	for i := range rec.GPUs { // which devices tasks have is not told
		g := &rec.GPUs[i]
		if n := min(left, 1000-g.Free); n > 0 && g.Health == "" {
			g.Free, left = g.Free+n, left-n
		}
	}
	rec.Tasks = cluster.Resources{}
	return rec
}
