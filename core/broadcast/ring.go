package broadcast

import (
	"cmp"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/soukhq/souk/cluster"
)

// Arc is a part of the ring: the positions from From on, up to and without To, over the end if need be. Where both are
// equal it is empty.
type Arc struct{ From, To uint32 }

// place is a member on the ring.
type place struct {
	at uint32
	id cluster.WorkerID
}

// Ring is the members that can be told something. It does not change: members that come and go make another.
type Ring struct{ places []place }

// NewRing places the members.
func NewRing(ids []cluster.WorkerID) *Ring {
	r := &Ring{places: make([]place, len(ids))}
	for i, id := range ids {
		r.places[i] = place{ringPosition(id), id}
	}
	slices.SortFunc(r.places, func(a, b place) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id)) })
	r.places = slices.Compact(r.places)
	return r
}

// ringPosition returns where a member stands on every ring.
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

// run is consecutive places of a ring, over its end if need be.
type run struct {
	ring  *Ring
	first int
	n     int
}

func (x run) placeAt(i int) place { return x.ring.places[(x.first+i)%len(x.ring.places)] }

// placesWithin returns the places of an arc.
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

// placesAround returns all places but a member's own, from the one after it on. Whoever is not on the ring begins where
// it would stand.
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

// cutMember cuts a member out: what comes before it and what comes after.
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

// part is what one relay is given: itself, and the arc of all that are its to reach, among whom it is.
type part struct {
	relay cluster.WorkerID
	arc   Arc // empty: nobody but the relay
}

// divideIntoParts makes up to ways parts of about equally many members; end is the position behind the last.
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

// divideWays divides ways between two runs by their lengths, at least one for each that is not empty.
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
