package place

import (
	"testing"
)

// TestCreateAsksOnlyTheGrantingWorker: with 10,000 workers and 100,000 machines, a create, named or not, sends one
// grant and no other request, and copies no view of the fleet. Each machine is made once and is found at once.
func TestCreateAsksOnlyTheGrantingWorker(t *testing.T) {
	r, err := Run(t.Context(), Options{Workers: 10_000, Machines: 100_000, Creates: 2000, Callers: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", *r)
	if r.Asked != 0 {
		t.Errorf("a create asks workers for %.3f things beside its grant", r.Asked)
	}
}
