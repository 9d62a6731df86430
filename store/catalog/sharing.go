package catalog

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
)

// Sharing makes the catalogs of several gateways one: what is written here is put where all find it, and what others
// wrote is imported. The newest writer of a row wins, whole rows only (see package registry). Idempotency keys stay
// with the gateway that bound them: a client that repeats a create goes to the gateway that it asked first.
type Sharing struct {
	// Put tells the others a row; a nil value is that it is gone.
	Put func(bucket, key string, value []byte) error
	// May refuses about so many new rows of a bucket that the others have no place for. nil: they have.
	May func(bucket string, more int) error
	// Keys returns what members share and nobody else knows, the one in use first: secrets travel sealed with it.
	Keys func() [][]byte
	// Failed is told what could not be shared. It is shared anew at the next start.
	Failed func(bucket, key string, err error)
}

// SharedBuckets lists the buckets of the catalog that are shared, in the order in which rows that hang on others come
// after these. A secret comes after the head that wants its newest value, so that no value of before is kept in vain.
func SharedBuckets() []string {
	return []string{bucketApp, bucketOldSecret, bucketPolicy, bucketSetting, bucketNamespace, bucketPrice,
		bucketRelease, bucketHead, bucketSteward, bucketFork, bucketSecret}
}

// Share begins to share, with all that there is.
func (c *Catalog) Share(s Sharing) error {
	c.write.Lock()
	defer c.write.Unlock()
	c.sharing = &s
	return c.journal.Load(func(r fsm.Record) error {
		c.tell(r)
		return nil
	})
}

// tell shares one row that is in the journal. The caller holds write.
func (c *Catalog) tell(r fsm.Record) {
	if c.sharing == nil || r.Bucket == bucketKey {
		return
	}
	value := r.Value
	var err error
	if sealed(r.Bucket) && value != nil {
		value, err = c.outbound(r)
	}
	if err == nil {
		err = c.sharing.Put(r.Bucket, r.Key, value)
	}
	if err != nil {
		c.sharing.Failed(r.Bucket, r.Key, err)
	}
}

// Import takes one row that another gateway wrote; a nil value is that it is gone. It commits this row, and only
// where it is not here already as it stands; an app that is gone takes what hangs on it along. An error of kind
// NotFound or Precondition says that the row cannot be used yet (a secret of an app that is not known), any other
// that it never can.
//
// newest returns the row as all know it, and whether there is one. It is asked while nobody writes here: a row that was
// read before could be one that has been deleted here since, and would come back.
func (c *Catalog) Import(bucket, key string, newest func() (value []byte, there bool)) error {
	c.write.Lock()
	defer c.write.Unlock()
	return c.importRow(bucket, key, newest)
}

// ImportMany calls do with what imports a row as Import does, and makes all that it imports durable together, when do
// returns. A row can be read here before that: who wrote it has it on disk, and so has this member beside its catalog.
func (c *Catalog) ImportMany(do func(one Importing)) error {
	c.write.Lock()
	defer c.write.Unlock()
	c.together = true
	do(c.importRow)
	batch := c.imported
	c.together, c.imported = false, nil
	if len(batch) == 0 || c.broken != nil {
		return c.broken
	}
	return c.journalled(batch)
}

// Importing is what Import does.
type Importing func(bucket, key string, newest func() (value []byte, there bool)) error

// importRow does what Import says. The caller holds write.
func (c *Catalog) importRow(bucket, key string, newest func() (value []byte, there bool)) error {
	if !slices.Contains(SharedBuckets(), bucket) {
		return fault.New(fault.Invalid, fault.CodeCatalog, "gateways share no rows of %s", fault.Clip(bucket, 40))
	}
	value, there := newest()
	if !there {
		return nil
	}
	if bucket == bucketApp {
		delete(c.orphans, key) // whoever made the app knew of its head, or told it afterwards
	}
	if value == nil {
		return c.importRemoval(bucket, key)
	}
	if sealed(bucket) {
		var err error
		if value, err = c.inbound(key, value); err != nil {
			return err
		}
	}
	if err := c.hangs(bucket, key); err != nil {
		return err
	}
	var before *release.Head
	if bucket == bucketHead {
		before = c.heads.get(key)
	}
	x, same, err := c.tables[bucket].accept(key, value)
	if err != nil || same {
		return err
	}
	if bucket == bucketSecret {
		return c.commitKept(x, key)
	}
	return c.keepImported(x, before)
}

// sealed reports whether the rows of a bucket hold values that are sealed.
func sealed(bucket string) bool { return bucket == bucketSecret || bucket == bucketOldSecret }

