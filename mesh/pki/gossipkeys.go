package pki

import (
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/soukhq/souk/fault"
)

// GossipKeys are the keys that a cluster's members encrypt gossip with. They are rotated in three steps, each of them a
// generation: the next key is installed (all members decrypt with it, none encrypts), then used, then the previous key
// is retired. The next step starts only when every reachable member has taken the current one, so any two members
// always have a key in common.
type GossipKeys struct {
	Generation int      // the greater generation wins
	Keys       [][]byte // of 32 bytes; all decrypt, the first one encrypts
	Retired    [][]byte // earlier keys: data at rest may still be sealed with them, gossip is not
	Step       Step     // set only in the file of the CA that rotates them; members do not know it
	// when this CA made the newest key; zero: never, or another copy of the CA made it
	Made time.Time
}

// Step is the progress of a rotation. "" means that none is in progress.
type Step string

// The steps of a rotation.
const (
	StepInstalled Step = "installed" // the next key is in Keys, as the last one
	StepUsed      Step = "used"      // the new key encrypts; the previous ones still decrypt
)

const (
	gossipFile = "gossip.keys"
	maxRetired = 256

	gossipKeySize = 32 // AES-256, the largest that memberlist accepts

	headerGeneration = "Generation"
	headerRetired    = "Retired"
	headerStep       = "Step"
	headerMade       = "Made"
)

// encodePEM encodes the keys; generation, step and time are headers of the first block.
func (k GossipKeys) encodePEM() []byte {
	var out []byte
	for i, key := range slices.Concat(k.Keys, k.Retired) {
		b := &pem.Block{Type: gossipBlock, Bytes: key, Headers: map[string]string{}}
		if i == 0 && k.Generation > 0 {
			b.Headers[headerGeneration] = strconv.Itoa(k.Generation)
		}
		if i == 0 && k.Step != "" {
			b.Headers[headerStep] = string(k.Step)
		}
		if i == 0 && !k.Made.IsZero() {
			b.Headers[headerMade] = k.Made.UTC().Format(time.RFC3339Nano)
		}
		if i >= len(k.Keys) {
			b.Headers[headerRetired] = "yes"
		}
		out = append(out, pem.EncodeToMemory(b)...)
	}
	return out
}

// readBlock adds the key of one PEM block.
func (k *GossipKeys) readBlock(p *pem.Block) (err error) {
	if len(p.Bytes) != gossipKeySize {
		return fmt.Errorf("a key of gossip has %d bytes, not %d", len(p.Bytes), gossipKeySize)
	}
	if g := p.Headers[headerGeneration]; g != "" {
		if k.Generation, err = strconv.Atoi(g); err != nil {
			return err
		}
	}
	if s := p.Headers[headerStep]; s != "" {
		k.Step = Step(s)
	}
	if at := p.Headers[headerMade]; at != "" {
		if k.Made, err = time.Parse(time.RFC3339Nano, at); err != nil {
			return err
		}
	}
	if p.Headers[headerRetired] != "" {
		k.Retired = append(k.Retired, p.Bytes)
	} else {
		k.Keys = append(k.Keys, p.Bytes)
	}
	return nil
}

// All returns every key that data may be sealed with, the one in use first.
func (k GossipKeys) All() [][]byte { return slices.Concat(k.Keys, k.Retired) }

// gossipKeys returns the keys of an issuer's answer.
func (c *Credentials) gossipKeys() GossipKeys {
	return GossipKeys{Generation: c.GossipGeneration, Keys: c.GossipKeys, Retired: c.GossipRetired}
}

// keepNewerKeys replaces an issuer's keys with the member's own if the issuer's are older: a copy of the CA may have
// missed a rotation.
func (i *Identity) keepNewerKeys(c *Credentials) {
	if k := i.GossipKeys(); k.Generation > c.GossipGeneration {
		c.GossipKeys, c.GossipGeneration, c.GossipRetired = k.Keys, k.Generation, k.Retired
	}
}

// Gossip returns the CA's gossip keys, and the progress of a rotation.
func (c *CA) Gossip() (k GossipKeys, err error) {
	raw, err := readKeys(c.path(gossipFile))
	if err != nil {
		return k, fault.As(err)
	}
	b, err := parseBlocks(raw, gossipFile)
	return b.gossip, err
}

// RotateGossip makes the next key and installs it: the first step of a rotation. Conflict if one is in progress.
func (c *CA) RotateGossip(now time.Time) (GossipKeys, error) {
	unlock, err := c.lockGossip()
	if err != nil {
		return GossipKeys{}, err
	}
	defer unlock()
	k, err := c.Gossip()
	switch {
	case err != nil:
		return k, err
	case k.Step != "":
		return k, fault.New(fault.Conflict, fault.CodeRotation,
			"the key of gossip is being rotated already; the next one is %s", k.Step)
	case len(k.Retired) >= maxRetired:
		return k, fault.New(fault.Conflict, fault.CodeRotation,
			"the key of gossip was rotated %d times; make a new CA, and let every member join anew", len(k.Retired))
	}
	key := make([]byte, gossipKeySize)
	rand.Read(key)
	k.Keys = append(k.Keys, key)
	k.Generation++
	k.Step, k.Made = StepInstalled, now
	return k, writeKeys(c.path(gossipFile), k.encodePEM())
}

// AdvanceGossip takes the next step of the rotation in progress. The caller must know that every member has taken the
// current step. of is the generation that the caller saw; Conflict if the rotation has advanced since.
func (c *CA) AdvanceGossip(of int) (GossipKeys, error) {
	unlock, err := c.lockGossip()
	if err != nil {
		return GossipKeys{}, err
	}
	defer unlock()
	k, err := c.Gossip()
	if err != nil {
		return k, err
	}
	if k.Generation != of {
		return k, fault.New(fault.Conflict, fault.CodeRotation,
			"the keys of gossip are of generation %d, not %d any more",
			k.Generation, of)
	}
	switch k.Step {
	case StepInstalled:
		last := len(k.Keys) - 1
		k.Keys = slices.Insert(k.Keys[:last:last], 0, k.Keys[last])
		k.Step = StepUsed
	case StepUsed:
		k.Retired = append(k.Keys[1:len(k.Keys):len(k.Keys)], k.Retired...)
		k.Keys, k.Step = k.Keys[:1], ""
	default:
		return k, fault.New(fault.Precondition, fault.CodeRotation, "no rotation of the keys of gossip is under way")
	}
	k.Generation++
	return k, writeKeys(c.path(gossipFile), k.encodePEM())
}

// AdoptGossip stores keys that are newer than the CA's own, from a rotation by another copy of the CA.
func (c *CA) AdoptGossip(k GossipKeys) error {
	unlock, err := c.lockGossip()
	if err != nil {
		return err
	}
	defer unlock()
	have, err := c.Gossip()
	if err != nil {
		return err
	}
	if have.Generation >= k.Generation {
		return nil
	}
	k.Step, k.Made = "", time.Time{}
	return writeKeys(c.path(gossipFile), k.encodePEM())
}

// lockGossip lets one process at a time change the keys: the command line and an agent use one directory. The kernel
// releases the lock of a process that dies.
func (c *CA) lockGossip() (unlock func(), err error) {
	f, err := os.OpenFile(c.path("gossip.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		return nil, fileFault(err, c.path("gossip.lock"))
	}
	return func() { _ = f.Close() }, nil // closing the file releases the lock
}
