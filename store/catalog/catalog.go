// Package catalog keeps what a gateway knows and no worker does: apps and their settings, secrets (sealed),
// namespaces and prices, policies of placement and which of them are in force, what is wanted of services, and
// idempotency keys.
//
// Each of these is a subject with methods of its own, and its data are rows: a key in a bucket with a JSON value. The
// subjects share one engine, which knows no bucket by name: what a bucket does beyond keeping rows it says in its hooks.
// Reads come from memory. A change is committed to the catalog's journal first and seen afterwards, whole or not at all,
// and then told to the catalogs of the other members row by row (see Sharing). A row that another member wrote is imported
// in the same way, as one commit of its own.
package catalog

import (
	"time"

	"github.com/soukhq/souk/store/journal"
)

// The catalog's buckets in its journal.
const (
	bucketApp       = "app"         // by name
	bucketSecret    = "secret"      // by app/name
	bucketOldSecret = "oldsecret"   // by app/name/when it was set, in nanoseconds of Unix time
	bucketKey       = "idempotency" // by app/key
	bucketPolicy    = "policy"      // by name/version
	bucketSetting   = "setting"     // one row: keyPolicies
	bucketNamespace = "namespace"   // by name
	bucketPrice     = "price"       // one row: keyPrice
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

// Catalog keeps the rows. The methods of it and of its subjects may be called from many goroutines.
type Catalog struct {
	*engine
	Apps       *Apps
	Secrets    *Secrets
	Services   *Services
	Policies   *Policies
	Namespaces *Namespaces
	Keys       *Keys
}

// Open reads a catalog from its journal, which is its own. keyFile holds the key that secrets are sealed with; it is
// made when there are no secrets yet, and refused when others may read it.
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

// Failed is closed when a commit has failed. What is on disk is unknown then: the process is to end, and to be
// started again.
func (c *Catalog) Failed() <-chan struct{} { return c.failed }

// Close writes what is pending of keys, and closes the journal.
func (c *Catalog) Close() error {
	c.Keys.settleKeys(time.Now())
	return c.journal.Close()
}
