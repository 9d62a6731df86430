package catalog

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Bounds of idempotency keys. An ID chosen by a client counts as a key.
const (
	KeyLife          = 24 * time.Hour // how long a key is remembered
	MaxKeys          = 1_000_000
	MaxNamespaceKeys = MaxKeys / 2 // of one namespace, so that it leaves room for others
	MaxKeyLength     = 255

	keysAtOnce = 1000 // other keys that one claim removes or writes
)

// keyTable is the table of idempotency keys. On disk their names are app/key. They are never shared. The outcome of a
// create is recorded here at once, and on disk with the next claim or Tend: see pending.
type keyTable struct {
	mu     sync.Mutex                    // guards all fields; locked after the catalog's locks
	byApp  map[string]map[string]*keyRow // keys bound since the start
	all    keyQueue
	spaces map[string]*keyQueue // by namespace
	dirty  map[string]struct{}  // names of rows that differ on disk
	claims map[string]*keyUse   // by name, for creates in progress
	loaded map[string]*keyList  // by app, loaded from the journal
}

// Keys stores the idempotency keys.
type Keys struct {
	*engine
	table *keyTable
	apps  *Apps
}

func newKeys(e *engine) *Keys {
	c := &Keys{engine: e, table: newKeyTable()}
	e.add(bucketKey, bucket{table: c.table, private: true, ofApp: c.table.removeApp})
	return c
}

// keyUse counts the creates in progress with one key.
type keyUse struct {
	creates int
	first   bool // the first of them bound the key, in this process
	kept    bool // one of them was not simply refused
}

func newKeyTable() *keyTable {
	return &keyTable{byApp: map[string]map[string]*keyRow{}, loaded: map[string]*keyList{},
		spaces: map[string]*keyQueue{},
		dirty:  map[string]struct{}{}, claims: map[string]*keyUse{}}
}

func nameOfKey(app, key string) string { return app + "/" + key }

func (t *keyTable) get(name string) *keyRow {
	app, key, _ := strings.Cut(name, "/")
	if r := t.byApp[app][key]; r != nil {
		return r
	}
	return t.loaded[app].get(key)
}

// enter adds a row as the newest of its namespace.
func (t *keyTable) enter(r *keyRow, space string) {
	t.leave(t.get(nameOfKey(r.app, r.key)))
	if t.byApp[r.app] == nil {
		t.byApp[r.app] = map[string]*keyRow{}
	}
	t.byApp[r.app][r.key] = r
	r.space = t.queueOf(space)
	t.all.push(r)
	r.space.push(r)
}

// queueOf returns the rows of a namespace.
func (t *keyTable) queueOf(space string) *keyQueue {
	space = cmp.Or(space, quota.Default)
	if t.spaces[space] == nil {
		t.spaces[space] = &keyQueue{}
	}
	return t.spaces[space]
}

func (t *keyTable) leave(r *keyRow) {
	if r == nil {
		return
	}
	r.left = true
	t.all.lose()
	r.space.lose()
	if of := t.loaded[r.app]; r.loaded {
		if of.here--; of.here == 0 {
			delete(t.loaded, r.app)
		}
		return
	}
	if delete(t.byApp[r.app], r.key); len(t.byApp[r.app]) == 0 {
		delete(t.byApp, r.app)
	}
}

// load adds a row of the journal, which yields them by name.
func (t *keyTable) load(name string, value []byte) error {
	app, key, _ := strings.Cut(name, "/")
	of := t.loaded[app]
	if of == nil {
		of = &keyList{app: app}
		t.loaded[app] = of
	}
	r, err := of.add(key)
	if err != nil {
		return err
	}
	return r.decode(value)
}

// sort builds the queues of the loaded rows, in the order in which they were bound.
func (t *keyTable) sort(spaceOf func(app string) string) {
	n := 0
	for _, of := range t.loaded {
		n += of.n
	}
	all := make([]*keyRow, 0, n)
	order := make([]uint64, 0, n) // binding time and index of each row
	for _, of := range t.loaded {
		space := t.queueOf(spaceOf(of.app))
		for i := range of.n {
			r := of.at(i)
			r.space = space
			order = append(order, uint64(r.at)<<32|uint64(len(all)))
			all = append(all, r)
		}
	}
	slices.Sort(order)
	t.all.rows = make([]*keyRow, 0, n)
	for _, o := range order {
		r := all[uint32(o)]
		t.all.push(r)
		r.space.push(r)
	}
}

func (t *keyTable) accept(string, []byte) (x change, same bool, err error) {
	return x, false, fault.New(fault.Invalid, fault.CodeCatalog, "members do not share rows of %s", bucketKey)
}