// commitKept commits the change of a secret that another member made, and keeps the value of before where the service needs
// it, for all: that member may know nothing of it.
func (c *Catalog) commitKept(x change, key string) error {
	kept := c.keptBefore(key)
	if err := c.keep(append(kept, x)...); err != nil {
		return err
	}
	for _, k := range kept {
		c.tell(k.record)
	}
	return nil
}

func (c *Catalog) importRemoval(bucket, key string) error {
	x, there := c.tables[bucket].remove(key)
	switch {
	case !there:
		return nil
	case bucket == bucketApp:
		c.forgetRestored(key)
		if _, wanted := c.heads.all[key]; wanted {
			c.orphan(key) // a member that knows of no services tells nothing of its head
		}
		return c.keep(c.removal(key)...)
	case bucket == bucketRelease && c.needsRelease(key):
		return c.restore(key)
	case bucket == bucketOldSecret && c.needsOldSecret(key):
		return nil
	case bucket == bucketSecret:
		return c.commitKept(x, key)
	}
	return c.keep(x)
}

// Resealed returns the row of a secret as it travels between gateways, sealed with the key that is in use, and reports
// whether it was sealed with one of before.
func (c *Catalog) Resealed(key string, value []byte) (out []byte, anew bool, err error) {
	c.write.Lock()
	defer c.write.Unlock()
	row, bound, err := c.secretOf(key, value)
	if err != nil || c.sharing == nil {
		return nil, false, err
	}
	plain, at, err := c.unseal(bound, row.Sealed)
	if err != nil || at == 0 {
		return value, false, err
	}
	s, err := sealerBetweenGateways(c.sharing.Keys()[0])
	if err == nil {
		row.Sealed, err = s.seal(bound, plain)
	}
	if err != nil {
		return nil, false, err
	}
	out, err = json.Marshal(row)
	return out, true, err
}

// unseal opens what travelled, with the first key that fits: at is its place.
func (c *Catalog) unseal(bound string, sealed []byte) (plain string, at int, err error) {
	err = fault.New(fault.Precondition, codeNoSharedKey,
		"members share no key, so a secret of another gateway cannot be opened")
	for i, k := range c.sharing.Keys() {
		var s sealer
		if s, err = sealerBetweenGateways(k); err != nil {
			return "", 0, err
		}
		if plain, err = s.open(bound, sealed); err == nil {
			return plain, i, nil
		}
	}
	return "", 0, err
}

// outbound makes a secret's row one that the other gateways can open.
func (c *Catalog) outbound(r fsm.Record) ([]byte, error) {
	row, bound, err := c.secretOf(r.Key, r.Value)
	if err != nil {
		return nil, err
	}
	plain, err := c.sealer.open(bound, row.Sealed)
	if err != nil {
		return nil, err
	}
	keys := c.sharing.Keys()
	if len(keys) == 0 {
		return nil, fault.New(fault.Precondition, codeNoSharedKey,
			"members share no key, so secrets stay where they are")
	}
	s, err := sealerBetweenGateways(keys[0])
	if err == nil {
		row.Sealed, err = s.seal(bound, plain)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(row)
}

// inbound makes a row that travelled one of this catalog's own.
func (c *Catalog) inbound(key string, value []byte) ([]byte, error) {
	row, bound, err := c.secretOf(key, value)
	if err != nil {
		return nil, err
	}
	plain, _, err := c.unseal(bound, row.Sealed)
	if err != nil {
		return nil, err
	}
	row.Digest = c.sealer.digest(bound, plain)
	if row.Sealed, err = c.sealer.seal(bound, plain); err != nil {
		return nil, err
	}
	return json.Marshal(row)
}

// secretOf reads a secret's row, and returns what its value is bound to.
func (c *Catalog) secretOf(key string, value []byte) (row secretRow, bound string, err error) {
	app, of, _ := strings.Cut(key, "/")
	name, at, old := strings.Cut(of, "/")
	if !validSecretName(name) || old && (at == "" || strings.Trim(at, "0123456789") != "") {
		return row, "", fault.New(fault.Invalid, codeSecretName, "%q is the name of no secret", fault.Clip(key, 80))
	}
	a, known := c.apps.all[app]
	if !known {
		return row, "", fault.New(fault.NotFound, fault.CodeApp,
			"the secret %s is of an app that is not known here (yet)", fault.Clip(key, 80))
	}
	if err := json.Unmarshal(value, &row); err != nil {
		return row, "", fault.Wrap(err, fault.Invalid, fault.CodeSecret,
			"the secret %s cannot be read", fault.Clip(key, 80))
	}
	return row, a.ID + "/" + name, nil
}
