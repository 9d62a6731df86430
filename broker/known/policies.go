package known

import (
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/store/catalog"
)

// Policies tell which policy ranks the workers for a request.
type Policies struct {
	Apps    AppCatalog
	Catalog PolicyCatalog
}

// AppCatalog is what they need of apps.
type AppCatalog interface {
	App(name string) (catalog.App, error)
}

// PolicyCatalog is what they need of the catalog.
type PolicyCatalog interface {
	PolicyChoice() catalog.PolicyChoice
	BoundPolicy(name string) (placement.Policy, error)
}

// PolicyFor gives the policy of a request: the launch's own, else its app's, else the default. It belongs to the
// goroutine that asked for it.
func (p Policies) PolicyFor(r *placement.Request) (placement.Policy, error) {
	name := r.Scheduling.Policy
	if name == "" {
		app, _ := p.Apps.App(r.App) // of one that is gone the request is refused elsewhere
		name = app.Policy
	}
	if name == "" {
		name = p.Catalog.PolicyChoice().Default
	}
	return p.Catalog.BoundPolicy(name)
}

// Watcher gives the policy that only watches; false when there is none. It places nothing.
func (p Policies) Watcher() (placement.Policy, bool) {
	name := p.Catalog.PolicyChoice().Shadow
	if name == "" {
		return placement.Policy{}, false
	}
	policy, err := p.Catalog.BoundPolicy(name)
	return policy, err == nil // it may have been taken away meanwhile
}
