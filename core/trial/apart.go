package trial

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Job is how a job of a live comparison fared. Each job ran under one of the two schedulers, so that none can be paired with
// itself: it is compared with jobs of its class.
type Job struct {
	Class string
	Open  bool // it has not ended: its Runtime is the time since its submission, and of the rest nothing is known
	Outcome
	Tasks int       // that ran
	Waits []float64 // of its tasks, from the job's submission until each began, in seconds; a sample if there are many
}

// meanWait returns the mean wait of the job's tasks.
func (j *Job) meanWait() float64 {
	if len(j.Waits) == 0 {
		return j.Wait
	}
	return meanOf(j.Waits)
}

// ApartMeasure is one measure of jobs that ran under one of two schedulers each. The percentiles and the mean are of all
// jobs, those of the waits of all their tasks. Difference is between jobs of the same classes: the mean of B's less that
// of A's in each class, weighted by the jobs of the class. It is 0 where nothing can be compared.
type ApartMeasure struct {
	Measure
	Base float64 `json:"base"` // mean of A's jobs in the same classes, with the same weights
}

// Percent returns the difference and half the width of its interval in percent of A.
func (m *ApartMeasure) Percent() (difference, half float64) {
	if m.Base <= 0 {
		return 0, 0
	}
	return 100 * m.Difference / m.Base, 100 * m.Half / m.Base
}

// Side counts the jobs of one of two schedulers.
type Side struct {
	Jobs     int `json:"jobs"` // that have ended
	Tasks    int `json:"tasks"`
	Compared int `json:"compared"` // jobs of a class that the other scheduler has had, too
	Open     int `json:"unfinished"`
	// ComparedOpen counts the jobs of a class that the other scheduler has had, too, with those that have not ended
	ComparedOpen int `json:"compared_unfinished"`
	LeftOut      int `json:"left_out"` // more jobs, which say nothing of their scheduler
}

// Apart compares the jobs of two schedulers, each of which ran under one of them.
type Apart struct {
	A        Side           `json:"a"`
	B        Side           `json:"b"`
	Measures []ApartMeasure `json:"measures"` // wait, runtime and slowdown of jobs that have ended
	// WithOpen is the run time of all jobs. One that has not ended counts with the time since its submission, so that a
	// scheduler under which jobs never end does not pass.
	WithOpen ApartMeasure `json:"runtime_with_unfinished"`
}

// CompareApart compares the jobs that ran under A with others that ran under B.
//
// The interval of a difference is the asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas
// (Time-uniform central limit theory and asymptotic confidence sequences, Annals of Statistics 2024, by a Gaussian mixture):
// with 95 % it holds the truth at all times at which it is looked at, so that a comparison may end as soon as it says enough.
// It is about one and a half times as wide as one for a single look.
func CompareApart(a, b []Job) Apart {
	runtime := func(j *Job) float64 { return j.Runtime }
	all := newStrata(a, b)
	out := Apart{WithOpen: all.measure("runtime", runtime)}
	ended := newStrata(endedOf(a), endedOf(b))
	out.Measures = []ApartMeasure{ended.measure("wait", (*Job).meanWait), ended.measure("runtime", runtime),
		ended.measure("slowdown", func(j *Job) float64 { return j.Slowdown() })}
	out.Measures[0].A, out.Measures[0].B = waitsOf(ended.a), waitsOf(ended.b)
	out.A = Side{Jobs: len(ended.a), Compared: ended.na, Open: len(all.a) - len(ended.a), ComparedOpen: all.na}
	out.B = Side{Jobs: len(ended.b), Compared: ended.nb, Open: len(all.b) - len(ended.b), ComparedOpen: all.nb}
	out.A.Tasks, out.B.Tasks = tasksOf(ended.a), tasksOf(ended.b)
	return out
}

func endedOf(list []Job) []Job {
	return slices.DeleteFunc(slices.Clone(list), func(j Job) bool { return j.Open })
}

// strata are the jobs of two schedulers, and those classes of them that can be compared, with the numbers of their jobs.
type strata struct {
	a, b   []Job
	each   []stratum
	na, nb int
}

// measure compares one measure.
func (x *strata) measure(name string, value func(*Job) float64) ApartMeasure {
	m := ApartMeasure{Measure: Measure{Name: name, A: distributionOf(valuesOf(x.a, value)),
		B: distributionOf(valuesOf(x.b, value))}}
	n, variance := x.na+x.nb, 0.0
	for _, s := range x.each {
		a, b := valuesOf(s.a, value), valuesOf(s.b, value)
		weight := float64(len(a)+len(b)) / float64(n)
		m.Base += weight * meanOf(a)
		m.Difference += weight * (meanOf(b) - meanOf(a))
		variance += weight * weight * (varianceOf(a)/float64(len(a)) + varianceOf(b)/float64(len(b)))
	}
	if n > 0 {
		m.Half = math.Sqrt(variance) * anytime(n)
	}
	return m
}

// stratum is the jobs of one class.
type stratum struct{ a, b []Job }

// newStrata sorts jobs by class. A class can be compared that has two jobs of each scheduler, as with fewer nothing is known
// of the variance. All other jobs are one class together.
func newStrata(a, b []Job) *strata {
	byClass := map[string]*stratum{}
	at := func(class string) *stratum {
		if byClass[class] == nil {
			byClass[class] = &stratum{}
		}
		return byClass[class]
	}
	for _, j := range a {
		s := at(j.Class)
		s.a = append(s.a, j)
	}
	for _, j := range b {
		s := at(j.Class)
		s.b = append(s.b, j)
	}
	x, others := &strata{a: a, b: b}, stratum{}
	for _, class := range slices.Sorted(maps.Keys(byClass)) {
		if s := byClass[class]; s.isComparable() {
			x.each = append(x.each, *s)
		} else {
			others.a, others.b = append(others.a, s.a...), append(others.b, s.b...)
		}
	}
	if others.isComparable() {
		x.each = append(x.each, others)
	}
	for _, s := range x.each {
		x.na, x.nb = x.na+len(s.a), x.nb+len(s.b)
	}
	return x
}

