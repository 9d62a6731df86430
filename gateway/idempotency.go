package gateway

import (
	"fmt"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fsm"
)

// Bounds of idempotency keys.
const (
	KeyLife      = 24 * time.Hour // how long a key is remembered
	MaxKeys      = 100_000
	MaxKeyLength = 255
	sweepEvery   = 10 * time.Minute
)

// keyRow is an idempotency key's promise: whoever asks with it gets this machine, if the request is the same.
type keyRow struct {
	Hash    string    `json:"hash"` // of the request
	Machine string    `json:"machine"`
	At      time.Time `json:"at"`
}

// Claim binds a key of an app to a machine id, durably, before anything is granted: a gateway that dies between the
// grant and the answer gives the same id to the request's repetition, and a worker makes a machine of one id once.
// A key that is known gives the id it was bound to, and a Conflict when the request is another.
func (c *Catalog) Claim(app, key, hash, machineID string) (string, error) {
	if len(key) > MaxKeyLength {
		return "", fault.New(fault.Invalid, "key_length", "an Idempotency-Key has at most %d bytes, not %d", MaxKeyLength, len(key))
	}
	now := time.Now().UTC()
	c.write.Lock()
	defer c.write.Unlock()
	if k, ok := c.keys[app+"/"+key]; ok && now.Sub(k.At) < KeyLife {
		if k.Hash != hash {
			return "", fault.New(fault.Conflict, "idempotency_key", "this Idempotency-Key was used for another request; use a new key for a new machine")
		}
		return k.Machine, nil
	}
	if now.Sub(c.swept) > sweepEvery || len(c.keys) >= MaxKeys {
		if err := c.sweep(now); err != nil {
			return "", err
		}
	}
	if len(c.keys) >= MaxKeys {
		return "", &fault.Error{Kind: fault.Exhausted, Code: "too_many_keys", RetryAfter: time.Minute,
			Text: fmt.Sprintf("%d idempotency keys were used within %v, the most that are remembered; ask with an id of your own instead", len(c.keys), KeyLife)}
	}
	row := keyRow{Hash: hash, Machine: machineID, At: now}
	err := c.commit(func() { c.keys[app+"/"+key] = row }, record(bucketKey, app+"/"+key, row))
	return machineID, err
}

// sweep forgets keys whose time is over.
func (c *Catalog) sweep(now time.Time) error {
	c.swept = now
	var batch []fsm.Record
	for k, row := range c.keys {
		if now.Sub(row.At) >= KeyLife {
			batch = append(batch, fsm.Record{Bucket: bucketKey, Key: k})
		}
	}
	if len(batch) == 0 {
		return nil
	}
	return c.commit(func() {
		for _, r := range batch {
			delete(c.keys, r.Key)
		}
	}, batch...)
}
