package jobs

import (
	"cmp"
	"maps"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// Place is where on a host tasks run. The zero value is the same on each: a user and a directory of the task's own.
type Place struct {
	// User is the Unix user that the task runs as; zero: none. Not every worker runs tasks of every user.
	User cluster.UnixUser `json:"u,omitzero"`
	// Dir is the directory that the task starts in; "": one of its own. Not every worker has it.
	Dir string `json:"d,omitempty"`
}

// IsZero reports whether every worker has the place.
func (p Place) IsZero() bool { return p == Place{} }

func (p Place) compare(o Place) int {
	return cmp.Or(cmp.Compare(p.User.Name, o.User.Name), cmp.Compare(p.User.UID, o.User.UID), cmp.Compare(p.Dir, o.Dir))
}

// PlaceAnswer says whether a worker runs tasks at a place. A worker looks up the user, with this number, and the
// directory when it gets the first bid for such tasks. Its record says only whom it may admit.
type PlaceAnswer struct {
	Place
	Why string `json:"w,omitempty"` // why it does not; "": it does
}

// SetPlace takes the answer about a place: without one, or with a bad one, no slot is offered for tasks there.
func (s *Slots) SetPlace(a PlaceAnswer) { s.places[a.Place] = a }

// PlaceAnswer returns the answer about a place.
func (s *Slots) PlaceAnswer(p Place) (a PlaceAnswer, known bool) {
	a, known = s.places[p]
	return a, known
}

// PlacesWithoutAnswer lists the places in bids for which there is no answer.
func (s *Slots) PlacesWithoutAnswer() (out []Place) {
	for _, p := range s.placesBid() {
		if _, known := s.places[p]; !known {
			out = append(out, p)
		}
	}
	return out
}

// placesBid lists the places in bids that not every worker has.
func (s *Slots) placesBid() []Place {
	all := map[Place]bool{}
	for _, b := range s.buyers {
		for i := range b.bids {
			if p := b.bids[i].Shape.Place; !p.IsZero() {
				all[p] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(all), Place.compare)
}

// KeepPlaces lists the places in bids, and drops the answers about others.
func (s *Slots) KeepPlaces() []Place {
	bid := s.placesBid()
	maps.DeleteFunc(s.places, func(p Place, _ PlaceAnswer) bool { return !slices.Contains(bid, p) })
	return bid
}

// RefusedPlaces lists the bad answers.
func (s *Slots) RefusedPlaces() (out []PlaceAnswer) {
	for _, p := range slices.SortedFunc(maps.Keys(s.places), Place.compare) {
		if a := s.places[p]; a.Why != "" {
			out = append(out, a)
		}
	}
	return out
}

// admits reports whether tasks may run here at a place.
func (s *Slots) admits(p Place) bool {
	a, known := s.places[p]
	return p.IsZero() || known && a.Why == ""
}

// hearPlaces takes a worker's answers about places.
func (d *Dispatcher) hearPlaces(s *workerState, answers []PlaceAnswer) {
	for _, a := range answers {
		if s.refused[a.Place] == a.Why {
			continue
		}
		if a.Why == "" {
			delete(s.refused, a.Place)
		} else {
			s.refused[a.Place] = a.Why
		}
		for _, sh := range d.queues {
			sh.stale = sh.stale || sh.shape.Place == a.Place
		}
	}
}

// judgeShape is the judge's verdict on a task of a shape at a worker, with the worker's answer about its place, which
// no record has.
func (s *workerState) judgeShape(sh *shapeQueue) placement.Verdict {
	v, shape := placement.JudgeAt(&sh.request, &s.record), &sh.shape
	why := s.refused[shape.Place]
	if why == "" {
		return v
	}
	no := machine.Clause{Code: placement.CodeUnixUser, Wanted: shape.User.Name, Had: why}
	if shape.Dir != "" {
		no.Code, no.Wanted = placement.CodeDirectory, shape.Dir
	}
	v.Fits, v.Failing = false, append(v.Failing, no)
	return v
}
