package gateway

import (
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker/known"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/store/catalog"
)

// What the gateway serves is the API's table, no more and no less.
func TestServedRoutesMatchTheRouteTable(t *testing.T) {
	served := servedBy((&Gateway{}).allNouns(Options{Directory: &find.Directory{}, Catalog: &catalog.Catalog{}},
		known.Policies{}, nil, nil))
	for _, r := range api.Routes() {
		if served[r.Op] == nil {
			t.Errorf("nothing serves %s", r.Op)
		}
		delete(served, r.Op)
	}
	for op := range served {
		t.Errorf("%s is served, and is no route", op)
	}
}
