package catalog

import (
	"github.com/soukhq/souk/core/fsm"
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
	keep, tell, err := c.imported(bucket, key, newest)
	if err == nil && len(keep) > 0 {
		err = c.keep(keep...)
	}
	if err == nil {
		c.tellAll(tell)
	}
	return err
}

// ImportMany calls do with what imports a row as Import does, and makes all that it imports durable together, when do
// returns. A row can be read here before that: who wrote it has it on disk, and so has this member beside its catalog.
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

// Importing is what Import does.
type Importing func(bucket, key string, newest func() (value []byte, there bool)) error

// imported returns the changes by which a row is imported as Import says, and those that all members are told of then. The
// caller holds write.
func (e *engine) imported(bucket, key string,
	newest func() (value []byte, there bool)) (keep, tell []change, err error) {
	b := e.buckets[bucket]
	if b == nil || b.private {
		return nil, nil, fault.New(fault.Invalid, fault.CodeCatalog, "gateways share no rows of %s",
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

// importRemoval returns the changes by which a row goes that another member removed, and those that all are told of then.
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