func (t *keyTable) has(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.get(name) != nil
}

func (t *keyTable) remove(name string) change {
	return change{fsm.Record{Bucket: bucketKey, Key: name}, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.leave(t.get(name))
		delete(t.dirty, name)
	}}
}

// removeApp returns the changes that remove the keys of an app.
func (t *keyTable) removeApp(app string) (out []change) {
	t.mu.Lock()
	var names []string
	for key := range t.byApp[app] {
		names = append(names, nameOfKey(app, key))
	}
	t.loaded[app].each(func(r *keyRow) { names = append(names, nameOfKey(app, r.key)) })
	t.mu.Unlock()
	for _, name := range names {
		out = append(out, t.remove(name))
	}
	return out
}

// expire removes the oldest keys whose time is over. Its cost is proportional to the number removed.
func (t *keyTable) expire(now time.Time) {
	for range keysAtOnce {
		r := t.all.oldest()
		if r == nil || now.Sub(r.bound()) < KeyLife {
			return
		}
		t.forget(r)
	}
}

// forget removes a row, in memory at once and on disk later.
func (t *keyTable) forget(r *keyRow) {
	if r != nil {
		t.leave(r)
		t.dirty[nameOfKey(r.app, r.key)] = struct{}{}
	}
}

// pending returns some of the changes that are not on disk yet. The caller holds the catalog's write, and commits
// them.
func (t *keyTable) pending() (out []change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name := range t.dirty {
		if len(out) == keysAtOnce {
			break
		}
		x := change{fsm.Record{Bucket: bucketKey, Key: name}, func() {}}
		if r := t.get(name); r != nil {
			x.record.Value = r.encode()
		}
		delete(t.dirty, name)
		out = append(out, x)
	}
	return out
}

// bounded refuses one more key of a namespace at the limit, and says when there is room.
func (t *keyTable) bounded(now time.Time, space string) error {
	space = cmp.Or(space, quota.Default)
	switch of := t.spaces[space]; {
	case of != nil && of.n >= MaxNamespaceKeys:
		wait := of.oldest().bound().Add(KeyLife).Sub(now)
		return &fault.Error{Kind: fault.Exhausted, Code: fault.CodeTooManyKeys, RetryAfter: wait,
			Text: fmt.Sprintf("namespace %s has used %d idempotency keys and ids of its own within %v, the most that "+
				"are remembered of one; ask without, or again in %v", space, of.n, KeyLife, wait.Round(time.Second))}
	case t.all.n >= MaxKeys:
		wait := t.all.oldest().bound().Add(KeyLife).Sub(now)
		return &fault.Error{Kind: fault.Exhausted, Code: fault.CodeTooManyKeys, RetryAfter: wait,
			Text: fmt.Sprintf("%d idempotency keys and ids of clients' own were used within %v, the most that are "+
				"remembered; ask without, or again in %v", t.all.n, KeyLife, wait.Round(time.Second))}
	}
	return nil
}

// Claim is the use of an idempotency key by one create. Call End when the create is answered.
type Claim struct {
	Machine string    // the ID that the key is bound to
	Made    bool      // its machine was made, even if it has ended
	Bound   time.Time // when the key was bound; zero: by this claim
	Other   bool      // the key is a client's own ID, already used for another request

	keys       *Keys
	name, hash string
}

// Claim binds a key of an app to a machine id, durably, before anything is granted: if the gateway dies between the
// grant and the answer, the repeated request gets the same ID, and a worker makes a machine with one ID only once. A
// known key returns the ID it is bound to, or a Conflict if the request differs.
//
// A client's own ID (cluster.OwnID) needs no binding beforehand, as a repeated request has the same ID: it is
// remembered once its machine is made.
func (c *Keys) Claim(app, key, hash, machineID string) (*Claim, error) {
	if len(key) > MaxKeyLength {
		return nil, fault.New(fault.Invalid, codeKeyLength,
			"an Idempotency-Key has at most %d bytes, not %d", MaxKeyLength, len(key))
	}
	if !machine.ValidID(machineID) {
		return nil, fault.New(fault.Invalid, fault.CodeID, "a key is bound to a machine's id, not to %q",
			fault.Clip(machineID, 40))
	}
	k := &Claim{Machine: machineID, keys: c, name: nameOfKey(app, key), hash: hash}
	now, t := time.Now().UTC(), c.table
	c.write.Lock()
	defer c.write.Unlock()
	known, err := t.known(now, k, c.apps.rows.all[app].Namespace)
	if known || err != nil {
		return k, err
	}
	if !cluster.IsOwnID(key) {
		r := newKeyRow(app, key, k, now)
		put := change{fsm.Record{Bucket: bucketKey, Key: k.name, Value: r.encode()}, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			delete(t.dirty, k.name)
			t.enter(r, c.apps.rows.all[app].Namespace)
		}}
		if err := c.commit(append(t.pending(), put)...); err != nil {
			return nil, err
		}
	}
	t.begin(k.name, true)
	return k, nil
}

