package jobs_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

func TestArraysAreRead(t *testing.T) {
	for text, want := range map[string]string{
		"7":                "7",
		"1-3":              "1-3",
		"5,1,3%1":          "1-5:2%1", // sorted, as Slurm does
		"1-12:3":           "1-10:3",
		"1-9:2,20%3":       "1-9:2,20%3",
		"0-20:4":           "0-20:4",
		"1,3,4,9":          "1,3-4,9",
		"1-10:3,2-9:2,4,4": "1-2,4,6-8,10",
		"3-3:5":            "3",
		"8-9:5,1":          "1,8",
		"0-16777215:2":     "0-16777214:2",
	} {
		a, n, err := jobs.ParseArray(text)
		got := a.String()
		if n > 0 {
			got += fmt.Sprintf("%%%d", n)
		}
		if err != nil || got != want {
			t.Errorf("%s is %s, want %s: %v", text, got, want, err)
		}
	}
	for _, text := range []string{"", "a", "-1", "3-1", "1-", "1-9:0", "1-9:", "5:2", "1,,2", "1-5%0", "1-5%", "1%2%3",
		"16777216", "1-16777216", "9999999999999999999", "1-5 ", "0x1", strings.Repeat("1,", 4096) + "1",
		"0-16777215,3"} {
		if a, _, err := jobs.ParseArray(text); !fault.Is(err, fault.Invalid) {
			t.Errorf("%.40q is read as %s: %v", text, a, err)
		}
	}
}

// TestArrayIsItsSetOfIndices holds arrays against lists of their indices.
func TestArrayIsItsSetOfIndices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := map[int]bool{}
		var parts []string
		for range rapid.IntRange(1, 8).Draw(t, "parts") {
			first, step := rapid.IntRange(0, 60).Draw(t, "first"), rapid.IntRange(1, 9).Draw(t, "step")
			last := first + rapid.IntRange(0, 40).Draw(t, "more")
			parts = append(parts, fmt.Sprintf("%d-%d:%d", first, last, step))
			for i := first; i <= last; i += step {
				in[i] = true
			}
		}
		a, _, err := jobs.ParseArray(strings.Join(parts, ","))
		if err != nil {
			t.Fatal(err)
		}
		var all []int
		for i := range 120 {
			place, is := a.PlaceOf(i)
			if is != in[i] || a.From(i) != len(all) || is && (place != len(all) || a.At(place) != i) {
				t.Fatalf("%s: %d is at %d, %t; From says %d", a, i, place, is, a.From(i))
			}
			if in[i] {
				all = append(all, i)
			}
		}
		if a.Len() != len(all) || a.First() != all[0] || a.Last() != all[len(all)-1] {
			t.Fatalf("%s has %d tasks from %d to %d, not %v", a, a.Len(), a.First(), a.Last(), all)
		}
		raw, err := json.Marshal(a)
		var back jobs.Array
		if err == nil {
			err = json.Unmarshal(raw, &back)
		}
		if err != nil || !back.Equal(a) {
			t.Fatalf("%s is written %s, and read as %s: %v", a, raw, back, err)
		}
		first := rapid.IntRange(0, 110).Draw(t, "of")
		r := jobs.Range{First: first, Last: first + rapid.IntRange(0, 9).Draw(t, "to")}
		inside := r.First >= a.First() && r.Last <= a.Last() &&
			slices.ContainsFunc(all, func(i int) bool { return i >= r.First && i <= r.Last })
		n := 0
		for _, i := range all {
			if i >= r.First && i <= r.Last {
				n++
			}
		}
		if got := a.LenOf(jobs.Indices{r}); got != n {
			t.Fatalf("%s has %d of %+v, not %d", a, got, r, n)
		}
		if index, missing := a.Missing(jobs.Indices{r}); missing == inside || missing && in[index] {
			t.Fatalf("of %+v %s misses %d: %t", r, a, index, missing)
		}
	})
}
