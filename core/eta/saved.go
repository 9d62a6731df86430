package eta

import "math"

// Saved is what a calibrator has learnt, to be kept over a restart: at most 32 KiB of JSON a kind. Forecasts without an
// outcome are not in it.
type Saved struct {
	Kinds map[Kind]SavedKind `json:"kinds"`
}

// SavedKind is what is known of one kind.
type SavedKind struct {
	Coverage
	Sizes []SavedSize `json:"sizes"`
}

// SavedSize is what is known of one size of forecasts.
type SavedSize struct {
	// Scores are the last ones, in thousandths, oldest first.
	Scores []int   `json:"scores,omitempty"`
	Out    float64 `json:"out"`
}

// Save returns what was learnt.
func (c *Calibrator) Save() Saved {
	out := Saved{Kinds: map[Kind]SavedKind{}}
	for name, k := range c.kinds {
		x := SavedKind{Coverage: k.coverage}
		for i := range k.bySize {
			s := &k.bySize[i]
			y := SavedSize{Out: math.Round(s.out*1e4) / 1e4}
			for n := range s.scores {
				y.Scores = append(y.Scores, int(math.Round(float64(s.scores[(s.next+n)%len(s.scores)])*1000)))
			}
			x.Sizes = append(x.Sizes, y)
		}
		out.Kinds[name] = x
	}
	return out
}

// Restore takes back what Save has returned. Call it before anything else. It takes what makes sense of what it is
// given, as a file may have been changed.
func (c *Calibrator) Restore(saved Saved) {
	for name, x := range saved.Kinds {
		k := c.kindOf(name)
		k.coverage = Coverage{Of: max(0, x.Of), Held: max(0, min(x.Held, x.Of))}
		for i := range min(len(x.Sizes), sizes) {
			s, y := &k.bySize[i], x.Sizes[i]
			s.out = max(-mostStretched, min(y.Out, mostLeftOut))
			for _, v := range y.Scores[max(0, len(y.Scores)-window):] {
				s.add(float64(max(-mostScore, min(v, mostScore))) / 1000)
			}
		}
	}
}

// mostScore bounds a score that is restored, in thousandths: a ratio of e to the 20th.
const mostScore = 20_000
