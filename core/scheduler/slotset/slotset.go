// Package slotset is the free slots of a fleet's workers, as one party knows them. Finding a worker at random, and changing
// a worker's number, take constant time.
package slotset

import "math/rand/v2"

// Set is how many slots of each worker are free.
type Set struct {
	free  []int32 // by worker
	some  []int32 // the workers with free slots, in no order
	at    []int32 // by worker: its place in some, if it is there
	total int
}

// New makes the set of a fleet of workers with each free slots.
func New(workers int, each int32) *Set {
	s := &Set{free: make([]int32, workers), at: make([]int32, workers)}
	for w := range int32(workers) {
		s.Put(w, each)
	}
	return s
}

// Total returns how many slots are free.
func (s *Set) Total() int { return s.total }

// Workers returns how many workers there are.
func (s *Set) Workers() int { return len(s.free) }

// Free returns how many slots of a worker are free.
func (s *Set) Free(worker int32) int32 { return s.free[worker] }

// Put sets how many slots of a worker are free.
func (s *Set) Put(worker, free int32) {
	had := s.free[worker]
	s.free[worker] = free
	s.total += int(free - had)
	switch {
	case had == 0 && free > 0:
		s.at[worker] = int32(len(s.some))
		s.some = append(s.some, worker)
	case had > 0 && free == 0:
		last := len(s.some) - 1
		s.swap(int(s.at[worker]), last)
		s.some = s.some[:last]
	}
}

// Add frees a slot of a worker.
func (s *Set) Add(worker int32) { s.Put(worker, s.free[worker]+1) }

// Take occupies a slot of a worker; false: none is free.
func (s *Set) Take(worker int32) bool {
	if s.free[worker] == 0 {
		return false
	}
	s.Put(worker, s.free[worker]-1)
	return true
}

// Draw returns a random worker with a free slot, of which there must be one.
func (s *Set) Draw(rng *rand.Rand) int32 { return s.some[rng.IntN(len(s.some))] }

// Sample looks at the workers with free slots in random order, and returns the first n for which suits is true; nil: it is
// for all. The result is fewer if there are no more.
func (s *Set) Sample(rng *rand.Rand, n int, suits func(worker int32) bool) (found []int32) {
	for i := 0; i < len(s.some) && len(found) < n; i++ {
		s.swap(i, i+rng.IntN(len(s.some)-i))
		if w := s.some[i]; suits == nil || suits(w) {
			found = append(found, w)
		}
	}
	return found
}

func (s *Set) swap(i, k int) {
	s.some[i], s.some[k] = s.some[k], s.some[i]
	s.at[s.some[i]], s.at[s.some[k]] = int32(i), int32(k)
}
