package jobs

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/soukhq/souk/fault"
)

// Range is the indices from First to Last, both included.
type Range struct {
	First int `json:"f"`
	Last  int `json:"l"`
}

// Indices is a set of indices: ranges in order that do not touch each other.
type Indices []Range

// MaxRanges bounds the ranges in one parsed list.
const MaxRanges = 1000

// ParseIndices reads a list of indices and ranges: "7", "3,10-20".
func ParseIndices(text string) (all Indices, err error) {
	parts := strings.Split(text, ",")
	if len(parts) > MaxRanges {
		return nil, fault.New(fault.Invalid, codeTasks, "a list has at most %d indices and ranges, not %d", MaxRanges,
			len(parts))
	}
	for _, part := range parts {
		from, to, ranged := strings.Cut(part, "-")
		first, errFirst := strconv.Atoi(from)
		last, errLast := first, error(nil)
		if ranged {
			last, errLast = strconv.Atoi(to)
		}
		if errFirst != nil || errLast != nil || first < 0 || last < first || last > MaxIndex {
			return nil, fault.New(fault.Invalid, codeTasks,
				"tasks are named by index from 0 to %d, as 7 or 3,10-20, not %.80q", MaxIndex, text)
		}
		all = append(all, Range{first, last})
	}
	return all.With(nil), nil
}

// String writes the list as ParseIndices reads it.
func (s Indices) String() string {
	parts := make([]string, len(s))
	for i, r := range s {
		if parts[i] = strconv.Itoa(r.First); r.Last > r.First {
			parts[i] = fmt.Sprintf("%d-%d", r.First, r.Last)
		}
	}
	return strings.Join(parts, ",")
}

// Len returns how many indices there are.
func (s Indices) Len() (n int) {
	for _, r := range s {
		n += r.Last - r.First + 1
	}
	return n
}

// Has reports whether an index is in the set.
func (s Indices) Has(index int) bool {
	i, is := slices.BinarySearchFunc(s, index, func(r Range, n int) int { return cmp.Compare(r.First, n) })
	return is || i > 0 && index <= s[i-1].Last
}

// Add adds an index that is larger than all others. It may change s.
func (s Indices) Add(index int) Indices {
	if n := len(s); n > 0 && s[n-1].Last == index-1 {
		s[n-1].Last = index
		return s
	}
	return append(s, Range{index, index})
}

// With returns the indices of both sets. Neither is changed.
func (s Indices) With(more Indices) Indices {
	all := slices.Concat(s, more)
	slices.SortFunc(all, func(a, b Range) int { return cmp.Compare(a.First, b.First) })
	var out Indices
	for _, r := range all {
		if n := len(out); n > 0 && r.First <= out[n-1].Last+1 {
			out[n-1].Last = max(out[n-1].Last, r.Last)
		} else {
			out = append(out, r)
		}
	}
	return out
}
