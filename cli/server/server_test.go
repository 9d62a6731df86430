package server

import (
	"testing"
)

func TestSoukGetsItsShareOfCores(t *testing.T) {
	for _, c := range []struct{ cores, workers, want int }{
		{1, 1, 1}, {2, 1, 1}, {2, 3, 2}, {4, 1, 2}, {4, 3, 3}, {64, 1, 32}, {64, 64, 64}, {3, 1, 1},
	} {
		if got := ownCores(c.cores, c.workers); got != c.want {
			t.Errorf("of %d cores %d workers get %d, want %d", c.cores, c.workers, got, c.want)
		}
	}
}
