package node

import (
	"slices"
	"testing"

	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
)

// TestCPUUseIsToldInStepsOf5Percent: of machines that are asked for, once it is known, and changes of 5 per cent of what it may use.
func TestCPUUseIsToldInStepsOf5Percent(t *testing.T) {
	c := cpuMeter{}
	cpus := map[string]int64{"a": 2000}
	for i, tt := range []struct {
		at, cpu int64 // seconds, and seconds of one CPU
		want    []fleet.CPU
	}{
		{5, 100, nil}, {10, 105, []fleet.CPU{{Machine: "a", Percent: 50}}}, {20, 115, nil}, {30, 126, []fleet.CPU{
			{Machine: "a", Percent: 55}}}, {40, 136, []fleet.CPU{{Machine: "a", Percent: 50}}},
		{50, 0, nil}, {60, 0, []fleet.CPU{{Machine: "a"}}}, {70, 0, nil},
	} {
		got := c.noteUses([]machine.Use{{Machine: "a", CPU: tt.cpu * 1e6, At: tt.at * 1e6},
			{Machine: "b", CPU: tt.cpu * 1e6, At: tt.at * 1e6}}, cpus)
		if !slices.Equal(got, tt.want) {
			t.Errorf("look %d: %+v, want %+v", i, got, tt.want)
		}
	}
	if c.noteUses(nil, nil); len(c) > 0 {
		t.Errorf("%d machines are remembered", len(c))
	}
}
