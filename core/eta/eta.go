package eta

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const (
	// Least is how many outcomes of a kind must be known before an interval is said. With so many, the range of all
	// of them holds 90 % of the next.
	Least = 20
	// window is how many of the last outcomes of one kind and size count.
	window = 512
	// maxOpen is how many forecasts without an outcome are followed. Beyond it, the oldest are not scored.
	maxOpen = 4096
	// sizes is how many sizes of forecasts are told apart: each is four times as large as the one before.
	sizes = 10
)

// Interval is a range of durations from the time at which it was said. Low is 0 or more, and High not less than Low.
type Interval struct {
	Low, High time.Duration
}

// Coverage counts intervals whose outcome is known, or has exceeded the interval, and those of them that held.
type Coverage struct {
	Held int `json:"held"`
	Of   int `json:"of"`
}

// Kind says what is forecast, such as the start of a job. Kinds do not learn from each other.
type Kind string

// Ticket names a forecast until its outcome is known. 0 is none.
type Ticket uint64

// How intervals adapt.
const (
	// rate is how much the part left out changes with one outcome: in 50 misses too many it is gone. While more than calm
	// forecasts of a class are open it is less, in proportion: what was said before the first of them is known would else
	// be answered many times over.
	rate, calm = 0.02, 50
	// mostLeftOut bounds that part, so that a calm does not make the first storm a surprise, and mostStretched bounds it
	// below 0. A window of equal scores holds all of them in an interval of one point, whatever is left out.
	mostLeftOut, mostStretched = 0.3, 0.5
	// spread is how many forecasts teach at most in the time that they are forecasts of: those made closer together share
	// their fate, and a window of such alone knows one busy hour and nothing else.
	spread = 40
	// stretch is by how many times its width an interval grows at each end when the part left out is -1, and leastWidth
	// the width, in scores, that counts at least.
	stretch, leastWidth = 4, 0.1
)

// Calibrator makes intervals of forecasts. It is for one goroutine. Make one with New.
type Calibrator struct {
	level float64 // the part of intervals that is to hold
	soft  float64 // seconds
	kinds map[Kind]*kind
	open  []*open // by ticket
	last  Ticket
}

// kind is what is known of one kind.
type kind struct {
	bySize   [sizes]class
	coverage Coverage
}

// class is what is known of forecasts of one kind and size.
type class struct {
	scores []float32 // the last ones, in a ring
	next   int       // where the oldest is once the ring is full
	taught time.Time // when the last forecast was made that teaches
	out    float64   // the part that intervals leave out; below 0 they are stretched
}

// open is a forecast without an outcome.
type open struct {
	ticket   Ticket
	kind     *kind
	size     int
	at       time.Time
	point    float64 // seconds
	interval Interval
	counts   bool // there was an interval, and it has not been counted
	teaches  bool // its outcome is for the window: it was made long enough after the one before
}

// New makes a calibrator whose intervals hold for the part level of all outcomes, such as 0.9. soft, more than 0, is a
// difference that matters little: of forecasts of less, the absolute error counts rather than the ratio.
func New(level float64, soft time.Duration) *Calibrator {
	return &Calibrator{level: level, soft: soft.Seconds(), kinds: map[Kind]*kind{}}
}

// sizeOf returns the size of a forecast: 0 is nothing, 1 up to three times soft, and so on by powers of four.
func (c *Calibrator) sizeOf(point float64) int {
	return max(0, min(sizes-1, int(math.Ceil(math.Log2((point+c.soft)/c.soft)/2))))
}

func (c *Calibrator) kindOf(k Kind) *kind {
	if c.kinds[k] == nil {
		x := new(kind)
		for i := range x.bySize {
			x.bySize[i].out = 1 - c.level
		}
		c.kinds[k] = x
	}
	return c.kinds[k]
}

// scoreOf compares what a forecast turned out to be with the forecast, both in seconds.
func (c *Calibrator) scoreOf(outcome, point float64) float64 {
	return math.Log((outcome + c.soft) / (point + c.soft))
}

// Say takes a forecast and returns its interval; said is false while too few outcomes are known. The ticket is for
// Resolve or Drop.
func (c *Calibrator) Say(now time.Time, k Kind, forecast time.Duration) (i Interval, said bool, t Ticket) {
	forecast = max(0, forecast)
	i, said = c.Interval(now, k, forecast)
	c.last++
	o := &open{ticket: c.last, kind: c.kindOf(k), size: c.sizeOf(forecast.Seconds()), at: now,
		point: forecast.Seconds(), interval: i, counts: said}
	if s := o.class(); spread*now.Sub(s.taught).Seconds() >= o.point {
		o.teaches, s.taught = true, now
	}
	c.open = append(c.open, o)
	if len(c.open) > maxOpen {
		c.open = slices.Delete(c.open, 0, len(c.open)-maxOpen)
	}
	return i, said, c.last
}

// Interval returns the interval that Say would say. It is not counted.
func (c *Calibrator) Interval(now time.Time, k Kind, forecast time.Duration) (i Interval, said bool) {
	c.countExceeded(now)
	point := max(0, forecast).Seconds()
	low, high, said := c.scores(now, c.kindOf(k), c.sizeOf(point))
	if !said {
		return i, false
	}
	point += c.soft
	return Interval{durationOf(point*math.Exp(low) - c.soft), durationOf(point*math.Exp(high) - c.soft)}, true
}

