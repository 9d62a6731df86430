package lifecycle

import (
	"cmp"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// TermBucket keeps the highest term that the worker has obeyed for each app. key: app; value: heldTerm.
const TermBucket = "term"

// MaxTerms bounds the apps whose term a worker keeps. Beyond it the worker forgets apps without machines here, oldest
// first.
const MaxTerms = 1 << 16

// terms fence off old stewards of an app: an order is accepted only if no order with a higher term was accepted
// before. The highest term is durable before it is answered, so a restart does not forget it.
type terms struct {
	*core
	used func() map[string]bool // returns the apps that have machines here
	most int
	held map[string]heldTerm // by app
}

type heldTerm struct {
	cluster.Term
	Raised time.Time `json:"raised"` // when the term last rose
}

func newTerms(c *core, used func() map[string]bool) *terms {
	return &terms{core: c, used: used, most: MaxTerms, held: map[string]heldTerm{}}
}

func (s *terms) restoreRecords(d Decoded) error {
	var t heldTerm
	if err := decodeRecord(d.rec, &t, "the term of app "+d.rec.Key); err != nil {
		return err
	}
	if t.Check() != nil {
		return misfiledRecord("the term of app "+d.rec.Key, t.String())
	}
	s.held[d.rec.Key] = t
	return nil
}

// obeyTerm refuses an order whose term is lower than the app's current one, and makes a higher term current. A higher
// term becomes current even if the order is then refused for another reason, since its steward relies on it. A nil
// term is not a steward's, and passes.
func (s *terms) obeyTerm(app string, t *cluster.Term) error {
	if t == nil {
		return nil
	}
	if err := checkOrder(t, nil); err != nil {
		return err
	}
	if !machine.ValidApp(app) {
		return fault.New(fault.Invalid, fault.CodeApp, "a term needs the name of an app")
	}
	held, known := s.held[app]
	switch t.Compare(held.Term) {
	case -1:
		return t.RefuseOld(app, held.Term)
	case 0:
		return nil
	}
	if !known {
		if err := s.shedTerms(); err != nil {
			return err
		}
	}
	held = heldTerm{Term: *t, Raised: s.now.UTC()}
	s.held[app] = held
	s.putRecord(TermBucket, app, held)
	s.out.Sync = true
	return nil
}

// shedTerms forgets terms until one more fits. An old order cannot change an app without machines here; that it could
// make a machine is the price of the bound.
func (s *terms) shedTerms() error {
	over := len(s.held) - s.most + 1
	if over <= 0 {
		return nil
	}
	var idle []string
	used := s.used()
	for app := range s.held {
		if !used[app] {
			idle = append(idle, app)
		}
	}
	if len(idle) < over {
		return fault.New(fault.Exhausted, codeTerms,
			"the worker keeps the terms of at most %d apps, and all of them have machines here; use another worker",
			s.most)
	}
	slices.SortFunc(idle, func(a, b string) int {
		return cmp.Or(s.held[a].Raised.Compare(s.held[b].Raised), cmp.Compare(a, b))
	})
	for _, app := range idle[:over] {
		delete(s.held, app)
		s.removeRecord(TermBucket, app)
	}
	return nil
}

// checkOrder validates the term and the replica of a steward's order.
func checkOrder(t *cluster.Term, r *machine.Replica) error {
	if t != nil {
		if err := t.Check(); err != nil {
			return err
		}
	}
	if r != nil {
		return r.Check()
	}
	return nil
}

// Obey makes a term the current one of an app, and does nothing else: a new steward fences a worker with it before it
// relies on the worker's replies. It refuses a term lower than the current one with cluster.CodeOldTerm, like any
// order of that term. The current term is durable when the Out is.
func (s *Supervisor) Obey(now time.Time, app string, t cluster.Term) (Out, error) {
	s.openOut(now)
	err := s.terms.obeyTerm(app, &t)
	return s.closeOut(), err
}

// Replica is a machine that is a replica of a service.
type Replica struct {
	ID    string        `json:"id"`
	State machine.State `json:"state"`
	machine.Replica
}

// Replicas lists the machines here that are replicas of an app's service, by ID, except destroyed ones. Called right
// after Obey, it includes all that an earlier steward has made.
func (s *Supervisor) Replicas(app string) (out []Replica) {
	for id, r := range s.machines.rows {
		if of := r.Machine.Replica; of != nil && r.Machine.App == app && !r.isDestroyed() {
			out = append(out, Replica{id, r.Machine.State, *of})
		}
	}
	slices.SortFunc(out, func(a, b Replica) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
