package image

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A plan keeps what is fixed and kept, frees no more than it must, and leaves nothing that no image needs.
func TestPlanCollectionFreesNoMoreThanNeeded(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f"}
	rapid.Check(t, func(t *rapid.T) {
		sizes := map[string]int64{}
		for _, n := range names {
			sizes[n] = rapid.Int64Range(0, 100).Draw(t, "size")
		}
		held := rapid.SliceOf(rapid.SampledFrom(names)).Draw(t, "kept")
		kept := func(p string) bool { return slices.Contains(held, p) }
		var all []candidate
		for i := range rapid.IntRange(0, 5).Draw(t, "images") {
			all = append(all, candidate{digest: string(rune('0' + i)), fixed: rapid.Bool().Draw(t, "fixed"),
				used:  time.Unix(rapid.Int64Range(0, 3).Draw(t, "used"), 0),
				parts: rapid.SliceOf(rapid.SampledFrom(names)).Draw(t, "parts")})
		}
		budget := rapid.Int64Range(0, 600).Draw(t, "budget")
		images, parts := planCollection(all, sizes, kept, budget)
		left, needed := int64(0), map[string]bool{}
		var last time.Time
		for _, c := range all {
			gone := slices.Contains(images, c.digest)
			if gone && c.fixed {
				t.Fatalf("%s is removed and fixed", c.digest)
			}
			if gone && c.used.After(last) {
				last = c.used
			}
			for _, p := range c.parts {
				needed[p] = needed[p] || !gone
			}
		}
		movable := false
		for _, c := range all {
			if gone := slices.Contains(images, c.digest); !gone && !c.fixed {
				movable = true
				if c.used.Before(last) {
					t.Errorf("%s stays and was used before one that goes", c.digest)
				}
			}
		}
		for p, size := range sizes {
			switch gone := slices.Contains(parts, p); {
			case gone && (needed[p] || kept(p)):
				t.Errorf("the part %s goes and is needed", p)
			case !gone && !needed[p] && !kept(p):
				t.Errorf("the part %s stays and nobody needs it", p)
			case !gone:
				left += size
			}
		}
		if left > budget && movable {
			t.Errorf("%d are left of a budget of %d, and there is what could go", left, budget)
		}
	})
}
