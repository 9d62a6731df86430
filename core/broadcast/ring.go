package broadcast

import (
	"cmp"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/soukhq/souk/cluster"
)

// Arc is a part of the ring: the positions from From up to but not including To, wrapping around the end. It is empty
// if both are equal.
type Arc struct{ From, To uint32 }

// place is a member on the ring.
type place struct {
	at uint32
	id cluster.WorkerID
}

// Ring is the members that a broadcast reaches. It is immutable: each change of membership makes a new ring.
type Ring struct{ places []place }

// NewRing makes a ring of members.
func NewRing(ids []cluster.WorkerID) *Ring {
	r := &Ring{places: make([]place, len(ids))}
	for i, id := range ids {
		r.places[i] = place{ringPosition(id), id}
	}
	slices.SortFunc(r.places, func(a, b place) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id)) })
	r.places = slices.Compact(r.places)
	return r
}

// ringPosition returns a member's position, the same on every ring.
func ringPosition(id cluster.WorkerID) uint32 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // never fails
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9 // FNV leaves the high bits of short names alike
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return uint32(x >> 32)
}

// Len returns the number of members.
func (r *Ring) Len() int { return len(r.places) }

// hasMember reports whether a member is on the ring.
func (r *Ring) hasMember(id cluster.WorkerID) bool {
	at := ringPosition(id)
	for i := r.searchPosition(at); i < len(r.places) && r.places[i].at == at; i++ {
		if r.places[i].id == id {
			return true
		}
	}
	return false
}

// searchPosition returns the first index at a position or after it.
func (r *Ring) searchPosition(at uint32) int {
	return sort.Search(len(r.places), func(i int) bool { return r.places[i].at >= at })
}

// run is consecutive places of a ring, wrapping around its end.
type run struct {
	ring  *Ring
	first int
	n     int
}

func (x run) placeAt(i int) place { return x.ring.places[(x.first+i)%len(x.ring.places)] }

// placesWithin returns the members within an arc.
func (r *Ring) placesWithin(a Arc) run {
	first, end := r.searchPosition(a.From), r.searchPosition(a.To)
	switch {
	case a.From == a.To:
		return run{r, 0, 0}
	case a.From > a.To:
		end += len(r.places)
	}
	return run{r, first, end - first}
}

// placesAround returns all places but the member's own, from the next one on. A member that is not on the ring begins
// at its position.
func (r *Ring) placesAround(id cluster.WorkerID) run {
	at := ringPosition(id)
	i := r.searchPosition(at)
	for ; i < len(r.places) && r.places[i].at == at; i++ {
		if r.places[i].id == id {
			return run{r, i + 1, len(r.places) - 1}
		}
	}
	return run{r, i, len(r.places)}
}

// cutMember cuts a member out and returns the places before it and after it.
func (x run) cutMember(id cluster.WorkerID) (before, after run) {
	at := ringPosition(id)
	for i := x.ring.searchPosition(at); i < x.ring.Len() && x.ring.places[i].at == at; i++ {
		k := i - x.first
		if k < 0 {
			k += x.ring.Len()
		}
		if k < x.n && x.ring.places[i].id == id {
			return run{x.ring, x.first, k}, run{x.ring, x.first + k + 1, x.n - k - 1}
		}
	}
	return x, run{}
}

// part is one relay's share: the relay, and the arc of the members it reaches, itself included.
type part struct {
	relay cluster.WorkerID
	arc   Arc // empty: only the relay itself
}

// divideIntoParts divides the run into at most ways parts of about equally many members; end is the position after its
// last place.
func (x run) divideIntoParts(ways int, end uint32, rng *rand.Rand) (out []part) {
	ways = min(ways, x.n)
	for i := range ways {
		lo, hi := i*x.n/ways, (i+1)*x.n/ways
		p := part{relay: x.placeAt(lo + rng.IntN(hi-lo)).id}
		if hi-lo > 1 {
			p.arc = Arc{From: x.placeAt(lo).at, To: end}
			if hi < x.n {
				p.arc.To = x.placeAt(hi).at
			}
		}
		out = append(out, p)
	}
	return out
}

// divideWays divides ways between two runs by their lengths; a run that is not empty gets at least one.
func divideWays(ways int, a, b run) (int, int) {
	switch {
	case a.n == 0:
		return 0, ways
	case b.n == 0:
		return ways, 0
	}
	of := min(max((2*ways*a.n+a.n+b.n)/(2*(a.n+b.n)), 1), max(ways-1, 1))
	return of, max(ways-of, 1)
}
