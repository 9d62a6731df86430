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

// GossipKeys are what the members of a cluster encrypt gossip with. They are rotated with overlap, in three steps of
// which each is a generation: the next key is installed (all decrypt with it, nobody encrypts), used, and the one
// before is retired. A step is taken when every member that can be heard has taken the one before, so at no time do two
// members lack a key in common.
type GossipKeys struct {
	Generation int      // greater is newer, and wins
	Keys       [][]byte // of 32 bytes; all decrypt, the first one encrypts
	Retired    [][]byte // of before: secrets at rest may be sealed with them, gossip never is
	Step       Step     // in the file of the CA that rotates them; members do not know it
	// when the newest key was made, as that file has it; zero: by another copy of the CA, or never
	Made time.Time
}

// Step says how far a rotation has come. "" is that there is none.
type Step string

// The steps of a rotation.
const (
	StepInstalled Step = "installed" // the next key is there, last in the row
	StepUsed      Step = "used"      // it encrypts; the ones before still decrypt
)

const (
	gossipFile = "gossip.keys"
	maxRetired = 256

	gossipKeySize = 32 // AES-256, as memberlist takes it

	headerGeneration = "Generation"
	headerRetired    = "Retired"
	headerStep       = "Step"
	headerMade       = "Made"
)

// encodePEM writes the keys; generation and step stand in the first block.
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

// readBlock takes in one block.
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

// All gives every key that anything may be sealed with, the one in use first.
func (k GossipKeys) All() [][]byte { return slices.Concat(k.Keys, k.Retired) }

// gossipKeys gives the keys of an issuer's answer.
func (c *Credentials) gossipKeys() GossipKeys {
	return GossipKeys{Generation: c.GossipGeneration, Keys: c.GossipKeys, Retired: c.GossipRetired}
}

// keepNewerKeys puts the member's own keys in place of an issuer's that are older: a copy of the CA may not have heard
// of a rotation.
func (i *Identity) keepNewerKeys(c *Credentials) {
	if k := i.GossipKeys(); k.Generation > c.GossipGeneration {
		c.GossipKeys, c.GossipGeneration, c.GossipRetired = k.Keys, k.Generation, k.Retired
	}
}

// Gossip gives the CA's keys of gossip, and how far a rotation has come.
func (c *CA) Gossip() (k GossipKeys, err error) {
	raw, err := readKeys(c.path(gossipFile))
	if err != nil {
		return k, fault.As(err)
	}
	b, err := parseBlocks(raw, gossipFile)
	return b.gossip, err
}

// RotateGossip makes the next key and installs it: the first step of a rotation. Conflict while one is under way.
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

// AdvanceGossip takes the next step of a rotation, if one is under way: that every member has taken the step before is
// the caller's to know. of is the generation that the caller saw; Conflict when another has gone on meanwhile.
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

// AdoptGossip takes keys that are newer than the CA's own: another copy of the CA has rotated them.
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
// takes the lock from who dies with it.
func (c *CA) lockGossip() (unlock func(), err error) {
	f, err := os.OpenFile(c.path("gossip.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		return nil, fileFault(err, c.path("gossip.lock"))
	}
	return func() { _ = f.Close() }, nil // which gives the lock back
}
