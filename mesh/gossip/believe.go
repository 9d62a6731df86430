package gossip

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
)

// refusals counts messages and records that failed verification, and caches the heads verified in the last minute: each
// update of a worker carries a head, and heads rarely change.
type refusals struct {
	mu     sync.Mutex
	counts map[string]int64
	heads  map[[sha256.Size]byte]time.Time
}

const (
	maxHeads  = 4096
	headsLast = time.Minute
	maxCodes  = 32 // different codes counted; further ones are counted as "other"
)

func (r *refusals) countRefusal(err error) {
	if err == nil {
		return
	}
	code := string(fault.CodeOf(err))
	if f, ok := errors.AsType[*fault.Error](errors.Unwrap(err)); ok && code == "bad_signature" {
		code = string(f.Code) // the reason why the signature is bad
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[string]int64{}
	}
	if _, known := r.counts[code]; !known && len(r.counts) >= maxCodes {
		code = "other"
	}
	r.counts[code]++
}

func (r *refusals) all() map[string]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counts)
}

func (r *refusals) isKnown(head [sha256.Size]byte, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, known := r.heads[head]
	return known && now.Sub(at) < headsLast
}

func (r *refusals) rememberHead(head [sha256.Size]byte, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.heads == nil || len(r.heads) >= maxHeads {
		r.heads = map[[sha256.Size]byte]time.Time{}
	}
	r.heads[head] = now
}

// verifyDelta returns the part of a delta that passes verification, and the first refusal; it counts refusals. Call it
// without the lock.
func (c *Cluster) verifyDelta(d registry.Delta) (registry.Delta, error) {
	if c.o.Verify == nil {
		return d, nil
	}
	kept, err := registry.Verified(c.verifyOnce, d)
	c.refusals.countRefusal(err)
	return kept, err
}

// verifyOnce is Options.Verify with a cache: it verifies the same head at most once a minute.
func (c *Cluster) verifyOnce(by cluster.WorkerID, signed, sig []byte) error {
	if !bytes.HasPrefix(signed, []byte(registry.HeadPrefix)) {
		return c.o.Verify(by, signed, sig)
	}
	now, sum := time.Now(), sha256.Sum256(bytes.Join([][]byte{signed, sig}, []byte{0}))
	if c.refusals.isKnown(sum, now) {
		return nil
	}
	err := c.o.Verify(by, signed, sig)
	if err == nil {
		c.refusals.rememberHead(sum, now)
	}
	return err
}
