package catalog

import (
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
)

// Sharing connects the catalogs of several gateways: it publishes rows written here, and imports others' rows. The
// newest write of a row wins, for whole rows (see package registry). Idempotency keys stay with the gateway that bound
// them: a client repeats a create at the same gateway.
type Sharing struct {
	// Put shares a row; a nil value is its removal.
	Put func(bucket, key string, value []byte) error
	// May refuses about more new rows of a bucket if the others have no room for them. nil: they have.
	May func(bucket string, more int) error
	// Keys returns the keys shared by members only, the current one first: shared secrets are sealed with it.
	Keys func() [][]byte
	// Failed is called with a row that could not be shared. It is shared again at the next start.
	Failed func(bucket, key string, err error)
}

// SharedBuckets lists the buckets of the catalog that are shared, in an order in which rows come after those they
// depend on. A secret comes after the head that wants its newest value, so that no earlier value is kept needlessly.
func SharedBuckets() []string {
	return []string{bucketApp, bucketOldSecret, bucketPolicy, bucketSetting, bucketNamespace, bucketPrice,
		bucketScheduler, bucketRelease, bucketHead, bucketSteward, bucketFork, bucketSecret}
}

// Share begins to share, with all present rows.
func (c *Catalog) Share(s Sharing) error {
	c.write.Lock()
	defer c.write.Unlock()
	c.sharing = &s
	return c.journal.Load(func(r fsm.Record) error {
		c.tell(r)
		return nil
	})
}

// tellAll shares rows that are in the journal. The caller holds write.
func (e *engine) tellAll(changes []change) {
	for _, x := range changes {
		e.tell(x.record)
	}
}

// tell shares one row that is in the journal. The caller holds write.
func (e *engine) tell(r fsm.Record) {
	b := e.buckets[r.Bucket]
	if e.sharing == nil || b.private {
		return
	}
	value := r.Value
	var err error
	if b.outbound != nil && value != nil {
		value, err = b.outbound(r.Key, value)
	}
	if err == nil {
		err = e.sharing.Put(r.Bucket, r.Key, value)
	}
	if err != nil {
		e.sharing.Failed(r.Bucket, r.Key, err)
	}
}

// Import takes one row that another gateway wrote; a nil value is its removal. It commits the row unless it is here
// already; the removal of an app removes its dependent rows. An error of kind NotFound or Precondition means that the
// row cannot be used yet (a secret of an unknown app), any other that it never can be.
//
// newest returns the newest shared row, and whether there is one. It is called with write held: a row read earlier may
// have been deleted here since, and would come back.
func (c *Catalog) Import(bucket, key string, newest func() (value []byte, there bool)) error {
	c.write.Lock()
	defer c.write.Unlock()
	keep, tell, err := c.imported(bucket, key, newest)
	if err == nil && len(keep) > 0 {
		err = c.keep(keep...)
	}
	if err == nil {
		c.tellAll(tell)
	}
	return err
}

// ImportMany calls do with a function that imports a row like Import, and makes all its imports durable together when
// do returns. Rows are readable here before that: their writer has them on disk, and this member has them outside its
// catalog, too.
func (c *Catalog) ImportMany(do func(one Importing)) error {
	c.write.Lock()
	defer c.write.Unlock()
	var batch []fsm.Record
	do(func(bucket, key string, newest func() (value []byte, there bool)) error {
		keep, tell, err := c.imported(bucket, key, newest)
		if err == nil && len(keep) > 0 {
			err = c.broken
		}
		if err != nil {
			return err
		}
		batch = append(batch, recordsOf(keep)...)
		c.enter(keep)
		c.tellAll(tell)
		return nil
	})
	return c.makeDurable(batch)
}

// Importing is a function like Import.
type Importing func(bucket, key string, newest func() (value []byte, there bool)) error

// imported returns the changes that import a row as Import does, and those that are then shared with all members. The
// caller holds write.
func (e *engine) imported(bucket, key string,
	newest func() (value []byte, there bool)) (keep, tell []change, err error) {
	b := e.buckets[bucket]
	if b == nil || b.private {
		return nil, nil, fault.New(fault.Invalid, fault.CodeCatalog, "members do not share rows of %s",
			fault.Clip(bucket, 40))
	}
	value, there := newest()
	if !there {
		return nil, nil, nil
	}
	if b.heard != nil {
		b.heard(key)
	}
	if value == nil {
		keep, tell = b.importRemoval(key)
		return keep, tell, nil
	}
	if b.inbound != nil {
		if value, err = b.inbound(key, value); err != nil {
			return nil, nil, err
		}
	}
	if b.refuse != nil {
		if err := b.refuse(key); err != nil {
			return nil, nil, err
		}
	}
	x, same, err := b.accept(key, value)
	if err != nil || same {
		return nil, nil, err
	}
	if b.beside != nil {
		tell = b.beside(key, value)
	}
	return append(tell[:len(tell):len(tell)], x), tell, nil
}

// importRemoval returns the changes for a row that another member removed, and those that are then shared with all.
func (b *bucket) importRemoval(key string) (keep, tell []change) {
	if !b.has(key) {
		return nil, nil
	}
	if b.stays != nil {
		if tell, stays := b.stays(key); stays {
			return nil, tell
		}
	}
	if b.beside != nil {
		tell = b.beside(key, nil)
	}
	keep = append(tell[:len(tell):len(tell)], b.remove(key))
	if b.removed != nil {
		keep = append(keep, b.removed(key)...)
	}
	return keep, tell
}
