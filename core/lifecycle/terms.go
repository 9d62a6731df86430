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

// MaxTerms bounds the apps whose term a worker keeps. Beyond it those go that have no machine here, oldest first.
const MaxTerms = 1 << 16

// terms fence the apps that a steward carries: an order passes only where no steward of a higher term has been obeyed.
// What a worker has obeyed is durable before anybody hears of it, so a restart forgets none of it.
type terms struct {
	*core
	used func() map[string]bool // the apps that have machines here
	most int
	held map[string]heldTerm // by app
}

type heldTerm struct {
	cluster.Term
	Raised time.Time `json:"raised"` // when an order last had a higher one
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

// obeyTerm refuses an order of a term that is lower than the one in force for the app, and makes a higher one that in
// force. That holds from then on, whatever else is wrong with the order: its steward is there, and has counted on. nil
// is of an order of nobody's, which no term keeps off.
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

// shedTerms forgets terms until one more can be kept. An app without machines here has nothing that an old order could
// change; that one could make a machine is the price of the bound.
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

// checkOrder returns what is wrong with what a steward's order carries.
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

// Obey makes a term that in force for an app, and does nothing else: a new steward so fences a worker before it counts
// on what it sees there. A term that is lower than the one in force is refused, as each order of it is: with
// cluster.CodeOldTerm. What is in force is durable when the Out is.
func (s *Supervisor) Obey(now time.Time, app string, t cluster.Term) (Out, error) {
	s.openOut(now)
	err := s.terms.obeyTerm(app, &t)
	return s.closeOut(), err
}

// Replica is a machine that stands for a replica of a service.
type Replica struct {
	ID    string        `json:"id"`
	State machine.State `json:"state"`
	machine.Replica
}

// Replicas lists the machines of an app's service that the worker has, by id: all but those that are destroyed. Called
// after Obey, and before anything else is, it misses none that an earlier steward had made.
func (s *Supervisor) Replicas(app string) (out []Replica) {
	for id, r := range s.machines.rows {
		if of := r.Machine.Replica; of != nil && r.Machine.App == app && !r.isDestroyed() {
			out = append(out, Replica{id, r.Machine.State, *of})
		}
	}
	slices.SortFunc(out, func(a, b Replica) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
