// Package offers is dominant resource fairness (Ghodsi et al., NSDI'11), the rule by which two-level schedulers choose
// whom to offer what is free: who has the least of what it has most of.
package offers

import "math"

// Dominant gives the largest share that used is of capacity in any dimension. A dimension of which there is nothing
// counts only when something of it is used.
func Dominant(used, capacity []float64) float64 {
	share := 0.0
	for i, u := range used {
		if u > 0 {
			share = max(share, u/capacity[i])
		}
	}
	return share
}

// Next gives whom to offer next: the least dominant share among those that want, the first of several; -1 when nobody
// does. used is by user, then by dimension.
func Next(used [][]float64, capacity []float64, wants func(user int) bool) int {
	best, least := -1, math.Inf(1)
	for i := range used {
		if wants(i) {
			if s := Dominant(used[i], capacity); s < least {
				best, least = i, s
			}
		}
	}
	return best
}

// Tasks gives how many whole tasks each user gets when all have more tasks than there is room: one after the other goes
// to who is Next, until no task of anybody fits (the paper's algorithm 1, which stops at the first that does not). A
// demand of nothing gets no task, for it would get endless ones.
func Tasks(capacity []float64, demand [][]float64) []int {
	out := make([]int, len(demand))
	used := make([][]float64, len(demand))
	free := append([]float64(nil), capacity...)
	for i := range demand {
		used[i] = make([]float64, len(capacity))
	}
	fits := func(i int) bool {
		some := false
		for k, d := range demand[i] {
			if d > free[k] {
				return false
			}
			some = some || d > 0
		}
		return some
	}
	for {
		i := Next(used, capacity, fits)
		if i < 0 {
			return out
		}
		out[i]++
		for k, d := range demand[i] {
			used[i][k] += d
			free[k] -= d
		}
	}
}

// Divisible gives how many tasks, in fractions, each user gets when tasks can be divided: all dominant shares grow alike,
// and a user stops when a dimension that it needs is used up. For these allocations the paper's four properties hold:
// nobody is worse off than with an equal part of everything, nobody prefers another's part, nobody gains by claiming
// another demand, and nobody can have more without another having less. A demand of nothing gets none.
func Divisible(capacity []float64, demand [][]float64) []float64 {
	out := make([]float64, len(demand))
	grows := make([]bool, len(demand))
	rate := make([]float64, len(demand)) // tasks per unit of dominant share
	free := append([]float64(nil), capacity...)
	for i, d := range demand {
		if s := Dominant(d, capacity); s > 0 && !math.IsInf(s, 1) {
			grows[i], rate[i] = true, 1/s
		}
	}
	for range capacity { // each round uses a dimension up
		step := math.Inf(1)
		use := make([]float64, len(capacity))
		for k := range capacity {
			for i := range demand {
				if grows[i] {
					use[k] += rate[i] * demand[i][k]
				}
			}
			if use[k] > 0 {
				step = min(step, free[k]/use[k])
			}
		}
		if math.IsInf(step, 1) {
			return out
		}
		full := make([]bool, len(capacity))
		for k := range capacity {
			full[k] = use[k] > 0 && free[k]/use[k] <= step*(1+1e-12)
			free[k] = max(0, free[k]-step*use[k])
		}
		for i := range demand {
			if !grows[i] {
				continue
			}
			out[i] += step * rate[i]
			for k := range full {
				grows[i] = grows[i] && !(full[k] && demand[i][k] > 0)
			}
		}
	}
	return out
}
