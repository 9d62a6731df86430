package gateway

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fsm"
)

// Sharing makes the catalogs of several gateways one: what is written here is put where all find it, and what others
// wrote is imported. The newest writer of a row wins, whole rows only (see package registry). Idempotency keys stay with
// the gateway that bound them: a client that repeats a create goes to the gateway that it asked first.
type Sharing struct {
	// Put tells the others a row; a nil value is that it is gone.
	Put func(bucket, key string, value []byte) error
	// Keys gives what members share and nobody else knows, the one in use first: secrets travel sealed with it.
	Keys func() [][]byte
	// Failed is told what could not be shared. It is shared anew at the next start.
	Failed func(bucket, key string, err error)
}

// SharedBuckets lists the buckets of the catalog that are shared.
func SharedBuckets() []string {
	return []string{bucketApp, bucketSecret, bucketPolicy, bucketSetting, bucketNamespace, bucketPrice}
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
	if r.Bucket == bucketSecret && value != nil {
		value, err = c.outbound(r)
	}
	if err == nil {
		err = c.sharing.Put(r.Bucket, r.Key, value)
	}
	if err != nil {
		c.sharing.Failed(r.Bucket, r.Key, err)
	}
}

// Import takes a row that another gateway wrote; a nil value is that it is gone. A row that is here already changes
// nothing. An error says that it cannot be used yet (a secret of an app that is not known), or at all.
func (c *Catalog) Import(bucket, key string, value []byte) error {
	if !slices.Contains(SharedBuckets(), bucket) {
		return fault.New(fault.Invalid, "catalog", "gateways share no rows of %s", clip(bucket, 40))
	}
	c.write.Lock()
	defer c.write.Unlock()
	r := fsm.Record{Bucket: bucket, Key: key, Value: value}
	if bucket == bucketSecret && value != nil {
		inbound, same, err := c.inbound(key, value)
		if err != nil || same {
			return err
		}
		r.Value = inbound
	} else if c.has(r) {
		return nil
	}
	// load refuses what it cannot read, before anything is written.
	trial := &Catalog{apps: map[string]appRow{}, secrets: map[string]map[string]secretRow{}, keys: map[string]keyRow{}, policies: newPolicies()}
	if value != nil {
		if err := trial.load(r); err != nil {
			return err
		}
	}
	var failed error
	err := c.commitOwn(func() { failed = c.apply(r) }, r)
	if err == nil {
		err = failed
	}
	return err
}

// has says whether a row is here as it stands.
func (c *Catalog) has(r fsm.Record) bool {
	if r.Bucket == bucketNamespace || r.Bucket == bucketPrice {
		old, there := c.quotas.row(r.Bucket, r.Key)
		return there == (r.Value != nil) && (!there || bytes.Equal(old.Value, r.Value))
	}
	if r.Value == nil {
		switch r.Bucket {
		case bucketApp:
			_, there := c.apps[r.Key]
			return !there
		case bucketSecret:
			app, name, _ := strings.Cut(r.Key, "/")
			_, there := c.secrets[app][name]
			return !there
		}
		return false
	}
	switch r.Bucket {
	case bucketApp:
		a, there := c.apps[r.Key]
		return there && bytes.Equal(record(bucketApp, r.Key, a).Value, r.Value)
	case bucketPolicy:
		name, _, _ := strings.Cut(r.Key, "/")
		for _, v := range c.policies.shelf.Versions(name) {
			if policyKey(v) == r.Key {
				return bytes.Equal(record(bucketPolicy, r.Key, v).Value, r.Value)
			}
		}
		return false
	}
	return bytes.Equal(record(bucketSetting, r.Key, c.policies.choice).Value, r.Value)
}

// apply changes the maps as a row says. The caller holds write and mu.
func (c *Catalog) apply(r fsm.Record) error {
	if r.Value != nil {
		err := c.load(r)
		if err == nil && r.Bucket == bucketPolicy {
			c.compilePolicies()
		}
		return err
	}
	switch r.Bucket {
	case bucketNamespace, bucketPrice:
		c.quotas.drop(r)
	case bucketApp:
		delete(c.apps, r.Key)
		delete(c.secrets, r.Key)
	case bucketSecret:
		app, name, _ := strings.Cut(r.Key, "/")
		delete(c.secrets[app], name)
	case bucketPolicy:
		name, _, _ := strings.Cut(r.Key, "/")
		c.policies.shelf.Drop(name)
		delete(c.policies.live, name)
		c.compilePolicies()
	}
	return nil
}

// travelling gives the sealer of rows on their way between gateways.
func travelling(shared []byte) (s sealer, err error) {
	key, err := hkdf.Key(sha256.New, shared, nil, "souk secrets between gateways, 1", len(s.key))
	if err != nil {
		return s, fault.Wrap(err, fault.Internal, "seal", "the key for secrets on their way could not be made")
	}
	copy(s.key[:], key)
	return s, nil
}

// outbound makes a secret's row one that the other gateways can open.
func (c *Catalog) outbound(r fsm.Record) ([]byte, error) {
	row, bound, err := c.secretOf(r.Key, r.Value)
	if err != nil {
		return nil, err
	}
	plain, err := c.seal.open(bound, row.Sealed)
	if err != nil {
		return nil, err
	}
	keys := c.sharing.Keys()
	if len(keys) == 0 {
		return nil, fault.New(fault.Precondition, "no_shared_key", "members share no key, so secrets stay where they are")
	}
	s, err := travelling(keys[0])
	if err == nil {
		row.Sealed, err = s.seal(bound, plain)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(row)
}

// inbound makes a row that travelled one of this catalog's own. same says that the secret is here already.
func (c *Catalog) inbound(key string, value []byte) (out []byte, same bool, err error) {
	row, bound, err := c.secretOf(key, value)
	if err != nil {
		return nil, false, err
	}
	var plain string
	err = fault.New(fault.Precondition, "no_shared_key", "members share no key, so a secret of another gateway cannot be opened")
	for _, k := range c.sharing.Keys() {
		var s sealer
		if s, err = travelling(k); err != nil {
			return nil, false, err
		}
		if plain, err = s.open(bound, row.Sealed); err == nil {
			break
		}
	}
	if err != nil {
		return nil, false, err
	}
	app, name, _ := strings.Cut(key, "/")
	row.Digest = c.seal.digest(bound, plain)
	if old, there := c.secrets[app][name]; there && old.Digest == row.Digest && old.UpdatedAt.Equal(row.UpdatedAt) {
		return nil, true, nil
	}
	if row.Sealed, err = c.seal.seal(bound, plain); err != nil {
		return nil, false, err
	}
	out, err = json.Marshal(row)
	return out, false, err
}

func (c *Catalog) secretOf(key string, value []byte) (row secretRow, bound string, err error) {
	app, name, _ := strings.Cut(key, "/")
	a, known := c.apps[app]
	if !known || !secretName.MatchString(name) {
		return row, "", fault.New(fault.NotFound, "app", "the secret %s is of an app that is not known here (yet)", clip(key, 80))
	}
	if err := json.Unmarshal(value, &row); err != nil {
		return row, "", fault.Wrap(err, fault.Invalid, "secret", "the secret %s cannot be read", clip(key, 80))
	}
	return row, a.ID + "/" + name, nil
}
