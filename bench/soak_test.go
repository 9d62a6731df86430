package bench

import (
	"testing"
	"time"
)

func TestSoakTellsLeaksFromSawtoothMemory(t *testing.T) {
	minute := func(i int) time.Duration { return time.Duration(i) * time.Minute }
	for _, c := range []struct {
		name  string
		value func(i int) float64
		met   bool
	}{
		{"flat, bytes", func(int) float64 { return 1 << 30 }, true},
		{"leak, bytes", func(i int) float64 { return 1<<26 + float64(i)*(1<<20) }, false},
		{"saw, bytes", func(i int) float64 { return float64(i%7) * (1 << 20) }, true},
		{"warm-up, bytes", func(i int) float64 { return float64(min(i, 19)) * (1 << 20) }, true},
		{"a few, number", func(i int) float64 { return 3 + float64(i)/30 }, true},
		{"descriptors, number", func(i int) float64 { return 20 + float64(i) }, false},
		{"from none, number", func(i int) float64 { return float64(max(0, i-25)) * 10 }, false},
	} {
		var seen []look
		for i := range 60 {
			seen = append(seen, look{minute(i), c.value(i)})
		}
		if r := soakRow(c.name, seen, minute(20)); r.Met != c.met {
			t.Errorf("%s: met is %v: %+v", c.name, r.Met, r)
		}
	}
}
