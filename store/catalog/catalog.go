// Package catalog stores what gateways know and workers do not: apps and their settings, secrets (sealed), namespaces,
// prices and default schedulers, placement policies and which of them are in force, the wanted state of services, and idempotency keys.
//
// Each of these is a subject with methods of its own, and its data are rows: a key in a bucket with a JSON value. The
// subjects share one engine, which treats all buckets alike: a bucket's special behaviour is in its hooks. Reads come
// from memory. A change is committed to the catalog's journal before it is visible, as a whole or not at all, and is
// then shared row by row with the catalogs of the other members (see Sharing). A row from another member is imported
// in the same way, as its own commit.
package catalog

import (
	"time"

	"github.com/soukhq/souk/store/journal"
)

// The catalog's buckets in its journal.
const (
	bucketApp       = "app"         // by name
	bucketSecret    = "secret"      // by app/name
	bucketOldSecret = "oldsecret"   // by app/name/time when it was set, in nanoseconds of Unix time
	bucketKey       = "idempotency" // by app/key
	bucketPolicy    = "policy"      // by name/version
	bucketSetting   = "setting"     // one row: keyPolicies
	bucketNamespace = "namespace"   // by name
	bucketPrice     = "price"       // one row: keyPrice
	bucketScheduler = "scheduler"   // by namespace/name; keyClusterScheduler
	bucketRelease   = "release"     // by app/release
	bucketHead      = "head"        // by app
	bucketSteward   = "steward"     // by app
	bucketFork      = "fork"        // by app/head
)

// Keys of the buckets that have one row.
const (
	keyPolicies = "policies"
	keyPrice    = "price"
)

// Catalog stores the rows. Its methods, and those of its subjects, may be called from many goroutines.
type Catalog struct {
	*engine
	Apps       *Apps
	Secrets    *Secrets
	Services   *Services
	Policies   *Policies
	Namespaces *Namespaces
	Keys       *Keys
}

// Open loads a catalog from its own journal. keyFile holds the key that seals secrets; Open makes it if there are no
// secrets yet, and refuses it if other users may read it.
func Open(j journal.Journal, keyFile string) (*Catalog, error) {
	c := empty(j)
	if err := j.Load(c.load); err != nil {
		return nil, err
	}
	c.Keys.table.sort(func(app string) string { return c.Apps.rows.all[app].Namespace })
	c.Policies.table.compileAll()
	s, err := openSealer(keyFile, len(c.Secrets.rows.byApp)+len(c.Secrets.old.byApp) == 0)
	if err != nil {
		return nil, err
	}
	c.Secrets.sealer = s
	return c, nil
}

func empty(j journal.Journal) *Catalog {
	e := newEngine(j)
	c := &Catalog{engine: e, Apps: newApps(e), Secrets: newSecrets(e), Services: newServices(e),
		Policies:   newPolicies(e),
		Namespaces: newNamespaces(e), Keys: newKeys(e)}
	c.Apps.services = c.Services
	c.Secrets.apps, c.Secrets.services = c.Apps, c.Services
	c.Services.apps, c.Services.secrets = c.Apps, c.Secrets
	c.Policies.apps, c.Namespaces.apps, c.Keys.apps = c.Apps, c.Apps, c.Apps
	return c
}

// Failed is closed when a commit has failed. The state on disk is then unknown: the process must end and be restarted.
func (c *Catalog) Failed() <-chan struct{} { return c.failed }

// Close writes the pending changes of keys, and closes the journal.
func (c *Catalog) Close() error {
	c.Keys.settleKeys(time.Now())
	return c.journal.Close()
}