// known looks a key up, and if it is bound, counts one more create for it. It fails if the key belongs to another
// request, or is unknown and there is no room.
func (t *keyTable) known(now time.Time, k *Claim, space string) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.get(k.name)
	if r == nil || now.Sub(r.bound()) >= KeyLife {
		t.forget(r)
		t.expire(now)
		return false, t.bounded(now, space)
	}
	k.Other = r.hash != shortHash(k.hash)
	if k.Other && !cluster.IsOwnID(r.key) {
		return true, OtherRequest()
	}
	k.Machine, k.Made, k.Bound = r.id(), r.made, r.bound()
	t.count(k.name, false)
	return true, nil
}

// OtherRequest returns the error for a key that was used for another request.
func OtherRequest() error {
	return fault.New(fault.Conflict, fault.CodeIdempotencyKey,
		"this Idempotency-Key was used for another request; use a new key for a new machine")
}

// begin counts one more create for a key.
func (t *keyTable) begin(name string, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count(name, first)
}

func (t *keyTable) count(name string, first bool) {
	if t.claims[name] == nil {
		t.claims[name] = &keyUse{first: first}
	}
	t.claims[name].creates++
}

// End records that the create has ended, and its outcome. If all creates of a key certainly made nothing, the key is
// unbound: it does not count towards MaxKeys, and its next create is a new one. A key whose machine was made never
// makes another, wherever that machine is. Neither outcome is worth a commit of its own: see Tend.
func (k *Claim) End(came cluster.Creation) {
	if k == nil || k.keys == nil {
		return
	}
	t := k.keys.table
	k.keys.mu.RLock()
	app, key, _ := strings.Cut(k.name, "/")
	space := k.keys.apps.rows.all[app].Namespace
	k.keys.mu.RUnlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	use := t.claims[k.name]
	use.kept = use.kept || came != cluster.NotMade
	if use.creates--; use.creates == 0 {
		delete(t.claims, k.name)
	}
	r := t.get(k.name)
	switch {
	case came == cluster.IsMade && r == nil && cluster.IsOwnID(key):
		r = newKeyRow(app, key, k, time.Now())
		r.made = true
		t.enter(r, space)
	case came == cluster.IsMade && r != nil && !r.made:
		r.made = true
	case r != nil && use.creates == 0 && use.first && !use.kept && !r.made:
		t.leave(r)
	default:
		return
	}
	t.dirty[k.name] = struct{}{}
}

// Tend writes the outcomes of keys every second, and removes expired keys, until ctx ends. Close writes the rest.
func (c *Keys) Tend(ctx context.Context) {
	each := time.NewTicker(time.Second)
	defer each.Stop()
	for {
		select {
		case <-each.C:
			c.settleKeys(time.Now())
		case <-ctx.Done():
			return
		}
	}
}

// settleKeys writes the pending changes of keys. Failed reports an error of the disk.
func (c *Keys) settleKeys(now time.Time) {
	c.write.Lock()
	defer c.write.Unlock()
	for range MaxKeys / keysAtOnce {
		c.table.mu.Lock()
		c.table.expire(now)
		c.table.mu.Unlock()
		batch := c.table.pending()
		if len(batch) == 0 || c.keep(batch...) != nil {
			return
		}
	}
}

// BoundKey returns the machine that a key of an app is bound to here; "" if it is not bound.
func (c *Keys) BoundKey(app, key string) string {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	if r := c.table.get(nameOfKey(app, key)); r != nil && time.Since(r.bound()) < KeyLife {
		return r.id()
	}
	return ""
}

// BoundKeys calls f with every key that is bound here, in any order, until f returns false. f must not call the
// catalog.
func (c *Keys) BoundKeys(f func(app, key, machine string) bool) {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	for _, r := range c.table.all.rows {
		if !r.left && time.Since(r.bound()) < KeyLife && !cluster.IsOwnID(r.key) && !f(r.app, r.key, r.id()) {
			return
		}
	}
}

// shortHash returns the stored part of a request's hash: enough to distinguish two requests with one key.
func shortHash(hash string) uint64 {
	sum := sha256.Sum256([]byte(hash))
	return binary.BigEndian.Uint64(sum[:8])
}
