// Package sharedstate is the shared-state scheduling of Omega (Schwarzkopf et al., EuroSys'13, section 3.4) on workers of
// equal slots: several schedulers decide at the same time, each on a private copy of the whole cell's state, and commit
// what they chose as a transaction. A slot that another transaction has claimed meanwhile is a conflict, which is found by
// the slot and not by a sequence number (fine-grained, section 5.2). The scheduler then synchronizes its copy and tries
// again.
//
// Each buyer is a scheduler, and decides on one job at a time. The center has the cell state and judges transactions. A
// transaction is incremental (what has no conflict is accepted) or, with Gang, all-or-nothing. A buyer whose claims are
// accepted sends the tasks to their workers itself; a worker tells the center when a slot is free again.
//
// A copy is synchronized before each attempt: the buyer asks the center, which answers with what has changed since its last
// answer to this buyer. While too few slots are free the center keeps the request, and a slot that becomes free has one
// of them answered, the oldest. The paper's simulator retries once a second instead.
//
// The paper gives up a gang that does not fit. Here a job that has more tasks than half of the cell's slots is committed in
// gangs of that many, and a gang that has waited for Patience goes before all others: the center answers nobody else
// until it is committed.
package sharedstate

import (
	"cmp"

	"github.com/soukhq/souk/core/scheduler"
)

// Options are the parameters of shared state.
type Options struct {
	Gang     bool           // all tasks of a job are placed in one transaction, or none
	Think    scheduler.Time // of a scheduler about one attempt, between its view of the cell and the commit
	Patience scheduler.Time // how long others may go before a gang; 0: 60 s
}

// SharedState is the architecture.
type SharedState struct {
	opt     Options
	workers int
	slots   int32 // of each worker
	free    int32 // of these, at the beginning
	buyers  []buyer
	cell    cell
}

const (
	// the cell learns of a free slot of worker From; Flag: it is one more than the cell knew of
	kindFree scheduler.Kind = iota
	// the cell is asked for its state once Count slots are free, or half of all; Flag: buyer From has a gang that has
	// waited since Time, and longer than Patience
	kindSync
	// a buyer learns what has changed in the cell since its last answer, and that a gang is Count tasks at most
	kindState
	kindCommit  // the cell judges the claims of buyer From
	kindOutcome // a buyer learns which of its claims are refused; Flag: all of them, as the others of a gang were
	kindTask    // task Task of Job is at a worker
	kindDecide  // note: a buyer has decided
	kindDue     // note: a buyer's first gang may have waited for Patience
)

// New makes shared state for a fleet.
func New(fleet scheduler.Fleet, opt Options) *SharedState {
	opt.Patience = cmp.Or(opt.Patience, 60*scheduler.Second)
	buyers := max(1, fleet.Buyers)
	return &SharedState{opt: opt, workers: fleet.Workers, slots: int32(max(1, fleet.Slots)), free: fleet.FreeSlots(),
		buyers: make([]buyer, buyers), cell: newCell(fleet, buyers, opt.Gang)}
}

// Parties implements scheduler.Strategy.
func (s *SharedState) Parties() scheduler.Parties {
	return scheduler.Parties{Workers: s.workers, Buyers: len(s.buyers), Centers: 1}
}

// Entry implements scheduler.Strategy: the scheduler of the job's client.
func (s *SharedState) Entry(j scheduler.Job) scheduler.Party {
	return scheduler.Party{Role: scheduler.Buyer, ID: j.Buyer}
}

// Deliver implements scheduler.Strategy.
func (s *SharedState) Deliver(d *scheduler.Env, m scheduler.Msg) {
	switch m.Role {
	case scheduler.Worker:
		if m.Kind == kindTask {
			d.Run(m.Job, m.Task)
		}
	case scheduler.Buyer:
		s.deliverToBuyer(d, m)
	default:
		s.cell.deliver(d, m)
	}
}

// Ended implements scheduler.Strategy.
func (s *SharedState) Ended(d *scheduler.Env, _, _ int32) { reportFree(d, false) }

// Freed implements scheduler.Strategy.
func (s *SharedState) Freed(d *scheduler.Env) { reportFree(d, true) }

func reportFree(d *scheduler.Env, isNew bool) {
	d.Send(scheduler.Msg{Kind: kindFree, Role: scheduler.Center, From: d.Self.ID, Flag: isNew})
}

// change is a worker's free slots.
type change struct {
	Worker int32 `json:"w,omitempty"`
	Free   int32 `json:"f,omitempty"`
}

// changes is what has changed in the cell.
type changes []*change

// Number implements scheduler.Payload.
func (c changes) Number() (n int32) {
	for _, x := range c {
		n = 31*(31*n+x.Worker) + x.Free + 1
	}
	return n
}

// claims is the worker of each claim of a transaction.
type claims []int32

// Number implements scheduler.Payload.
func (c claims) Number() (n int32) {
	for _, w := range c {
		n = 31*n + w + 1
	}
	return n
}

// refused is the places in the list of claims of those with a conflict.
type refused []int32

// Number implements scheduler.Payload.
func (r refused) Number() int32 { return claims(r).Number() }

// ReadPayload implements scheduler.PayloadReader.
func (s *SharedState) ReadPayload(k scheduler.Kind, raw []byte) (scheduler.Payload, error) {
	switch {
	case k == kindState && len(raw) > 0:
		list, err := scheduler.DecodePayload[changes](raw)
		if err != nil {
			return nil, err
		}
		return *list, scheduler.CheckEach(*list, func(c *change) error {
			return cmp.Or(scheduler.CheckRange("worker", c.Worker, 0, int32(s.workers-1)),
				scheduler.CheckRange("free slots", c.Free, 0, s.slots))
		})
	case k == kindCommit:
		list, err := scheduler.DecodePayload[claims](raw)
		if err != nil {
			return nil, err
		}
		return *list, checkAll("worker", *list, s.workers)
	case k == kindOutcome && len(raw) > 0:
		list, err := scheduler.DecodePayload[refused](raw)
		if err != nil {
			return nil, err
		}
		return *list, checkAll("claim", *list, s.workers*int(s.slots))
	}
	return nil, scheduler.RefusePayload(k, raw)
}

// checkAll refuses a list of numbers that has one that is not below all.
func checkAll(what string, list []int32, all int) error {
	for _, n := range list {
		if err := scheduler.CheckRange(what, int(n), 0, all-1); err != nil {
			return err
		}
	}
	return nil
}
