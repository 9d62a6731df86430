package batch

import (
	"context"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/journal"
)

// Members are the other members, as heirs and keepers of jobs.
type Members interface {
	// Heirs lists those that may keep copies of jobs, the best first.
	Heirs() []cluster.WorkerID
	// Heard lists those that can be asked.
	Heard() []cluster.WorkerID
	// Gone reports whether one has been dead or away for so long that others take over its jobs, or was removed.
	Gone(id cluster.WorkerID) bool
	// Copy sends a member parts of jobs, and returns its answers in the same order.
	Copy(ctx context.Context, id cluster.WorkerID, list []jobs.Copy) ([]jobs.CopyAnswer, error)
	// Claims asks a member which of these jobs it keeps, or has copies of. started says that this buyer has not asked it
	// since its start.
	Claims(ctx context.Context, id cluster.WorkerID, ids []string, started bool) ([]jobs.Claim, error)
}

// Times of heirs.
const (
	membersEvery = time.Second            // how often the buyer looks at the other members
	copyTime     = 5 * time.Second        // for one batch of copies
	claimTime    = 2 * time.Second        // for one answer about claims
	copyRetry    = 200 * time.Millisecond // after a batch that did not arrive
)

// heirs has a buyer's jobs copied to other members, and keeps the copies of theirs. All of it but the constants is owned by
// the buyer's loop.
type heirs struct {
	members Members
	journal journal.Journal // of copies
	jobs.Succession
	busy    bool // a commit is in progress
	saved   chan error
	waiters []commitWaiter
	looked  time.Time
	heard   map[cluster.WorkerID]bool
	greeted map[cluster.WorkerID]bool // asked since the start
	asking  bool                      // members are being asked who keeps jobs
}

// openHeirs loads the copies of other members' jobs.
func openHeirs(o *BuyerOptions, d *jobs.Dispatcher) (*heirs, error) {
	h := &heirs{members: o.Members, journal: o.Copies, saved: make(chan error, 1), heard: map[cluster.WorkerID]bool{},
		greeted:    map[cluster.WorkerID]bool{},
		Succession: jobs.Succession{Self: o.Member, Dispatcher: d, Copies: jobs.NewCopies()}}
	if err := o.Copies.Load(h.Copies.Restore); err != nil {
		return nil, err
	}
	if err := h.Copies.Resume(); err != nil {
		return nil, err
	}
	h.DropOwn()
	return h, nil
}

// sendCopies sends what the heirs do not have.
func (b *Buyer) sendCopies() {
	for _, batch := range b.dispatcher.Copies(time.Now()) {
		go func() {
			b.addOutputs(batch.List)
			ctx, cancel := context.WithTimeout(b.run, copyTime)
			answers, err := b.heirs.members.Copy(ctx, batch.To, batch.List)
			cancel()
			if keepsNone(err) {
				err, answers = nil, refuseAll(batch.List)
			}
			if err == nil {
				b.postFunc(func(now time.Time) { b.dispatcher.Copied(now, batch.To, answers) })
				return
			}
			b.log.Debug("jobs could not be copied to a member", "member", batch.To, "err", err)
			select {
			case <-b.stopped:
			case <-time.After(copyRetry):
				b.postFunc(func(time.Time) { b.dispatcher.NotCopied(batch.To) })
			}
		}()
	}
}

// keepsNone reports whether an error says that a member keeps no copies of jobs: a souk of the previous release has no
// such call.
func keepsNone(err error) bool {
	return fault.Is(err, fault.NotFound) || fault.Is(err, fault.Unimplemented)
}

// refuseAll returns the answers of a member that keeps no copies.
func refuseAll(list []jobs.Copy) (out []jobs.CopyAnswer) {
	for i := range list {
		out = append(out, jobs.CopyAnswer{Job: list[i].Job, State: jobs.CopyRefused})
	}
	return out
}

// commitCopies commits the copies of other members' jobs when their journal is free.
func (b *Buyer) commitCopies() {
	h := b.heirs
	if h.busy {
		return
	}
	batch := h.Copies.Flush()
	for i := range h.waiters {
		h.waiters[i].behind = 0
	}
	if len(batch) == 0 {
		h.reportCommitted(nil)
		return
	}
	h.busy = true
	go func() { h.saved <- h.journal.Commit(batch) }()
}

func (h *heirs) reportCommitted(err error) {
	var later []commitWaiter
	for _, w := range h.waiters {
		if w.behind == 0 {
			w.done <- err
		} else {
			later = append(later, w)
		}
	}
	h.waiters = later
}

// TakeCopies takes parts of jobs that another member keeps. The answer is durable.
func (b *Buyer) TakeCopies(ctx context.Context, keeper cluster.WorkerID, list []jobs.Copy) ([]jobs.CopyAnswer, error) {
	if b.heirs == nil {
		return nil, fault.New(fault.Unimplemented, jobs.CodeJobs, "this souk keeps no copies of jobs: it is alone")
	}
	done := make(chan error, 1)
	var merged []string
	answers, err := askLoop(ctx, b, func(now time.Time) (out []jobs.CopyAnswer, err error) {
		for i := range list {
			x := &list[i]
			b.keepOutputs(x)
			a := b.heirs.Take(now, keeper, x)
			if _, ended := b.heirs.Copies.Has(x.Job); ended {
				b.files.endJobs([]string{x.Job})
			}
			if out = append(out, a); x.Merge && a.State == jobs.CopyKept {
				merged = append(merged, x.Job)
			}
		}
		b.heirs.waiters = append(b.heirs.waiters, commitWaiter{behind: 1, done: done})
		return out, nil
	})
	if err != nil {
		return nil, err
	}
	if err := b.awaitCommit(ctx, done); err != nil {
		return nil, err
	}
	for _, id := range merged {
		if err := b.doDurably(ctx, id, func(time.Time) error { return nil }); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// Claims returns what this member knows of who keeps jobs. started says that by has just started.
func (b *Buyer) Claims(ctx context.Context, by cluster.WorkerID, ids []string, started bool) ([]jobs.Claim, error) {
	return askLoop(ctx, b, func(time.Time) ([]jobs.Claim, error) {
		if b.heirs == nil {
			return nil, nil
		}
		if started {
			b.heirs.Copies.AskAgain(by)
		}
		return b.heirs.Claims(ids), nil
	})
}
