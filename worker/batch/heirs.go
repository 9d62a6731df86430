package batch

import (
	"context"
	"slices"
	"sync"
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
	// Claims asks a member which of these jobs it keeps, or has copies of.
	Claims(ctx context.Context, id cluster.WorkerID, ids []string) ([]jobs.Claim, error)
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
	asking  bool // members are being asked who keeps jobs
}

// openHeirs loads the copies of other members' jobs.
func openHeirs(o *BuyerOptions, d *jobs.Dispatcher) (*heirs, error) {
	h := &heirs{members: o.Members, journal: o.Copies, saved: make(chan error, 1), heard: map[cluster.WorkerID]bool{},
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
				b.postFunc(func(now time.Time) { b.dispatcher.NotCopied(now, batch.To) })
			}
		}()
	}
}

// addOutputs adds to copies what the tasks wrote, as far as it is here.
func (b *Buyer) addOutputs(list []jobs.Copy) {
	for k := range list {
		x := &list[k]
		var outputs [][]byte
		any := false
		x.EachResult(func(_ int, r *jobs.Result) {
			out := b.files.rawOutput(r, x.Job)
			outputs, any = append(outputs, out), any || len(out) > 0
		})
		if any {
			x.Outputs, x.Namespace = outputs, b.files.namespaceOf(x.Job)
		}
	}
}

// keepOutputs keeps what came with a copy.
func (b *Buyer) keepOutputs(x *jobs.Copy) {
	if len(x.Outputs) == 0 || !x.Merge && b.dispatcher.ClaimOf(b.o.Member, x.Job) != nil {
		return
	}
	b.files.addJob(x.Job, x.Namespace, 0)
	x.EachResult(func(i int, r *jobs.Result) {
		if i >= len(x.Outputs) || len(x.Outputs[i]) == 0 {
			return
		}
		r.Offset, r.Bytes, r.Cut = b.files.keepOutput(x.Job, x.Outputs[i], r.Cut)
		r.OutputAt = b.o.Member
	})
}

