package jobs

import (
	"cmp"
	"encoding/json"

	"github.com/soukhq/souk/cluster"
)

// Claim says which member keeps a job, or has a copy of it. The epoch of a job grows whenever another member takes it
// over or gets the copy. Of several members that believe to keep it, the one whose claim ranks highest does.
type Claim struct {
	Job   string           `json:"job"`
	Epoch int              `json:"epoch"`
	By    cluster.WorkerID `json:"by"`             // the member that keeps it
	Heir  cluster.WorkerID `json:"heir,omitempty"` // the member with a copy of it
	Copy  bool             `json:"copy,omitempty"` // the answering member is the heir
}

// Outranks reports whether a claim ranks above another: by the larger epoch, then by the larger ID of the member.
func (c *Claim) Outranks(o *Claim) bool {
	return cmp.Or(cmp.Compare(c.Epoch, o.Epoch), cmp.Compare(c.By, o.By)) > 0
}

// Copy is a part of a job for a member that keeps a copy of it: new groups of results, or a piece of all that there is.
type Copy struct {
	Job   string          `json:"job"`
	Epoch int             `json:"epoch"`
	Head  json.RawMessage `json:"head,omitempty"` // nil: that of before
	Sum   uint32          `json:"sum"`            // of the head
	// the groups of results that the keeper has; a copy with all of them and the head is up to date
	Version int `json:"version"`
	// groups of results, in order: the last ones up to Version, or with Piece, those of the piece
	Groups [][]Result `json:"groups,omitempty"`
	Piece  int        `json:"piece,omitempty"` // of a whole copy, from 1; 0: an addition
	// what the tasks of the results in Groups wrote, in the same order; nil: nothing, or it is not there any more. The
	// dispatcher leaves it to its owner.
	Outputs   [][]byte `json:"outputs,omitempty"`
	Namespace string   `json:"namespace,omitempty"` // set with Outputs
	More      bool     `json:"more,omitempty"`      // with Piece: it is not the last one
	Probe     bool     `json:"probe,omitempty"`     // the keeper only asks whether the copy is up to date
	// with Probe: the keeper has just started, so a copy that has more than Version shows that its disk is an old one
	Restarted bool `json:"restarted,omitempty"`
	// the keeper has forgotten the job, which ended long ago
	Drop bool `json:"drop,omitempty"`
	// the sender kept the job, but the receiver has taken it over: it adds the results that it does not have
	Merge bool `json:"merge,omitempty"`
}

// noteOutputs notes that the keeper has the output of the tasks whose results are in the copy, where it was not copied.
func (x *Copy) noteOutputs(keeper cluster.WorkerID) {
	x.EachResult(func(_ int, r *Result) {
		if r.Bytes > 0 && r.OutputAt == "" {
			r.OutputAt = keeper
		}
	})
}

// CopyState is the answer to a Copy.
type CopyState string

// The answers.
const (
	CopyKept    CopyState = "kept"    // it is durable
	CopyMissing CopyState = "missing" // something before it is missing: a whole copy is needed
	CopyRivaled CopyState = "rivaled" // another member keeps the job
	CopyRefused CopyState = "refused" // the bounds of what a member keeps for others are reached
)

// CopyAnswer answers one Copy.
type CopyAnswer struct {
	Job   string    `json:"job"`
	State CopyState `json:"state"`
	Rival *Claim    `json:"rival,omitempty"` // with CopyRivaled
}

// CopyBatch is what is sent to one member at once.
type CopyBatch struct {
	To   cluster.WorkerID
	List []Copy
}

// Bounds of what is sent at once, in bytes.
const (
	batchBytes  = 1 << 20
	pieceBytes  = 512 << 10
	resultBytes = 220 // of a result without its texts, at most
	leftBytes   = 60  // of its Left, likewise
)

// sizeOf returns about how long results are as JSON, with what their tasks wrote.
func sizeOf(list []Result) (n int) {
	for i := range list {
		r := &list[i]
		n += resultBytes + len(r.Error) + len(r.Evicted) + len(r.Worker) + r.Bytes
		if r.Left != nil {
			n += leftBytes + len(r.Left.Why)
		}
	}
	return n
}

// EachResult calls f with each result, and its place in Outputs.
func (x *Copy) EachResult(f func(i int, r *Result)) {
	i := 0
	for _, g := range x.Groups {
		for k := range g {
			f(i, &g[k])
			i++
		}
	}
}

// copying is how far a job has been copied to its heir.
type copying struct {
	queued bool       // it is in the heir's list
	probe  bool       // whether the heir's copy is up to date is unknown
	first  bool       // with probe: it is unknown since the start
	whole  bool       // a whole copy is needed
	groups [][]Result // durable here, and not at the heir, but for those of a whole copy in progress
	theirs uint32     // checksum of the heir's head
	late   []Result   // repeated by workers while it was unknown whether the heir has them

	// of the whole copy in progress
	rest    [][]Result // groups to send
	piece   int        // sent so far; 0: it has not begun
	covered int        // of groups, those that it has
	past    []Past
	spent   *account

	sent inFlight
}

// inFlight is the part of a job that is being sent.
type inFlight struct {
	probe  bool
	piece  int // of a whole copy, from 1; 0: it is none
	groups int // of groups or of rest
	head   uint32
	last   bool // of a whole copy
}

// needWhole has everything sent anew, instead of what is in progress.
func (c *copying) needWhole() {
	c.probe, c.first, c.whole, c.piece, c.rest = false, false, true, 0, nil
}

func (c *copying) addGroups(list [][]Result) { c.groups = append(c.groups, list...) }

// isUpToDate reports whether the heir has everything that is durable here.
func (j *job) isUpToDate() bool {
	c := &j.copying
	return !c.probe && !c.whole && len(c.groups) == 0 && c.theirs == j.head
}

// isHeadSafe reports whether the job's head is durable, at the heir too.
func (j *job) isHeadSafe() bool {
	c := &j.copying
	return j.head != 0 && !j.headDirty && j.newHead == 0 && j.rival == nil &&
		(j.heir == "" || !c.probe && !c.whole && c.theirs == j.head)
}
