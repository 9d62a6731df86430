package catalog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fsm"
)

// Bounds of idempotency keys.
const (
	KeyLife      = 24 * time.Hour // how long a key is remembered
	MaxKeys      = 100_000
	MaxKeyLength = 255

	expiredAtOnce = 1000 // keys whose time is over that one claim takes out
)

// keyRow is an idempotency key's promise: whoever asks with it gets this machine, if the request is the same.
type keyRow struct {
	Hash    string    `json:"hash"` // of the request
	Machine string    `json:"machine"`
	At      time.Time `json:"at"`
}

// keys is the table of idempotency keys. Their names are app/key. They are never shared.
type keys struct {
	byApp  map[string]map[string]keyRow // by app, then by app/key
	n      int
	oldest []boundKey          // in the order in which they were bound; some are gone or bound anew
	freed  map[string]struct{} // keys of refused creates, gone here and not yet on disk

	ending sync.Mutex         // guards claims; taken after the catalog's locks
	claims map[string]*keyUse // keys that were bound in this process, while creates with them are under way
}

type boundKey struct {
	name string
	at   time.Time
}

// keyUse counts the creates under way with one key.
type keyUse struct {
	creates int
	kept    bool // one of them did more than to be refused
}

func newKeys() *keys {
	return &keys{byApp: map[string]map[string]keyRow{}, claims: map[string]*keyUse{}, freed: map[string]struct{}{}}
}

func appOfKey(name string) string {
	app, _, _ := strings.Cut(name, "/")
	return app
}

func (t *keys) get(name string) (keyRow, bool) {
	row, there := t.byApp[appOfKey(name)][name]
	return row, there
}

func (t *keys) enter(name string, row keyRow) {
	app := appOfKey(name)
	if t.byApp[app] == nil {
		t.byApp[app] = map[string]keyRow{}
	}
	if _, there := t.byApp[app][name]; !there {
		t.n++
	}
	t.byApp[app][name] = row
	delete(t.freed, name)
	t.oldest = append(t.oldest, boundKey{name, row.At})
	if len(t.oldest) > 2*t.n+expiredAtOnce {
		t.sort()
	}
}

func (t *keys) leave(name string) {
	app := appOfKey(name)
	if _, there := t.byApp[app][name]; !there {
		return
	}
	t.n--
	if delete(t.byApp[app], name); len(t.byApp[app]) == 0 {
		delete(t.byApp, app)
	}
}

// sort makes the order of all keys anew.
func (t *keys) sort() {
	t.oldest = t.oldest[:0]
	for _, of := range t.byApp {
		for name, row := range of {
			t.oldest = append(t.oldest, boundKey{name, row.At})
		}
	}
	slices.SortFunc(t.oldest, func(a, b boundKey) int { return a.at.Compare(b.at) })
}

func (t *keys) put(name string, row keyRow) change {
	return change{fsm.Record{Bucket: bucketKey, Key: name, Value: encode(row)}, func() { t.enter(name, row) }}
}

func (t *keys) load(name string, value []byte) error {
	var row keyRow
	err := json.Unmarshal(value, &row)
	t.enter(name, row)
	return err
}

func (t *keys) accept(name string, _ []byte) (x change, same bool, err error) {
	return x, false, fault.New(fault.Invalid, "catalog", "gateways share no rows of %s", bucketKey)
}

func (t *keys) remove(name string) (change, bool) {
	_, there := t.get(name)
	return change{fsm.Record{Bucket: bucketKey, Key: name}, func() { t.leave(name); delete(t.freed, name) }}, there
}

// removeApp returns the changes that take out the keys of an app.
func (t *keys) removeApp(app string) (out []change) {
	for name := range t.byApp[app] {
		x, _ := t.remove(name)
		out = append(out, x)
	}
	return out
}

// expired returns the changes that take out the oldest keys whose time is over, and those of refused creates, and how
// many of them still count. Its cost is that of what it returns.
func (t *keys) expired(now time.Time) (out []change, counted int) {
	for name := range t.freed {
		if len(out) == expiredAtOnce {
			break
		}
		x, _ := t.remove(name)
		out = append(out, x)
	}
	for len(t.oldest) > 0 && counted < expiredAtOnce && now.Sub(t.oldest[0].at) >= KeyLife {
		k := t.oldest[0]
		t.oldest = t.oldest[1:]
		if row, there := t.get(k.name); there && row.At.Equal(k.at) {
			x, _ := t.remove(k.name)
			out, counted = append(out, x), counted+1
		}
	}
	return out, counted
}

