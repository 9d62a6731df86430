package ab

import "math"

// Share is a fraction of the decisions, with its 95 % interval after Wilson (JASA 22, 1927), which is valid for few
// decisions, too.
type Share struct {
	N    int     `json:"n"`
	Of   float64 `json:"share"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

const z95 = 1.959964

func shareOf(n, of int) Share {
	if of == 0 {
		return Share{}
	}
	p, m := float64(n)/float64(of), float64(of)
	mid := p + z95*z95/(2*m)
	half := z95 * math.Sqrt(p*(1-p)/m+z95*z95/(4*m*m))
	scale := 1 + z95*z95/m
	return Share{N: n, Of: p, Low: max(0, (mid-half)/scale), High: min(1, (mid+half)/scale)}
}

// Paired is a figure under both policies, over the decisions that both place: the means, the mean of the differences,
// and half the width of its 95 % interval (normal; 0 with fewer than two).
type Paired struct {
	Old  float64 `json:"old"`
	New  float64 `json:"new"`
	Diff float64 `json:"difference"`
	Half float64 `json:"half_width"`
}

// pairs sums up pairs in one pass (Welford, Technometrics 4, 1962).
type pairs struct {
	n              float64
	old, then      float64
	mean, squaresM float64
}

func (p *pairs) addPair(old, then float64) {
	p.n++
	p.old += (old - p.old) / p.n
	p.then += (then - p.then) / p.n
	d := then - old
	delta := d - p.mean
	p.mean += delta / p.n
	p.squaresM += delta * (d - p.mean)
}

func (p *pairs) pairedResult() Paired {
	out := Paired{Old: p.old, New: p.then, Diff: p.mean}
	if p.n > 1 {
		out.Half = z95 * math.Sqrt(p.squaresM/(p.n-1)/p.n)
	}
	return out
}
