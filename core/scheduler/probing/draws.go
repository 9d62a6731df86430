package probing

import "github.com/soukhq/souk/core/scheduler"

// Draws draws workers without replacement: a permutation that is shuffled only as far as needed.
type Draws []int32

// Draw returns n different workers; if there are fewer, some repeatedly. The
// slice may be that of p: the next call changes it.
func (p Draws) Draw(d *scheduler.Env, n int) []int32 {
	if n > len(p) {
		out := make([]int32, 0, n)
		for n > 0 {
			k := min(n, len(p))
			out = append(out, p.Draw(d, k)...)
			n -= k
		}
		return out
	}
	for i := range n {
		k := i + d.RNG.IntN(len(p)-i)
		p[i], p[k] = p[k], p[i]
	}
	return p[:n]
}