// Claim is the use of an idempotency key by one create. End must be called when the create is answered.
type Claim struct {
	Machine string // the id that the key is bound to

	c    *Catalog
	name string // of the key; "" where it was bound before
}

// Claim binds a key of an app to a machine id, durably, before anything is granted: a gateway that dies between the
// grant and the answer gives the same id to the request's repetition, and a worker makes a machine of one id once.
// A key that is known gives the id it was bound to, and a Conflict when the request is another.
func (c *Catalog) Claim(app, key, hash, machineID string) (*Claim, error) {
	if len(key) > MaxKeyLength {
		return nil, fault.New(fault.Invalid, "key_length",
			"an Idempotency-Key has at most %d bytes, not %d", MaxKeyLength, len(key))
	}
	now, name, t := time.Now().UTC(), app+"/"+key, c.keys
	c.write.Lock()
	defer c.write.Unlock()
	if k, there := t.get(name); there && now.Sub(k.At) < KeyLife {
		if k.Hash != hash {
			return nil, fault.New(fault.Conflict, "idempotency_key",
				"this Idempotency-Key was used for another request; use a new key for a new machine")
		}
		return t.join(c, name, k.Machine), nil
	}
	batch, counted := t.expired(now)
	if t.n-counted >= MaxKeys {
		return nil, &fault.Error{Kind: fault.Exhausted, Code: "too_many_keys", RetryAfter: time.Minute,
			Text: fmt.Sprintf(
				"%d idempotency keys were used within %v, the most that are remembered; ask with an id of your own "+
					"instead",
				t.n, KeyLife)}
	}
	row := keyRow{Hash: hash, Machine: machineID, At: now}
	if err := c.commit(append(batch, t.put(name, row))...); err != nil {
		return nil, err
	}
	return t.begin(c, name, machineID), nil
}

// begin counts one more create of a key that was bound just now.
func (t *keys) begin(c *Catalog, name, machine string) *Claim {
	t.ending.Lock()
	defer t.ending.Unlock()
	if t.claims[name] == nil {
		t.claims[name] = &keyUse{}
	}
	t.claims[name].creates++
	return &Claim{machine, c, name}
}

// join counts one more create of a key that is bound. The caller holds the catalog's write.
func (t *keys) join(c *Catalog, name, machine string) *Claim {
	t.ending.Lock()
	defer t.ending.Unlock()
	use := t.claims[name]
	if use == nil {
		return &Claim{Machine: machine}
	}
	use.creates++
	return &Claim{machine, c, name}
}

// end counts one create less, and reports whether the key has no more, and all of them were refused.
func (t *keys) end(name string, refused bool) (unused bool) {
	t.ending.Lock()
	defer t.ending.Unlock()
	use := t.claims[name]
	use.kept = use.kept || !refused
	if use.creates--; use.creates > 0 {
		return false
	}
	delete(t.claims, name)
	return !use.kept
}

// End says that the create is over. A key whose creates were all refused is unbound again: it does not count towards
// MaxKeys, and its next create is a new one. That is not worth a commit of its own, so it is on disk with the next
// claim.
func (k *Claim) End(refused bool) {
	switch {
	case k == nil || k.name == "":
		return
	case !refused:
		k.c.keys.end(k.name, false) // waits for no commit
		return
	}
	c, t := k.c, k.c.keys
	c.write.Lock()
	defer c.write.Unlock()
	if !t.end(k.name, true) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t.leave(k.name)
	t.freed[k.name] = struct{}{}
}

// BoundKey returns the machine that a key of an app is bound to here; "" where it is not.
func (c *Catalog) BoundKey(app, key string) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if row, there := c.keys.get(app + "/" + key); there && time.Since(row.At) < KeyLife {
		return row.Machine
	}
	return ""
}

// BoundKeys calls f with every key that is bound here, in no order, until f returns false. f must not call the catalog.
func (c *Catalog) BoundKeys(f func(app, key, machine string) bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for app, of := range c.keys.byApp {
		for name, row := range of {
			if time.Since(row.At) < KeyLife && !f(app, strings.TrimPrefix(name, app+"/"), row.Machine) {
				return
			}
		}
	}
}
