package gateway

import (
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// TestBudgeted: an app's eviction budget goes with launches that name none, what the client sent stays as it was, and a
// budget that cannot be is refused.
func TestBudgeted(t *testing.T) {
	h := newShop(t)
	c := h.catalog
	if _, err := c.CreateApp("shop", "personal", "", ""); err != nil {
		t.Fatal(err)
	}
	plain, own := &machine.Launch{}, &machine.Launch{Scheduling: &machine.Scheduling{Band: machine.BandBatch, EvictionBudget: &machine.EvictionBudget{Max: 7}}}
	if h.gateway.budgeted("shop", plain) != plain {
		t.Fatal("an app without a budget changes no launch")
	}
	if err := c.SetEvictionBudget("shop", &machine.EvictionBudget{Max: 3, Window: machine.Duration{Duration: time.Minute}}); err != nil {
		t.Fatal(err)
	}
	if with := h.gateway.budgeted("shop", plain); with.Scheduling.Budget().Max != 3 || plain.Scheduling != nil {
		t.Fatalf("%+v, %+v", with.Scheduling, plain.Scheduling)
	}
	banded := &machine.Launch{Scheduling: &machine.Scheduling{Band: machine.BandBatch}}
	if with := h.gateway.budgeted("shop", banded); with.Scheduling.Budget().Max != 3 || with.Scheduling.Band != machine.BandBatch || banded.Scheduling.EvictionBudget != nil {
		t.Fatalf("%+v", with.Scheduling)
	}
	if h.gateway.budgeted("shop", own) != own {
		t.Fatal("a machine's own budget goes first")
	}
	if err := c.SetEvictionBudget("shop", &machine.EvictionBudget{Max: 1000}); !fault.Is(err, fault.Invalid) {
		t.Fatal(err)
	}
	if err := c.SetEvictionBudget("nobody", nil); !fault.Is(err, fault.NotFound) {
		t.Fatal(err)
	}
}