// durationOf returns a duration of 0 to a century.
func durationOf(seconds float64) time.Duration {
	const century = 100 * 365 * 24 * 3600
	return time.Duration(math.Round(max(0, min(seconds, century)) * float64(time.Second)))
}

// Resolve takes the outcome of a forecast: how long it took from Say on. It ignores a ticket that is not open.
func (c *Calibrator) Resolve(now time.Time, t Ticket, outcome time.Duration) {
	o := c.close(t)
	c.countExceeded(now)
	if o == nil {
		return
	}
	outcome = max(0, outcome)
	if o.counts {
		c.count(o, outcome >= o.interval.Low && outcome <= o.interval.High)
	}
	if o.teaches {
		o.class().add(c.scoreOf(outcome.Seconds(), o.point))
	}
}

// Drop forgets a forecast whose outcome will never be known, as its job was cancelled. It is not counted.
func (c *Calibrator) Drop(t Ticket) { c.close(t) }

// close removes a forecast from the open ones and returns it; nil: it is not open.
func (c *Calibrator) close(t Ticket) *open {
	i, is := slices.BinarySearchFunc(c.open, t, func(o *open, t Ticket) int { return cmp.Compare(o.ticket, t) })
	if !is {
		return nil
	}
	o := c.open[i]
	c.open = slices.Delete(c.open, i, i+1)
	return o
}

// Coverage returns how many of the intervals of a kind that were said held, of those whose outcome is known or has
// exceeded the interval.
func (c *Calibrator) Coverage(k Kind) Coverage { return c.kindOf(k).coverage }

// countExceeded counts the intervals whose end has passed although the outcome is still not known.
func (c *Calibrator) countExceeded(now time.Time) {
	for _, o := range c.open {
		if o.counts && now.Sub(o.at) > o.interval.High {
			c.count(o, false)
		}
	}
}

// count counts an interval, and adapts the part that those of its class leave out.
func (c *Calibrator) count(o *open, held bool) {
	o.counts = false
	o.kind.coverage.Of++
	if held {
		o.kind.coverage.Held++
	}
	if !o.teaches {
		return
	}
	n := 1
	for _, x := range c.open {
		if x.teaches && x.kind == o.kind && x.size == o.size {
			n++
		}
	}
	change := rate * min(1, calm/float64(n))
	if held {
		change *= 1 - c.level
	} else {
		change *= -c.level
	}
	s := o.class()
	s.out = max(-mostStretched, min(s.out+change, mostLeftOut))
}

func (o *open) class() *class { return &o.kind.bySize[o.size] }

func (s *class) add(score float64) {
	if len(s.scores) < window {
		s.scores = append(s.scores, float32(score))
		return
	}
	s.scores[s.next] = float32(score)
	s.next = (s.next + 1) % window
}

// observation is a score, or with censored the least that it can be.
type observation struct {
	score    float64
	censored bool
}

func (x observation) compare(y observation) int {
	order := cmp.Compare(x.score, y.score)
	switch {
	case order != 0 || x.censored == y.censored:
		return order
	case y.censored: // a score that is known comes before one that is at least as high
		return -1
	}
	return 1
}

// scores returns the range of scores of an interval; known is false if too few outcomes are. A size with too few of its
// own goes by those of all sizes.
func (c *Calibrator) scores(now time.Time, x *kind, size int) (low, high float64, known bool) {
	own := &x.bySize[size]
	pooled := len(own.scores) < Least
	all := make([]observation, 0, len(own.scores)+len(c.open))
	for i := range x.bySize {
		if i == size || pooled {
			for _, v := range x.bySize[i].scores {
				all = append(all, observation{float64(v), false})
			}
		}
	}
	n := len(all)
	if n < Least {
		return 0, 0, false
	}
	for _, o := range c.open {
		if o.kind == x && o.teaches && (o.size == size || pooled) {
			all = append(all, observation{c.scoreOf(now.Sub(o.at).Seconds(), o.point), true})
		}
	}
	slices.SortFunc(all, observation.compare)
	low, high = middle(all, n, own.out)
	if own.out < 0 {
		wider := max(high-low, leastWidth) * stretch * -own.out
		low, high = low-wider, high+wider
	}
	return low, high, true
}

// middle returns the range of scores that leaves out a part of them: as much at either end, but what one end does not
// use, because many scores are equal there, the other does. n of all, which are sorted, are known.
func middle(all []observation, n int, out float64) (low, high float64) {
	values, mass := make([]float64, 0, n), make([]float64, 0, n)
	left := 1.0
	for i, o := range all {
		if !o.censored {
			m := left / float64(len(all)-i) // Kaplan and Meier's estimate
			left -= m
			values, mass = append(values, o.score), append(mass, m)
		}
	}
	mass[n-1] += left // above all that is known
	// The next outcome is below the least of n known ones with probability 1/(n+1), and as often above the largest.
	budget := (out*float64(n+1) - 2) / float64(n)
	lo, hi, below, above := 0, n-1, 0.0, 0.0
	raise := func(most float64) {
		for lo < hi && below+mass[lo] <= most {
			below, lo = below+mass[lo], lo+1
		}
	}
	raise(budget / 2)
	for hi > lo && above+mass[hi] <= budget-below {
		above, hi = above+mass[hi], hi-1
	}
	raise(budget - above)
	return values[lo], values[hi]
}