// purgeOutputs removes the output of those of these jobs that are neither kept nor copied here any more.
func (b *Buyer) purgeOutputs(ids []string) {
	b.files.purgeJobs(slices.DeleteFunc(ids, func(id string) bool {
		copied := false
		if b.heirs != nil {
			copied, _ = b.heirs.Copies.Has(id)
		}
		return copied || b.dispatcher.IDOf(id) == id
	}))
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

// Claims returns what this member knows of who keeps jobs.
func (b *Buyer) Claims(ctx context.Context, ids []string) ([]jobs.Claim, error) {
	return askLoop(ctx, b, func(time.Time) ([]jobs.Claim, error) {
		if b.heirs == nil {
			return nil, nil
		}
		return b.heirs.Claims(ids), nil
	})
}

// lookAtMembers gives jobs heirs, and takes over those of members that are gone.
func (b *Buyer) lookAtMembers(now time.Time) {
	h := b.heirs
	if now.Sub(h.looked) < membersEvery {
		return
	}
	h.looked = now
	gone := b.giveHeirs(now)
	heard := h.members.Heard()
	b.askNewlyHeard(heard)
	if h.asking {
		return
	}
	lost, ask := h.Copies.Due(now, gone)
	unclaimed := b.dispatcher.Unclaimed(gone)
	if len(lost)+len(ask)+len(unclaimed) > 0 {
		h.asking = true
		go b.findKeepers(heard, ask, lost, unclaimed)
	}
}

// giveHeirs gives jobs heirs. It returns which members are gone.
func (b *Buyer) giveHeirs(now time.Time) (gone func(cluster.WorkerID) bool) {
	known := map[cluster.WorkerID]bool{}
	gone = func(id cluster.WorkerID) bool {
		is, asked := known[id]
		if !asked {
			is = b.heirs.members.Gone(id)
			known[id] = is
		}
		return is
	}
	b.dispatcher.Heirs(now, b.heirs.members.Heirs(), gone)
	return gone
}

// askNewlyHeard asks the members that were not heard before whether they have taken over jobs of this one.
func (b *Buyer) askNewlyHeard(heard []cluster.WorkerID) {
	h, before := b.heirs, b.heirs.heard
	h.heard = make(map[cluster.WorkerID]bool, len(heard))
	var ids []string
	for _, id := range heard {
		if h.heard[id] = true; before[id] {
			continue
		}
		b.dispatcher.ProbeHeir(id)
		if ids == nil {
			ids = b.dispatcher.Disputable()
		}
		if len(ids) > 0 {
			go b.askDisputes(id, ids)
		}
	}
}

func (b *Buyer) askDisputes(id cluster.WorkerID, ids []string) {
	ctx, cancel := context.WithTimeout(b.run, claimTime)
	defer cancel()
	claims, err := b.heirs.members.Claims(ctx, id, ids)
	b.postFunc(func(now time.Time) {
		if err != nil {
			delete(b.heirs.heard, id) // it is asked again
		}
		if send := b.heirs.HearClaims(now, id, claims); len(send) > 0 {
			go b.sendClaims(id, send)
		}
	})
}

// sendClaims has a member find that this one has taken over jobs which it still keeps.
func (b *Buyer) sendClaims(id cluster.WorkerID, list []jobs.Copy) {
	ctx, cancel := context.WithTimeout(b.run, copyTime)
	defer cancel()
	answers, err := b.heirs.members.Copy(ctx, id, list)
	b.postFunc(func(now time.Time) {
		if err != nil {
			delete(b.heirs.heard, id) // it is asked again
		}
		for _, a := range answers {
			if a.Rival != nil { // its claim has grown since
				b.heirs.HearClaims(now, id, []jobs.Claim{*a.Rival})
			}
		}
	})
}

// findKeepers asks who keeps jobs: the keepers of copies whether these are up to date, and, where the keeper is gone, all
// members whether they have taken over the job. If none has, this one does.
func (b *Buyer) findKeepers(heard []cluster.WorkerID, ask map[cluster.WorkerID][]string, lost, unclaimed []string) {
	h := b.heirs
	type answer struct {
		keeper cluster.WorkerID
		claims []jobs.Claim
	}
	var confirmed []answer
	var mu sync.Mutex
	var all sync.WaitGroup
	for keeper, ids := range ask { // side by side, since takeovers wait for the answers
		all.Go(func() {
			ctx, cancel := context.WithTimeout(b.run, claimTime)
			defer cancel()
			if claims, err := h.members.Claims(ctx, keeper, ids); err == nil {
				mu.Lock()
				defer mu.Unlock()
				confirmed = append(confirmed, answer{keeper, claims})
			}
		})
	}
	all.Wait()
	claims, silent := b.askAll(heard, slices.Concat(unclaimed, lost))
	b.postFunc(func(now time.Time) {
		h.asking = false
		for _, a := range confirmed {
			h.Confirm(now, a.keeper, ask[a.keeper], a.claims)
		}
		h.TakeOver(now, lost, claims, silent)
		for _, id := range unclaimed {
			h.Reclaim(now, id, claims, silent)
		}
	})
}

// askAll asks all members for their claims about jobs; silent: not all have answered.
func (b *Buyer) askAll(heard []cluster.WorkerID, ids []string) (claims []jobs.Claim, silent bool) {
	if len(ids) == 0 {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(b.run, claimTime)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, id := range heard {
		wg.Go(func() {
			list, err := b.heirs.members.Claims(ctx, id, ids)
			mu.Lock()
			defer mu.Unlock()
			claims, silent = append(claims, list...), silent || err != nil
		})
	}
	wg.Wait()
	return claims, silent
}

// renewWorkers connects all workers anew, so that they hear which jobs were taken over and say which tasks run.
func (b *Buyer) renewWorkers() {
	b.connsMu.Lock()
	defer b.connsMu.Unlock()
	for id, c := range b.conns {
		if near, is := c.(*LocalConn); !is {
			b.o.Peers.Disconnect(id)
		} else {
			go func() { _ = b.Attach(b.run, near) }() // a local runner refuses nobody
		}
	}
}
