// Package decision is the record of one placement: what was asked for, which workers were considered with which
// verdict and score, which workers were asked, what each answered, and the outcome. A record is complete: with the
// workers' records it refers to, every clause, every score and the winner can be computed again (Verify), after the
// machine is gone too.
//
// It also explains a record in sentences (Explain), finds the smallest change that would let a refused request fit
// (Nearest), and predicts what would happen to a request (Foresee). All of it is pure.
package decision

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// Bounds on what a decision keeps of a large fleet. Of a small fleet it keeps everything.
const (
	KeepAll    = 64 // up to this many workers of a view are all kept
	KeepLosers = 5  // best workers beside the winner
	MaxGroups  = 32 // groups of workers that fail on the same clauses; the last one counts the rest
)

// Outcome is how a decision ended.
type Outcome string

// The outcomes.
const (
	Placed    Outcome = "placed"
	Refused   Outcome = "refused"   // no worker took it
	Ambiguous Outcome = "ambiguous" // a worker does not answer, and may have taken it
	Broken    Outcome = "failed"    // the request itself was wrong, or the client gave up
)

// Decision is one placement, as it is logged. Its maker does not change it after handing it over. It holds no secrets:
// a placement.Request has no environment, no files and no command.
type Decision struct {
	ID       string            `json:"id"` // a ULID: ids sort by time
	At       time.Time         `json:"at"` // when the view was read
	Why      string            `json:"why"`
	Request  placement.Request `json:"request"` // complete and resolved: app, machine and namespace are filled in
	Policy   Policy            `json:"policy"`
	Strategy string            `json:"strategy"`

	Workers int `json:"workers"` // workers in the view
	Fitting int `json:"fitting"` // workers that fit
	// best first, then those that fail; all of them when Workers <= KeepAll
	Considered []Considered `json:"considered"`
	Groups     []Group      `json:"groups,omitempty"`     // of the workers that fail
	Evaluated  int          `json:"evaluated,omitempty"`  // workers that a sampling policy examined; 0: all
	Candidates int          `json:"candidates,omitempty"` // workers that an index left to examine; 0: all

	// Own is set for a machine that already has a worker: what it occupied there when it was judged.
	Own *market.Footprint `json:"own,omitempty"`

	Asks      []Ask       `json:"asks,omitempty"` // in order; with a winner, the last one is the winner's
	Holds     []Hold      `json:"holds,omitempty"`
	Evictions []Preempted `json:"evictions,omitempty"`

	Winner  cluster.WorkerID `json:"winner,omitempty"`
	Outcome Outcome          `json:"outcome"`
	Reason  string           `json:"reason"`            // one sentence
	Pending Pending          `json:"pending,omitempty"` // why it was not placed, as a label
	Shadow  *machine.Shadow  `json:"shadow,omitempty"`  // the choice of a policy in shadow mode
	Took    Timings          `json:"took"`

	// Records are the workers' records that the decision refers to, for the log to write unless it already has them.
	Records []*cluster.Record `json:"-"`
}

// The purposes of a decision (Decision.Why).
const (
	Create  = "create"
	Start   = "start"
	Update  = "update"
	Migrate = "migrate"
	Restart = "restart"
	Resize  = "resize"
	Another = "another" // a create for requests beyond what the machines of a service can serve
	Warm    = "warm"    // a create of a machine for a later request to wake
	Replica = "replica" // a create of a replica that a service needs
)

// Policy names the policy that decided. Version 0 is built in.
type Policy struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
}

// Ref names one version of a worker's record. The log holds that version before the decision that refers to it.
type Ref struct {
	Incarnation uint64 `json:"incarnation"`
	Version     uint64 `json:"version"`
}

// Considered is one worker as the decision saw it.
type Considered struct {
	machine.Candidate
	Ref
	Age   float64 `json:"age_ms"` // of the record, when the decision was made
	Never bool    `json:"never,omitempty"`
}

// Group is the workers that fail on the same clauses.
type Group struct {
	Codes   []string         `json:"codes"`
	Count   int              `json:"count"`
	Example cluster.WorkerID `json:"example"`
	Ref
	Failing []machine.Clause `json:"failing"` // the example's
	Never   bool             `json:"never,omitempty"`
}

// Ask is one worker that was asked, and its answer.
type Ask struct {
	Worker  cluster.WorkerID `json:"worker"`
	Ref                      // its record when it was asked
	Result  market.Result    `json:"result"`
	Evict   bool             `json:"evict,omitempty"`   // asked with consent to evict lower ranks
	Failing []machine.Clause `json:"failing,omitempty"` // with a refusal, the clauses that failed
	Healed  *Ref             `json:"healed,omitempty"`  // the fresh record that came with a refusal
	Millis  float64          `json:"ms"`
}

// Hold is a reservation that the buyer made during the purchase.
type Hold struct {
	Worker  cluster.WorkerID `json:"worker"`
	Result  string           `json:"result"` // granted, released, refused, lost, failed
	Expires time.Time        `json:"expires,omitzero"`
}

// Preempted is a machine that was evicted for this one.
type Preempted struct {
	Machine     string           `json:"machine"`
	App         string           `json:"app"`
	Worker      cluster.WorkerID `json:"worker"`
	Cause       string           `json:"cause"`
	Rule        string           `json:"rule"`
	Beneficiary string           `json:"beneficiary"` // the machine that got the room
}

// Timings are the phases of a decision, in milliseconds.
type Timings struct {
	View  float64 `json:"view_ms"`
	Rank  float64 `json:"rank_ms"`
	Ask   float64 `json:"ask_ms"`
	Total float64 `json:"total_ms"`
}

// End is the end of a machine, as the log notes it: with it, the log is a trace of arrivals and durations.
type End struct {
	App     string    `json:"app"`
	Machine string    `json:"machine"`
	At      time.Time `json:"at"`
}

// RefOf returns the version of a record.
func RefOf(r *cluster.Record) Ref { return Ref{r.Incarnation, r.Version} }

// Millis converts a duration to milliseconds.
func Millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Complete reports whether every worker of the view is in Considered.
func (d *Decision) Complete() bool { return len(d.Considered) == d.Workers }
