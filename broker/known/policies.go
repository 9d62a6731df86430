package known

import (
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/store/catalog"
)

// Policies choose the policy that ranks the workers for a request.
type Policies struct {
	Apps    AppCatalog
	Catalog PolicyCatalog
}

// AppCatalog is what Policies needs of apps.
type AppCatalog interface {
	App(name string) (catalog.App, error)
}

// PolicyCatalog is what Policies needs of the policies.
type PolicyCatalog interface {
	PolicyChoice() catalog.PolicyChoice
	BoundPolicy(name string) (placement.Policy, error)
}

// PolicyFor gives the policy of a request: the launch's own, else its app's, else the default. It belongs to the
// goroutine that asked for it.
func (p Policies) PolicyFor(r *placement.Request) (placement.Policy, error) {
	name := r.Scheduling.Policy
	if name == "" {
		app, _ := p.Apps.App(r.App) // if the app is gone, another step refuses the request
		name = app.Policy
	}
	if name == "" {
		name = p.Catalog.PolicyChoice().Default
	}
	return p.Catalog.BoundPolicy(name)
}

// Watcher returns the shadow policy, whose choices are only recorded; false if there is none.
func (p Policies) Watcher() (placement.Policy, bool) {
	name := p.Catalog.PolicyChoice().Shadow
	if name == "" {
		return placement.Policy{}, false
	}
	policy, err := p.Catalog.BoundPolicy(name)
	return policy, err == nil // it may have been deleted meanwhile
}
