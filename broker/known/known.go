// Package known implements what package broker needs to know, from the fleet and the catalog of a process.
package known

import (
	"cmp"
	"context"
	"crypto/rand"
	"io"

	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
	"github.com/soukhq/souk/store/decisionlog"
)

// Options are what a broker is made of. Directory and Catalog must be set.
type Options struct {
	Directory *find.Directory
	Catalog   *catalog.Catalog
	// Peers are the members that decide claims, and Self is this process's own id; nil: it is alone.
	Peers  broker.Peers
	Self   cluster.WorkerID
	Region cluster.Region   // the nearest for a launch that names none; "": local
	Log    *decisionlog.Log // where each placement is recorded; nil: nowhere
	Rand   io.Reader        // nil: crypto/rand
	// Agree and Unfit are as in broker.Options.
	Agree func(ctx context.Context, worker bool)
	Unfit func() error
}

// New makes a broker, and the Claimant that keeps names and keys unique for it.
func New(o Options) (*broker.Broker, *broker.Claimant) {
	known := Fleet{o.Directory}
	claims := broker.NewClaimant(o.Self, o.Peers, broker.NewDecider(known, o.Catalog.Keys), known)
	b := broker.Options{Fleet: known, Directory: known, Apps: apps{o.Catalog.Apps, o.Catalog.Secrets},
		Policies: Policies{o.Catalog.Apps, o.Catalog.Policies},
		Funds:    Accounts{o.Catalog.Namespaces, o.Directory.Fleet}, Claims: claims,
		Region: cmp.Or(o.Region, "local"), Rand: o.Rand,
		Agree: o.Agree, Unfit: o.Unfit}
	if o.Log != nil {
		b.Log = o.Log
	}
	if b.Rand == nil {
		b.Rand = rand.Reader
	}
	return broker.New(b), claims
}

// apps are the catalog's, as a broker reads them.
type apps struct {
	*catalog.Apps
	*catalog.Secrets
}

// OpenApp looks an app up.
func (a apps) OpenApp(name string) (string, error) {
	app, err := a.Apps.OpenApp(name)
	return app.ID, err
}

// EvictionBudget looks up what was set for the app.
func (a apps) EvictionBudget(name string) *machine.EvictionBudget {
	app, _ := a.Apps.App(name) // if the app is gone, another step refuses the request
	return app.Budget
}
