package broker

import (
	"testing"

	"github.com/soukhq/souk/cluster"
)

// TestRehearsalReturnsNoUnhealthyDevice: what a rehearsal gives back is never a device that is granted to nobody.
func TestRehearsalReturnsNoUnhealthyDevice(t *testing.T) {
	k := cluster.Record{GPUs: []cluster.GPU{{Kind: "a", Health: "lost"}, {Kind: "a"}, {Kind: "a", Free: 400}}}
	freeGPUs(&k, 1500)
	for i, want := range []int64{0, 1000, 900} {
		if got := k.GPUs[i].Free; got != want {
			t.Errorf("device %d has %d thousandths free, want %d", i, got, want)
		}
	}
}
