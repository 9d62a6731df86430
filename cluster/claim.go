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
	ClaimName ClaimKind = "name" // a machine's name
	ClaimKey  ClaimKind = "key"  // an Idempotency-Key
	// ClaimSpread is the right to place machines of an app that must be spread: one create at a time counts them.
	ClaimSpread ClaimKind = "spread"
)

// ClaimStep is what a member asks of the decider.
type ClaimStep string

// The steps of a claim, and what doctor asks.
const (
	ClaimTake   ClaimStep = "take"   // reserve it for the holder while its create runs
	ClaimSettle ClaimStep = "settle" // the machine was made
	ClaimDrop   ClaimStep = "drop"   // no machine was made
	ClaimLook   ClaimStep = "look"   // ask who has it; nothing changes
	ClaimStood  ClaimStep = "stood"  // list the keys that were decided for an unreachable member
)

// Claim asks the deciding member for a name, key or turn that must be unique in an app.
type Claim struct {
	Kind    ClaimKind `json:"kind"`
	Step    ClaimStep `json:"step"`
	App     string    `json:"app,omitempty"`
	Value   string    `json:"value,omitempty"`   // the name, or the key
	Holder  string    `json:"holder,omitempty"`  // the create that asks, different for each
	Machine string    `json:"machine,omitempty"` // the machine to make; with ClaimSettle: the one made
	Over    string    `json:"over,omitempty"`    // a machine that has the name and is destroyed, as its worker says
	Hash    string    `json:"hash,omitempty"`    // hash of a key's request
	New     bool      `json:"new,omitempty"`     // a key: its client says that it has not sent it before
	// Age is the age of a key, as its client says; 0: unknown.
	Age time.Duration `json:"age,omitempty"`
	// Instead says that an earlier decider in the order was unreachable.
	Instead bool     `json:"instead,omitempty"`
	Came    Creation `json:"came,omitempty"`   // ClaimSettle of a key: the outcome of its create
	Placed  []Placed `json:"placed,omitempty"` // ClaimSettle of a spread: the machines made
}

// Claimed is the answer to a claim.
type Claimed struct {
	Granted bool   `json:"granted,omitempty"` // the holder has it
	Machine string `json:"machine,omitempty"` // the machine that a key is bound to, or that has the name
	// Machine exists; false: it is about to be made. For a key: it was made, and may be over.
	Made  bool      `json:"made,omitempty"`
	Bound time.Time `json:"bound,omitzero"`  // when another create bound the key
	Other bool      `json:"other,omitempty"` // a client's own id was used for another request
	Stood []Claim   `json:"stood,omitempty"`
	// Placed lists, for a spread, machines made so recently that their workers may not have reported them yet.
	Placed []Placed `json:"placed,omitempty"`
}

// Placed is a machine and the worker that made it.
type Placed struct {
	Machine string    `json:"machine"`
	Worker  WorkerID  `json:"worker"`
	Used    Resources `json:"used,omitzero"` // what it occupies, if its namespace has caps
}

// Creation is the outcome of a create.
type Creation int

// The outcomes of a create.
const (
	MayBeMade Creation = iota // unknown whether a machine was made
	NotMade                   // certainly no machine was made
	IsMade
)

// OwnID returns the key that represents a machine id chosen by a client; no Idempotency-Key header can equal it.
func OwnID(machine string) string { return ownID + machine }

const ownID = "\x00"

// IsOwnID reports whether a key represents a client's own id.
func IsOwnID(key string) bool { return strings.HasPrefix(key, ownID) }

// Deciders returns the members in the order in which they decide a claim: the first reachable one decides.
func (c *Claim) Deciders(members []WorkerID) []WorkerID {
	return Rendezvous(members, string(c.Kind)+"\x00"+c.App+"\x00"+c.Value)
}

// Rendezvous returns members in their order of responsibility for what (rendezvous hashing; Thaler and Ravishankar,
// 1998). Members that know the same members compute the same order, adding or removing a member moves only its own
// share, and the order of two members does not depend on the others.
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

// Steward returns the member that is responsible for the machines of an app; "": no members.
func Steward(members []WorkerID, app string) WorkerID {
	if len(members) == 0 {
		return ""
	}
	return Rendezvous(members, "steward\x00"+app)[0]
}

// Bounds of a claim.
const (
	MaxClaimText = 512  // bytes of each text field
	MaxStood     = 1024 // claims of one answer
	// how long a decider remembers a made machine by its claim, to refuse its name and for the next create of a spread:
	// its worker's report arrives sooner, unless the host is overloaded
	KeepClaim = time.Minute
	MaxPlaced = 1024              // machines of one claim
	ClaimLife = 150 * time.Second // until a claim expires by itself: longer than a create may take
)

// Check refuses an impossible claim.
func (c *Claim) Check() error {
	for _, text := range []string{string(c.Kind), string(c.Step), c.App, c.Value, c.Holder, c.Machine, c.Over, c.Hash} {
		if len(text) > MaxClaimText {
			return fault.New(fault.Invalid, CodeClaim, "a field of a claim has %d bytes; at most %d", len(text),
				MaxClaimText)
		}
	}
	if c.Kind != ClaimName && c.Kind != ClaimKey && c.Kind != ClaimSpread {
		return fault.New(fault.Unimplemented, CodeClaim,
			"a claim is about a name, a key or a spread, not about %q", c.Kind)
	}
	if len(c.Placed) > MaxPlaced {
		return fault.New(fault.Invalid, CodeClaim, "a claim names %d machines; at most %d are allowed",
			len(c.Placed), MaxPlaced)
	}
	for _, p := range c.Placed {
		if !p.Used.Valid() {
			return fault.New(fault.Invalid, CodeClaim, "a claim names a machine whose resources are out of range")
		}
		if len(p.Machine) > MaxClaimText || len(p.Worker) > MaxClaimText {
			return fault.New(fault.Invalid, CodeClaim, "a claim names a machine with an id of more than %d bytes",
				MaxClaimText)
		}
	}
	return nil
}