func (s *stratum) isComparable() bool { return len(s.a) > 1 && len(s.b) > 1 }

// tuned is the number of jobs at which anytime is narrowest.
const tuned = 100

// anytime returns how many standard errors half the width of the interval is, of n jobs.
func anytime(n int) float64 {
	const alpha2 = 0.05 * 0.05
	// about the rho that is best for tuned jobs
	rho2 := (-math.Log(alpha2) + math.Log(-math.Log(alpha2)+1)) / tuned
	k := float64(n) * rho2
	return math.Sqrt((k + 1) / k * math.Log((k+1)/alpha2))
}

func varianceOf(xs []float64) float64 {
	mean, squares := meanOf(xs), 0.0
	for _, x := range xs {
		squares += (x - mean) * (x - mean)
	}
	return squares / float64(len(xs)-1)
}

func valuesOf(list []Job, value func(*Job) float64) []float64 {
	out := make([]float64, len(list))
	for i := range list {
		out[i] = value(&list[i])
	}
	return out
}

func tasksOf(list []Job) (n int) {
	for i := range list {
		n += list[i].Tasks
	}
	return n
}

// weighted is a value that stands for some tasks.
type weighted struct{ value, weight float64 }

// waitsOf returns the spread of the waits of all tasks. A sample of a job's waits stands for all of its tasks.
func waitsOf(list []Job) (s Distribution) {
	var all []weighted
	sum, total := 0.0, 0.0
	for i := range list {
		j := &list[i]
		weight := float64(j.Tasks) / float64(max(1, len(j.Waits)))
		for _, w := range j.Waits {
			all = append(all, weighted{w, weight})
			sum, total = sum+w*weight, total+weight
		}
	}
	if len(all) == 0 {
		return s
	}
	slices.SortFunc(all, func(x, y weighted) int { return cmp.Compare(x.value, y.value) })
	at := func(p float64) float64 {
		passed := 0.0
		for _, x := range all {
			if passed += x.weight; passed >= p*total*(1-1e-9) {
				return x.value
			}
		}
		return all[len(all)-1].value
	}
	return Distribution{at(0.5), at(0.9), at(0.99), sum / total}
}

// Sample returns at most n of xs that have about their distribution and mean: the middles of n equal parts of them, sorted.
func Sample(xs []float64, n int) []float64 {
	xs = slices.Sorted(slices.Values(xs))
	if len(xs) <= n {
		return xs
	}
	out := make([]float64, n)
	for i := range out {
		out[i] = xs[(2*i+1)*len(xs)/(2*n)]
	}
	return out
}

// Finding is what a comparison says of two schedulers.
type Finding string

// The findings. Margin is the difference that matters, in percent of A's run time.
const (
	TooFew  Finding = "too_few" // jobs to say anything
	Unknown Finding = "unknown" // the interval reaches beyond the margin and within it
	Same    Finding = "same"    // the difference is less than the margin
	BWorse  Finding = "b_worse" // by more than the margin
	AWorse  Finding = "a_worse"
)

// Least is how many jobs of each scheduler must have been compared before anything is found.
const Least = 20

// Verdict returns what was found, by the mean run time of jobs, with a margin in percent of A's. That one is worse is judged
// with the jobs that have not ended, that both are the same without them.
func (x *Apart) Verdict(margin int) Finding {
	m := float64(margin)
	if x.A.ComparedOpen < Least || x.B.ComparedOpen < Least {
		return TooFew
	}
	switch d, half := x.WithOpen.Percent(); {
	case d-half > m:
		return BWorse
	case d+half < -m:
		return AWorse
	case x.A.Compared < Least || x.B.Compared < Least:
		return TooFew
	}
	if d, half := x.Measures[1].Percent(); d-half > -m && d+half < m {
		return Same
	}
	return Unknown
}

// VerdictText says what was found of schedulers a and b, in a sentence.
func (x *Apart) VerdictText(a, b string, margin int) string {
	text := func(m *ApartMeasure) string {
		d, half := m.Percent()
		if math.Abs(d) >= 100 {
			return fmt.Sprintf("%+.0f %% ±%.0f", d, half)
		}
		return fmt.Sprintf("%+.1f %% ±%.1f", d, half)
	}
	all := text(&x.WithOpen)
	switch x.Verdict(margin) {
	case TooFew:
		return fmt.Sprintf("too few jobs: at least %d of each are needed of which the other scheduler had some alike; "+
			"%s has %d, %s %d", Least, a, x.A.Compared, b, x.B.Compared)
	case BWorse:
		return fmt.Sprintf("jobs take longer with %s than with %s, by %s: more than %d %%", b, a, all, margin)
	case AWorse:
		return fmt.Sprintf("jobs take less long with %s than with %s, by %s: more than %d %%", b, a, all, margin)
	case Same:
		return fmt.Sprintf("jobs take about as long with %s as with %s, %s: within %d %%", b, a, text(&x.Measures[1]),
			margin)
	}
	return fmt.Sprintf("not known yet: with %s jobs take %s longer than with %s, which is neither surely more nor "+
		"surely less than %d %%", b, text(&x.Measures[1]), a, margin)
}
