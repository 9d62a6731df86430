// Package catalog keeps what a gateway knows and no worker does: apps and their settings, secrets (sealed),
// namespaces and prices, policies of placement and which of them are in force, what is wanted of services, and
// idempotency keys.
//
// Each of these is a row: a key in a bucket with a JSON value. Reads come from memory. A change is committed to the
// catalog's journal first and seen afterwards, whole or not at all, and then told to the catalogs of the other
// members row by row (see Sharing). A row that another member wrote is imported in the same way, as one commit of its
// own.
package catalog

import (
	"errors"
	"sync"
	"time"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
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

// Catalog keeps the rows. Its methods may be called from many goroutines.
type Catalog struct {
	// write is held over a change from its first look to its commit; who holds it may read without mu.
	write sync.Mutex
	// mu is held only while the tables are read or written, never over a commit: reads do not wait for the disk.
	mu      sync.RWMutex
	journal journal.Journal
	sealer  sealer
	sharing *Sharing
	failed  chan struct{} // closed when broken is set
	broken  error         // of a failed commit: what is on disk is unknown, so nothing more is written

	together bool         // rows are being imported that are committed together
	imported []fsm.Record // these

	apps       *apps
	secrets    *secrets
	old        oldSecrets // values of before that releases begin their machines with
	keys       *keys
	policies   *policies
	choice     *rows[PolicyChoice]
	namespaces *rows[Namespace]
	prices     *rows[quota.Price]
	releases   appRows[release.Release]
	heads      versionedRows[release.Head]
	tenures    *rows[release.Tenure]
	forks      appRows[release.Head]
	moves      moves
	orphans    map[string]bool   // apps that are not here and of which another member has told a head
	restored   map[string]string // apps of releases that were told again though another member took them out, by key
	tables     map[string]table  // all of these, by bucket
}

// Open reads a catalog from its journal, which is its own. keyFile holds the key that secrets are sealed with; it is
// made when there are no secrets yet, and refused when others may read it.
func Open(j journal.Journal, keyFile string) (*Catalog, error) {
	c := empty(j)
	if err := j.Load(c.load); err != nil {
		return nil, err
	}
	c.keys.sort(func(app string) string { return c.apps.all[app].Namespace })
	c.policies.compileAll()
	s, err := openSealer(keyFile, len(c.secrets.byApp)+len(c.old.byApp) == 0)
	if err != nil {
		return nil, err
	}
	c.sealer = s
	return c, nil
}

func empty(j journal.Journal) *Catalog {
	c := &Catalog{
		journal: j, failed: make(chan struct{}),
		old:  oldSecrets{newSecrets(bucketOldSecret)},
		apps: newApps(), secrets: newSecrets(bucketSecret), keys: newKeys(), policies: newPolicies(),
		choice:     newRows(bucketSetting, onlyKey[PolicyChoice](keyPolicies)),
		namespaces: newRows(bucketNamespace, checkNamespace),
		prices:     newRows(bucketPrice, checkPrice),
		releases:   newAppRows(bucketRelease, checkRelease),
		heads:      newVersionedRows(bucketHead, checkHead),
		tenures:    newRows(bucketSteward, checkTenure),
		forks:      newAppRows(bucketFork, checkFork),
		orphans:    map[string]bool{}, restored: map[string]string{},
	}
	c.releases.pack() // there are several of each service, and seldom is one needed
	c.tables = map[string]table{
		bucketApp: c.apps, bucketSecret: c.secrets, bucketOldSecret: c.old, bucketKey: c.keys, bucketPolicy: c.policies,
		bucketSetting: c.choice, bucketNamespace: c.namespaces, bucketPrice: c.prices,
		bucketRelease: c.releases, bucketHead: c.heads, bucketSteward: c.tenures, bucketFork: c.forks,
	}
	return c
}

func (c *Catalog) load(r fsm.Record) error {
	err := errors.New("an unknown bucket")
	if t := c.tables[r.Bucket]; t != nil {
		err = t.load(r.Key, r.Value)
	}
	if err == nil {
		return nil
	}
	return fault.Wrap(err, fault.Invalid, fault.CodeCatalog,
		"the catalog's record %s/%s cannot be read; start the version of souk that wrote it", r.Bucket, r.Key)
}

// Failed is closed when a commit has failed. What is on disk is unknown then: the process is to end, and to be
// started again.
func (c *Catalog) Failed() <-chan struct{} { return c.failed }

// Close writes what is pending of keys, and closes the journal.
func (c *Catalog) Close() error {
	c.settleKeys(time.Now())
	return c.journal.Close()
}

// change is one row that is to be written, and what then enters it in its table.
type change struct {
	record fsm.Record
	apply  func()
}

// commit makes changes durable, enters them, and tells the other gateways. The caller holds write.
func (c *Catalog) commit(changes ...change) error {
	if err := c.mayTell(changes); err != nil {
		return err
	}
	if err := c.keep(changes...); err != nil {
		return err
	}
	for _, x := range changes {
		c.tell(x.record)
	}
	return nil
}

// mayTell refuses changes that the other members have no place for. The caller holds write.
func (c *Catalog) mayTell(changes []change) error {
	if c.sharing == nil || c.sharing.May == nil {
		return nil
	}
	more, bucket := 0, ""
	for _, x := range changes {
		if x.record.Value == nil || x.record.Bucket == bucketKey {
			continue
		}
		if _, there := c.tables[x.record.Bucket].remove(x.record.Key); there {
			continue
		}
		more, bucket = more+1, x.record.Bucket
		if bucket == bucketHead { // its steward has a row, too
			more++
		}
	}
	if more == 0 {
		return nil
	}
	return c.sharing.May(bucket, more)
}

// keep makes changes durable and enters them, and tells nobody. The caller holds write.
func (c *Catalog) keep(changes ...change) error {
	if c.broken != nil {
		return c.broken
	}
	batch := make([]fsm.Record, len(changes))
	for i, x := range changes {
		batch[i] = x.record
	}
	if c.together {
		c.imported = append(c.imported, batch...)
	} else if err := c.journalled(batch); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range changes {
		x.apply()
	}
	c.moves.note(changes)
	return nil
}

// journalled makes records durable. The caller holds write.
func (c *Catalog) journalled(batch []fsm.Record) error {
	if err := c.journal.Commit(batch); err != nil {
		c.broken = fault.Wrap(err, fault.Unavailable, fault.CodeCatalog,
			"the catalog could not be written, so nothing more is changed until souk is started again")
		close(c.failed)
		return c.broken
	}
	return nil
}
