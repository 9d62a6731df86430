package jobs

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestSpreadTasksFillsWorkersEvenly: as many tasks are assigned as there is room for, and the room left at workers that got
// tasks is even, within one.
func TestSpreadTasksFillsWorkersEvenly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		room := rapid.SliceOfN(rapid.IntRange(0, 20), 0, 8).Draw(t, "room")
		slices.SortFunc(room, func(a, b int) int { return b - a })
		n, total, shared := rapid.IntRange(0, 100).Draw(t, "tasks"), 0, 0
		shares := spreadTasks(n, room)
		least, most := 21, 0 // room that is left to those who have a share, and to all
		for i, r := range room {
			total, shared = total+r, shared+shares[i]
			if shares[i] < 0 || shares[i] > r {
				t.Fatalf("%d of %d: %v", shares[i], r, shares)
			}
			if shares[i] > 0 {
				least = min(least, r-shares[i])
			}
			most = max(most, r-shares[i])
		}
		if shared != min(n, total) || n > 0 && n < total && most > least+1 {
			t.Fatalf("%d tasks over %v: %v", n, room, shares)
		}
	})
}
