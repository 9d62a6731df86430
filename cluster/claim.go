package cluster

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
)

// The codes of this package's errors.
const (
	CodeClaim fault.Code = "claim" // a claim has a field or a size that is not possible
	codeTerm  fault.Code = "term"  // the text is no steward's term
)

// ClaimKind says what must be unique in an app.
type ClaimKind string

// The kinds.
const (
	ClaimName ClaimKind = "name" // of a machine
	ClaimKey  ClaimKind = "key"  // an Idempotency-Key
	// ClaimSpread is the right to place machines of an app that must be spread: one create at a time counts them.
	ClaimSpread ClaimKind = "spread"
)

// ClaimStep is what a member asks of the one that decides.
type ClaimStep string

// The steps of a claim, and what doctor asks.
const (
	ClaimTake   ClaimStep = "take"   // it is to be the holder's while its create goes on
	ClaimSettle ClaimStep = "settle" // the machine is made
	ClaimDrop   ClaimStep = "drop"   // none was made
	ClaimLook   ClaimStep = "look"   // whose is it; nothing is changed
	ClaimStood  ClaimStep = "stood"  // which keys were decided in the place of another member
)

// Claim asks one member for what must be unique in an app, which that member decides for all.
type Claim struct {
	Kind    ClaimKind `json:"kind"`
	Step    ClaimStep `json:"step"`
	App     string    `json:"app,omitempty"`
	Value   string    `json:"value,omitempty"`   // the name, or the key
	Holder  string    `json:"holder,omitempty"`  // the create that asks, different for each
	Machine string    `json:"machine,omitempty"` // that is to be made; of ClaimSettle: that was made
	Over    string    `json:"over,omitempty"`    // a machine that has the name and is destroyed, as its worker says
	Hash    string    `json:"hash,omitempty"`    // of a key's request
	New     bool      `json:"new,omitempty"`     // of a key: its client says that it has not sent it before
	// Age is for how long a key has existed, as its client says; 0 where nobody knows.
	Age time.Duration `json:"age,omitempty"`
	// Instead says that a member which decides before this one could not be asked.
	Instead bool     `json:"instead,omitempty"`
	Came    Creation `json:"came,omitempty"`   // of ClaimSettle of a key: what its create came to
	Placed  []Placed `json:"placed,omitempty"` // of ClaimSettle of a spread: the machines that were made
}

// Claimed is the answer to a claim.
type Claimed struct {
	Granted bool   `json:"granted,omitempty"` // it is the holder's
	Machine string `json:"machine,omitempty"` // the id that a key is bound to; of a name that is another's: whose
	// Machine is there; false: it is about to be. Of a key: it was made, and may be over.
	Made  bool      `json:"made,omitempty"`
	Bound time.Time `json:"bound,omitzero"`  // of a key that another create has bound: when
	Other bool      `json:"other,omitempty"` // of a client's own id: it was used for another request
	Stood []Claim   `json:"stood,omitempty"`
	// Placed lists, of a spread, what was made so lately that its workers' word may not have come yet.
	Placed []Placed `json:"placed,omitempty"`
}

// Placed is a machine and the worker that made it.
type Placed struct {
	Machine string    `json:"machine"`
	Worker  WorkerID  `json:"worker"`
	Used    Resources `json:"used,omitzero"` // what it occupies, of one whose namespace has caps
}

// Creation is what a create came to.
type Creation int

// What a create can come to.
const (
	MayBeMade Creation = iota // nobody knows whether there is a machine
	NotMade                   // for sure
	IsMade
)

// OwnID returns the key that stands for a machine's id which a client chose itself: no header can have it.
func OwnID(machine string) string { return ownID + machine }

const ownID = "\x00"

// IsOwnID reports whether a key stands for a client's own id.
func IsOwnID(key string) bool { return strings.HasPrefix(key, ownID) }

// Deciders returns the members in the order in which they decide a claim: the first that can be asked does.
func (c *Claim) Deciders(members []WorkerID) []WorkerID {
	return Rendezvous(members, string(c.Kind)+"\x00"+c.App+"\x00"+c.Value)
}

// Rendezvous returns members in the order in which they care for something (rendezvous hashing; Thaler and Ravishankar,
// 1998). Every member that knows the same others finds the same order, one more or less moves only what it cares for
// itself, and of two members the same one goes first whoever else there is.
func Rendezvous(members []WorkerID, what string) []WorkerID {
	weight := make(map[WorkerID]uint64, len(members))
	for _, id := range members {
		sum := sha256.Sum256([]byte(what + "\x00" + string(id)))
		weight[id] = binary.BigEndian.Uint64(sum[:8])
	}
	return slices.SortedFunc(slices.Values(members), func(a, b WorkerID) int {
		return cmp.Or(cmp.Compare(weight[b], weight[a]), cmp.Compare(a, b))
	})
}

// Steward returns which of some members cares for the machines of an app; "" where there are none.
func Steward(members []WorkerID, app string) WorkerID {
	if len(members) == 0 {
		return ""
	}
	return Rendezvous(members, "steward\x00"+app)[0]
}

// Bounds of a claim.
const (
	MaxClaimText = 512  // bytes of each of its fields
	MaxStood     = 1024 // claims of one answer
	// that a decider knows of a machine by the claim that it was made with, to refuse its name and to tell the next create
	// of a spread: its worker's word comes sooner, on a host that is not overrun
	KeepClaim = time.Minute
	MaxPlaced = 1024              // machines of one claim
	ClaimLife = 150 * time.Second // that a claim holds whose create does not end it: longer than a create may take
)

// Check refuses a claim that no souk sends.
func (c *Claim) Check() error {
	for _, text := range []string{string(c.Kind), string(c.Step), c.App, c.Value, c.Holder, c.Machine, c.Over, c.Hash} {
		if len(text) > MaxClaimText {
			return fault.New(fault.Invalid, CodeClaim, "a field of a claim has %d bytes; at most %d", len(text),
				MaxClaimText)
		}
	}
	if c.Kind != ClaimName && c.Kind != ClaimKey && c.Kind != ClaimSpread {
		return fault.New(fault.Unimplemented, CodeClaim,
			"there are claims of names, keys and spreads, not of %q", c.Kind)
	}
	if len(c.Placed) > MaxPlaced {
		return fault.New(fault.Invalid, CodeClaim, "a claim tells of %d machines; at most %d", len(c.Placed), MaxPlaced)
	}
	for _, p := range c.Placed {
		if !p.Used.Valid() {
			return fault.New(fault.Invalid, CodeClaim, "a claim tells of a machine that occupies an impossible amount")
		}
		if len(p.Machine) > MaxClaimText || len(p.Worker) > MaxClaimText {
			return fault.New(fault.Invalid, CodeClaim, "a claim tells of a machine with an id of more than %d bytes",
				MaxClaimText)
		}
	}
	return nil
}
