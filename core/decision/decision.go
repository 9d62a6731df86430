// Package decision is the record of one placement: what was asked for, which workers were considered with which verdict
// and score, who was asked and what each answered, and what came of it. A record is complete: with the workers' records
// it refers to, every clause, every score and the winner can be computed again (Verify), after the machine is gone too.
//
// It also explains a record in sentences (Explain), finds the smallest change that would let a refused request fit
// (Nearest), and says beforehand what a request would meet (Foresee). All of it is pure.
package decision

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// Bounds on what a decision keeps of a large fleet. Of a small one it keeps all.
const (
	KeepAll    = 64 // workers of a view that are all kept
	KeepLosers = 5  // best workers beside the winner
	MaxGroups  = 32 // groups of workers that fail alike; the rest are counted in the last
)

// Outcome is what came of a decision.
type Outcome string

// The outcomes.
const (
	Placed    Outcome = "placed"
	Refused   Outcome = "refused"   // no worker took it
	Ambiguous Outcome = "ambiguous" // a worker does not answer, and may have it
	Broken    Outcome = "failed"    // the request itself was wrong, or whoever asked gave up
)

// Decision is one placement, as it is logged. Whoever makes one hands it over and does not change it any more. There is
// nothing secret in it: a placement.Request has no environment, no files and no command.
type Decision struct {
	ID       string            `json:"id"` // a ULID: ids sort by time
	At       time.Time         `json:"at"` // when the view was read
	Why      string            `json:"why"`
	Request  placement.Request `json:"request"` // whole, resolved: app, machine and namespace are in it
	Policy   Policy            `json:"policy"`
	Strategy string            `json:"strategy"`

	Workers int `json:"workers"` // of the view
	Fitting int `json:"fitting"` // of them
	// best first, then those that fail; all of them when Workers <= KeepAll
	Considered []Considered `json:"considered"`
	Groups     []Group      `json:"groups,omitempty"`     // of the workers that fail
	Evaluated  int          `json:"evaluated,omitempty"`  // workers that a sampling policy looked at; 0: all
	Candidates int          `json:"candidates,omitempty"` // workers an index left to look at; 0: all

	// Own is of a machine that has its place: what it had at its worker when it was judged there.
	Own *market.Footprint `json:"own,omitempty"`

	Asks      []Ask       `json:"asks,omitempty"` // in order; the last one is the winner's where there is one
	Holds     []Hold      `json:"holds,omitempty"`
	Evictions []Preempted `json:"evictions,omitempty"`

	Winner  cluster.WorkerID `json:"winner,omitempty"`
	Outcome Outcome          `json:"outcome"`
	Reason  string           `json:"reason"`            // one sentence
	Pending Pending          `json:"pending,omitempty"` // why not, typed, where it was not placed
	Shadow  *machine.Shadow  `json:"shadow,omitempty"`  // what a policy that only watches would have chosen
	Took    Timings          `json:"took"`

	// Records are the workers' records that the decision refers to, for the log to write where it has not yet.
	Records []*cluster.Record `json:"-"`
}

// What a decision was made for.
const (
	Create  = "create"
	Start   = "start"
	Update  = "update"
	Migrate = "migrate"
	Restart = "restart"
	Resize  = "resize"
	Another = "another" // a create for requests that the machines of a service do not do for
	Warm    = "warm"    // a create of a machine that a request to come is to wake
	Replica = "replica" // a create of a machine that a service is to have
)

// Policy names the policy that decided. Version 0 is built in.
type Policy struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
}

// Ref names one version of a worker's record. The log has it written before the decision that refers to it.
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

// Ask is one worker that was asked, and what it answered.
type Ask struct {
	Worker  cluster.WorkerID `json:"worker"`
	Ref                      // its record when it was asked
	Result  market.Result    `json:"result"`
	Evict   bool             `json:"evict,omitempty"`   // with consent to evict lower ranks
	Failing []machine.Clause `json:"failing,omitempty"` // of a refusal
	Healed  *Ref             `json:"healed,omitempty"`  // the fresh record that came with a refusal
	Millis  float64          `json:"ms"`
}

// Hold is a reservation that the decision took on the way.
type Hold struct {
	Worker  cluster.WorkerID `json:"worker"`
	Result  string           `json:"result"` // granted, released, refused, lost, failed
	Expires time.Time        `json:"expires,omitzero"`
}

// Preempted is a machine that had to go for this one.
type Preempted struct {
	Machine     string           `json:"machine"`
	App         string           `json:"app"`
	Worker      cluster.WorkerID `json:"worker"`
	Cause       string           `json:"cause"`
	Rule        string           `json:"rule"`
	Beneficiary string           `json:"beneficiary"` // the machine it went for
}

// Timings are the phases of a decision, in milliseconds.
type Timings struct {
	View  float64 `json:"view_ms"`
	Rank  float64 `json:"rank_ms"`
	Ask   float64 `json:"ask_ms"`
	Total float64 `json:"total_ms"`
}

// End is a machine that is over, as the log notes it: with it, the log is a trace of arrivals and durations.
type End struct {
	App     string    `json:"app"`
	Machine string    `json:"machine"`
	At      time.Time `json:"at"`
}

// RefOf names the version of a record.
func RefOf(r *cluster.Record) Ref { return Ref{r.Incarnation, r.Version} }

// Millis gives a duration in milliseconds.
func Millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Complete says whether every worker of the view is in Considered.
func (d *Decision) Complete() bool { return len(d.Considered) == d.Workers }
