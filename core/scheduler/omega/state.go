// Package omega is the shared-state scheduler of Omega (Schwarzkopf et al., EuroSys'13, sections 3.4 and 5): every
// scheduler decides on a private copy of the cell's free room and commits a transaction; room that another scheduler
// took meanwhile is a conflict. It also has souk's answer to conflicts: the worker confirms each placement, and only
// refused ones are decided again.
//
// It is built for cells of thousands of workers and millions of tasks in a second, and so has only two integer
// dimensions. Its rule of feasibility is placement.Judge's, and a property test holds the two together. On workers of equal
// slots, and live, Omega is package sharedstate.
package omega

import "math/rand/v2"

// Amount is an amount of the two dimensions that Omega's traces have.
type Amount struct {
	CPU int32 // thousandths of a core
	Mem int32 // MiB
}

// Fits reports whether r fits into free.
func (r Amount) Fits(free Amount) bool { return r.CPU <= free.CPU && r.Mem <= free.Mem }

// State is the free room of every worker of a cell, with a sequence number for each that counts claims.
type State struct {
	free []Amount
	seq  []uint32
}

// NewState makes a cell of empty workers.
func NewState(workers int, each Amount) *State {
	s := &State{free: make([]Amount, workers), seq: make([]uint32, workers)}
	for i := range s.free {
		s.free[i] = each
	}
	return s
}

// CopyFrom copies o into s.
func (s *State) CopyFrom(o *State) {
	s.free = append(s.free[:0], o.free...)
	s.seq = append(s.seq[:0], o.seq...)
}

// Free returns a worker's free room.
func (s *State) Free(worker int32) Amount { return s.free[worker] }

// Set sets a worker's free room: a fresh record updates a stale view.
func (s *State) Set(worker int32, free Amount) { s.free[worker] = free }

// Take claims room on a worker, if it is free.
func (s *State) Take(worker int32, want Amount) bool {
	f := &s.free[worker]
	if !want.Fits(*f) {
		return false
	}
	f.CPU -= want.CPU
	f.Mem -= want.Mem
	s.seq[worker]++
	return true
}

// Give frees room. A sequence number counts claims only, as in Omega.
func (s *State) Give(worker int32, want Amount) {
	s.free[worker].CPU += want.CPU
	s.free[worker].Mem += want.Mem
}

// Claim is one task's place, with the worker's sequence number in the view of the decision.
type Claim struct {
	Worker int32
	Seq    uint32
}

// Pool is a scheduler's order of workers. It is kept between decisions, to avoid rebuilding it.
type Pool []int32

// NewPool lists all workers.
func NewPool(workers int) Pool {
	p := make(Pool, workers)
	for i := range p {
		p[i] = int32(i)
	}
	return p
}

// Place finds workers for up to tasks tasks by random first fit: draw one of the workers not yet found full, take it
// if a task fits, else drop it. It takes the room from s, which is a private view, and appends to claims.
func (s *State) Place(rng *rand.Rand, pool Pool, want Amount, tasks int, claims []Claim) []Claim {
	left := len(pool)
	for tasks > 0 && left > 0 {
		i := rng.IntN(left)
		w := pool[i]
		seq := s.seq[w]
		if s.Take(w, want) {
			s.seq[w] = seq // one transaction has one view: its own claims do not age it
			claims = append(claims, Claim{w, seq})
			tasks--
			continue
		}
		left--
		pool[i], pool[left] = pool[left], w
	}
	return claims
}

// Rules define what a conflict is and what it undoes.
type Rules struct {
	Coarse bool // any claim on the worker since the view is a conflict, not only lack of room
	Gang   bool // one conflict undoes the whole transaction
	// KeepBumps reproduces a defect of Omega's own simulator: claims undone by a gang's conflict still count, so that
	// others see conflicts with claims that do not exist.
	KeepBumps bool
}

// Commit applies the claims of one transaction to the cell. It reorders them so that the successful ones come first,
// and returns how many. Conflicts are judged before the transaction's own claims are applied: judging each claim after
// the last, as Omega's simulator does, lets a later claim pass by accident after an earlier one on the same worker
// failed, and over-commits the worker.
func (s *State) Commit(r Rules, want Amount, claims []Claim) (held int) {
	if r.Coarse {
		first := -1 // conflict
		for i, c := range claims {
			if s.seq[c.Worker] == c.Seq {
				claims[i], claims[held] = claims[held], c
				held++
			} else if first < 0 {
				first = i
			}
		}
		if r.Gang && held < len(claims) {
			if r.KeepBumps {
				for _, c := range claims[:first] {
					s.seq[c.Worker]++
				}
			}
			return 0
		}
	} else {
		held = len(claims)
	}
	fits := 0
	for i, c := range claims[:held] {
		if s.Take(c.Worker, want) {
			claims[i], claims[fits] = claims[fits], c
			fits++
			continue
		}
		if r.Gang {
			for _, done := range claims[:fits] {
				s.Give(done.Worker, want)
				if !r.KeepBumps {
					s.seq[done.Worker]--
				}
			}
			return 0
		}
	}
	return fits
}
