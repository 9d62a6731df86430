package jobs

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/soukhq/souk/fault"
)

// Array is the indices of a job's tasks, in ascending order. The place of a task is the number of tasks before it.
type Array struct {
	runs []run
}

// run is the indices first, first+step, and so on up to last.
type run struct {
	first, last, step int
	before            int // tasks of the runs before it
}

func (r run) len() int { return (r.last-r.first)/r.step + 1 }

// fullArray is the indices from first to last.
func fullArray(first, last int) Array { return Array{[]run{{first: first, last: last, step: 1}}} }

// ParseArray reads indices and ranges with an optional step, in any order, and how many of the tasks may run at once:
// "7", "1-1000", "1-9:2,20%3". atOnce is 0 if text does not say.
func ParseArray(text string) (a Array, atOnce int, err error) {
	list, limit, limited := strings.Cut(text, "%")
	if limited {
		if atOnce, err = strconv.Atoi(limit); err != nil || atOnce < 1 {
			return a, 0, badArray(text)
		}
	}
	parts := strings.Split(list, ",")
	if len(parts) > maxRuns {
		return a, 0, tooManyRuns(len(parts))
	}
	n := 0
	runs := make([]run, len(parts))
	for i, part := range parts {
		var ok bool
		if runs[i], ok = parseRun(part); !ok {
			return a, 0, badArray(text)
		}
		n += runs[i].len()
	}
	if len(runs) == 1 {
		return Array{runs}, atOnce, nil
	}
	if n > MaxTasks {
		return a, 0, tooManyTasks(n)
	}
	all := make([]int, 0, n)
	for _, r := range runs {
		for x := r.first; x <= r.last; x += r.step {
			all = append(all, x)
		}
	}
	if a = NewArray(all); len(a.runs) > maxRuns {
		return a, 0, tooManyRuns(len(a.runs))
	}
	return a, atOnce, nil
}

// maxRuns bounds the ranges of an array.
const maxRuns = 4096

func tooManyRuns(n int) error {
	return fault.New(fault.Invalid, codeTasks, "an array is at most %d indices and ranges, sorted, and this one is "+
		"%d; split it", maxRuns, n)
}

func badArray(text string) error {
	return fault.New(fault.Invalid, codeTasks, "an array is written as 1-2000, 0-99:3 or 1,5,10-20, with %%4 behind "+
		"it if at most 4 of its tasks may run at once, and indices from 0 to %d; not %.80q", MaxIndex, text)
}

func tooManyTasks(n int) error {
	return fault.New(fault.Invalid, fault.CodeJob, "a job has at most %d tasks, and this one has %d; split it",
		MaxTasks, n)
}

// parseRun reads "7", "1-9" or "1-9:2".
func parseRun(text string) (r run, ok bool) {
	span, step, stepped := strings.Cut(text, ":")
	from, to, ranged := strings.Cut(span, "-")
	first, errFirst := strconv.Atoi(from)
	last, errLast := first, error(nil)
	if ranged {
		last, errLast = strconv.Atoi(to)
	}
	r.step = 1
	var errStep error
	if stepped {
		r.step, errStep = strconv.Atoi(step)
	}
	if cmp.Or(errFirst, errLast, errStep) != nil || first < 0 || last < first || last > MaxIndex ||
		stepped && (!ranged || r.step < 1) {
		return r, false
	}
	r.first, r.last = first, first+(last-first)/r.step*r.step
	if r.first == r.last {
		r.step = 1
	}
	return r, true
}

// NewArray makes an array of indices, in any order. It may change all.
func NewArray(all []int) (a Array) {
	slices.Sort(all)
	all = slices.Compact(all)
	for i := 0; i < len(all); {
		end := i + 1 // the run is all[i:end]
		if end < len(all) {
			step := all[end] - all[i]
			for end < len(all) && all[end]-all[end-1] == step {
				end++
			}
			if end-i == 2 && step > 1 {
				end = i + 1 // two that are apart are no run
			}
		}
		r := run{first: all[i], last: all[end-1], step: 1, before: i}
		if end-i > 1 {
			r.step = all[i+1] - all[i]
		}
		a.runs = append(a.runs, r)
		i = end
	}
	return a
}

// IsZero reports whether the array has no index.
func (a Array) IsZero() bool { return len(a.runs) == 0 }

// Equal reports whether two arrays have the same indices.
func (a Array) Equal(b Array) bool { return slices.Equal(a.runs, b.runs) }

// Len returns how many indices there are.
func (a Array) Len() int {
	if a.IsZero() {
		return 0
	}
	r := a.runs[len(a.runs)-1]
	return r.before + r.len()
}

// First returns the least index; 0 if there is none.
func (a Array) First() int {
	if a.IsZero() {
		return 0
	}
	return a.runs[0].first
}

// Last returns the largest index; 0 if there is none.
func (a Array) Last() int {
	if a.IsZero() {
		return 0
	}
	return a.runs[len(a.runs)-1].last
}

// Step returns the step from one index to the next where it is the same for all, else 1.
func (a Array) Step() int {
	if len(a.runs) != 1 {
		return 1
	}
	return a.runs[0].step
}

// At returns the index of the task at a place, which is from 0 to Len()-1.
func (a Array) At(place int) int {
	i, is := slices.BinarySearchFunc(a.runs, place, func(r run, p int) int { return cmp.Compare(r.before, p) })
	if !is {
		i--
	}
	r := a.runs[i]
	return r.first + (place-r.before)*r.step
}

// From returns the place of the first task whose index is index or larger; Len() if there is none.
func (a Array) From(index int) int {
	i, is := slices.BinarySearchFunc(a.runs, index, func(r run, x int) int { return cmp.Compare(r.first, x) })
	if is {
		return a.runs[i].before
	}
	if i == 0 {
		return 0
	}
	r := a.runs[i-1]
	return r.before + min(r.len(), (index-r.first+r.step-1)/r.step)
}

// PlaceOf returns the place of the task with an index; false: there is none.
func (a Array) PlaceOf(index int) (int, bool) {
	place := a.From(index)
	return place, place < a.Len() && a.At(place) == index
}

// Missing returns an index of list that is not in the array; false: there is none. A range may have gaps, but not only
// gaps, and begins and ends between the array's first and last index.
func (a Array) Missing(list Indices) (int, bool) {
	for _, r := range list {
		switch {
		case r.First < a.First() || a.From(r.First) == a.From(r.Last+1):
			return r.First, true
		case r.Last > a.Last():
			return r.Last, true
		}
	}
	return 0, false
}

// LenOf returns how many indices of list are in the array.
func (a Array) LenOf(list Indices) (n int) {
	for _, r := range list {
		n += a.From(r.Last+1) - a.From(r.First)
	}
	return n
}

// String writes the indices as ParseArray reads them, without how many run at once.
func (a Array) String() string {
	parts := make([]string, len(a.runs))
	for i, r := range a.runs {
		switch {
		case r.first == r.last:
			parts[i] = strconv.Itoa(r.first)
		case r.step == 1:
			parts[i] = fmt.Sprintf("%d-%d", r.first, r.last)
		default:
			parts[i] = fmt.Sprintf("%d-%d:%d", r.first, r.last, r.step)
		}
	}
	return strings.Join(parts, ",")
}

// MarshalText writes the array for JSON.
func (a Array) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what MarshalText writes, in any order.
func (a *Array) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*a = Array{}
		return nil
	}
	got, atOnce, err := ParseArray(string(text))
	if err == nil && atOnce > 0 {
		err = fault.New(fault.Invalid, codeTasks, "how many tasks run at once is said in at_once, not in array")
	}
	*a = got
	return err
}
