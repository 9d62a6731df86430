package jobs_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

func TestParseIndicesReadsRanges(t *testing.T) {
	for text, want := range map[string]string{"7": "7", "3,10-20": "3,10-20", "10-20,3": "3,10-20", "1-3,4": "1-4",
		"5,1-9,9": "1-9", "0": "0", "4-4": "4"} {
		if got, err := jobs.ParseIndices(text); err != nil || got.String() != want {
			t.Errorf("%q is %v, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "-1", "3-", "5-4", "1,,2", "1-2-3", "1 ,2", "99999999999999999999",
		"0-9223372036854775807,5-6"} {
		if got, err := jobs.ParseIndices(text); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
}

// TestIndicesMatchAMapModel holds the set against a map.
func TestIndicesMatchAMapModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var set jobs.Indices
		want := map[int]bool{}
		for range rapid.IntRange(0, 8).Draw(t, "times") {
			var more jobs.Indices
			for range rapid.IntRange(0, 3).Draw(t, "ranges") {
				first := rapid.IntRange(0, 40).Draw(t, "first")
				r := jobs.Range{First: first, Last: first + rapid.IntRange(0, 6).Draw(t, "more")}
				for i := r.First; i <= r.Last; i++ {
					want[i] = true
				}
				more = append(more, r)
			}
			set = set.With(more)
		}
		for i := range 50 {
			if set.Has(i) != want[i] {
				t.Fatalf("%v has %d: %v, want %v", set, i, set.Has(i), want[i])
			}
		}
		for i := range set {
			if i > 0 && set[i].First <= set[i-1].Last+1 {
				t.Fatalf("%v is not in order, or its ranges touch", set)
			}
		}
	})
}
