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
			t.Errorf("the route %s has no handler", r.Op)
		}
		delete(served, r.Op)
	}
	for op := range served {
		t.Errorf("%s has a handler and is not in the list of routes", op)
	}
}
