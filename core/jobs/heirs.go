package jobs

import (
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
)

// Times of heirs.
const (
	heirPatience = 5 * time.Second // a member that takes no copies for so long is no heir any more
	heirPause    = time.Minute     // until it may be one again

	maxMissed = MaxCopies // drops that are repeated to one heir

	// from one batch of copies to the next, if that has only results: nobody waits for them but workers, which keep them
	copyGap = 100 * time.Millisecond
)

// heirState is what is being copied to one member.
type heirState struct {
	id      cluster.WorkerID
	jobs    []*job // with something to send, in order
	sent    []*job // in flight; nil: one that does not matter any more
	drops   []Copy // of jobs that were purged
	leaving []Copy // those of drops that are in flight
	missed  []Copy // those that did not arrive: they are repeated once the member answers again
	sentAt  time.Time
	failing time.Time
	unfit   time.Time // when it was given up
}

func (d *Dispatcher) heirOf(id cluster.WorkerID) *heirState {
	for _, h := range d.heirs {
		if h.id == id {
			return h
		}
	}
	h := &heirState{id: id}
	d.heirs = append(d.heirs, h)
	return h
}

// giveHeir chooses the heir of a new job.
func (d *Dispatcher) giveHeir(j *job) {
	if len(d.best) > 0 {
		j.heir, j.copying.whole = d.best[0], true
	}
}

// askHeir has the heir of a restored job asked whether its copy is up to date. Until it answers, none of the job's tasks
// is given out: it may have taken the job over.
func (d *Dispatcher) askHeir(j *job) {
	j.endSaved = !j.ended.IsZero()
	_, j.head, _ = j.encodeHead(j.past, j.spent) // it was decoded from JSON
	if j.heir != "" {
		j.uncertain, j.copying.probe, j.copying.first = true, true, true
		d.queueCopy(j)
	}
}

// queueCopy has a job sent to its heir.
func (d *Dispatcher) queueCopy(j *job) {
	if c := &j.copying; !c.queued && j.heir != "" {
		c.queued = true
		h := d.heirOf(j.heir)
		h.jobs = append(h.jobs, j)
	}
}

// Heirs sets the members that may be heirs, the best first, and gives the jobs of heirs that are gone another one.
func (d *Dispatcher) Heirs(now time.Time, best []cluster.WorkerID, gone func(cluster.WorkerID) bool) {
	lost := map[cluster.WorkerID]bool{}
	for _, h := range d.heirs {
		if !h.failing.IsZero() && now.Sub(h.failing) >= heirPatience {
			h.failing, h.unfit = time.Time{}, now
		}
		lost[h.id] = !h.unfit.IsZero() && now.Sub(h.unfit) < heirPause
	}
	d.best = slices.DeleteFunc(slices.Clone(best), func(id cluster.WorkerID) bool { return lost[id] })
	for _, j := range d.order {
		if j.rival != nil || j.heir == "" && len(d.best) == 0 {
			continue
		}
		if _, known := lost[j.heir]; !known || !lost[j.heir] {
			lost[j.heir] = j.heir == "" || gone(j.heir)
		}
		if lost[j.heir] {
			d.changeHeir(now, j)
		}
	}
}

// changeHeir gives a job another heir, or none if no member may be one. The epoch grows: it marks the copy at the previous
// heir as out of date.
func (d *Dispatcher) changeHeir(now time.Time, j *job) {
	d.leaveHeir(j)
	if j.heir != "" && j.epoch < MaxEpoch {
		j.epoch++
	}
	j.heir = ""
	d.giveHeir(j)
	j.headDirty = true
	d.dirty[j] = true
	if j.heir == "" {
		d.releaseCopied(j, len(j.copying.groups))
	}
	d.releaseJob(now, j)
	d.noteChanged(j)
}

// leaveHeir drops what is to be sent to a job's heir, but for its groups.
func (d *Dispatcher) leaveHeir(j *job) {
	if j.heir != "" {
		h := d.heirOf(j.heir)
		h.jobs = slices.DeleteFunc(h.jobs, func(o *job) bool { return o == j })
		for i, o := range h.sent {
			if o == j {
				h.sent[i] = nil
			}
		}
	}
	j.copying = copying{groups: j.copying.groups, late: j.copying.late}
}

// releaseCopied has the workers forget the first n groups of results, which are durable.
func (d *Dispatcher) releaseCopied(j *job, n int) {
	c := &j.copying
	for _, g := range c.groups[:n] {
		d.recordResults(g)
	}
	if c.groups = c.groups[n:]; len(c.groups) == 0 {
		c.groups = nil
	}
	if j.heir == "" || j.isHeadSafe() {
		d.recordResults(c.late)
		c.late = nil
	}
}

// releaseJob ends the hold of a restored job: this member keeps it.
func (d *Dispatcher) releaseJob(now time.Time, j *job) {
	if j.uncertain && j.rival == nil && !d.isAdopting(j) {
		j.uncertain = false
		d.enqueueJob(j)
		d.announceWork(now)
	}
}

// repeatDrops sends the drops again that did not arrive.
func (h *heirState) repeatDrops() { h.drops, h.missed = append(h.drops, h.missed...), nil }

// ProbeHeir asks a member that has come back whether its copies are up to date. The member may be an heir again at once:
// that it did not answer was because it was down.
func (d *Dispatcher) ProbeHeir(id cluster.WorkerID) {
	for _, h := range d.heirs {
		if h.id == id {
			h.failing, h.unfit = time.Time{}, time.Time{}
			h.repeatDrops()
		}
	}
	for _, j := range d.order {
		if j.heir == id && j.rival == nil && !j.copying.whole {
			j.copying.probe = true
			d.queueCopy(j)
		}
	}
}

// isUrgent reports whether a caller may wait for something in the list: a job's head, or a whole copy.
func (h *heirState) isUrgent() bool {
	return slices.ContainsFunc(h.jobs, func(j *job) bool {
		return j.copying.probe || j.copying.whole || j.copying.theirs != j.head
	})
}

// Copies returns what is to be sent to heirs now: nothing for those that have not answered the last batch.
func (d *Dispatcher) Copies(now time.Time) (out []CopyBatch) {
	for _, h := range d.heirs {
		if len(h.sent) > 0 || len(h.jobs)+len(h.drops) == 0 || now.Sub(h.sentAt) < copyGap && !h.isUrgent() {
			continue
		}
		h.sentAt = now
		b, size, later := CopyBatch{To: h.id, List: h.drops}, 0, []*job(nil)
		h.sent, h.drops, h.leaving = make([]*job, len(h.drops)), nil, h.drops
		for len(h.jobs) > 0 && size < batchBytes {
			j := h.jobs[0]
			h.jobs = h.jobs[1:]
			if j.headDirty || j.newHead != 0 || j.head == 0 { // once its head is durable
				later = append(later, j)
				continue
			}
			j.copying.queued = false
			if c, ok := d.nextCopy(j); ok {
				b.List, h.sent = append(b.List, c), append(h.sent, j)
				size += 200 + len(c.Head)
				for _, g := range c.Groups {
					size += sizeOf(g)
				}
			}
		}
		h.jobs = append(later, h.jobs...)
		if len(b.List) > 0 {
			out = append(out, b)
		}
	}
	return out
}

// nextCopy makes the next part of a job for its heir; false: it has everything.
func (d *Dispatcher) nextCopy(j *job) (x Copy, ok bool) {
	c := &j.copying
	x = Copy{Job: j.id, Epoch: j.epoch, Sum: j.head, Version: j.records - len(splitGroups(j.saving)),
		Merge: j.rival != nil}
	c.sent = inFlight{head: j.head}
	switch {
	case c.probe:
		x.Probe, x.Restarted, c.sent.probe = true, c.first, true
		x.Version -= len(c.groups)
		return x, true
	case c.whole:
		if c.piece == 0 {
			var saved []Result
			saved, c.past, c.spent = j.savedResults()
			c.rest, c.covered = splitGroups(saved), len(c.groups)
		}
		x.Groups = firstGroups(c.rest)
		x.Version -= len(c.groups) - c.covered
		c.piece++
		c.sent.piece = c.piece
		x.Piece, x.More = c.piece, len(x.Groups) < len(c.rest)
		c.sent.groups, c.sent.last = len(x.Groups), !x.More
		if !x.More {
			x.Head, _, _ = j.encodeHead(c.past, c.spent) // it could be encoded before
		}
		return x, true
	case j.isUpToDate():
		return x, false
	}
	x.Groups = firstGroups(c.groups)
	x.Version -= len(c.groups) - len(x.Groups)
	c.sent.groups = len(x.Groups)
	if c.theirs != j.head {
		x.Head, _, _ = j.encodeHead(j.past, j.spent)
	}
	return x, true
}

// firstGroups returns as many groups as go into one copy, at least one.
func firstGroups(all [][]Result) [][]Result {
	size := 0
	for i, g := range all {
		if size += sizeOf(g); size > pieceBytes && i > 0 {
			return all[:i]
		}
	}
	return all
}

// savedResults returns the newest result of each task that is in the journal, and which attempts it had besides, and
// what they used.
func (j *job) savedResults() (out []Result, past []Past, spent *account) {
	unsaved := map[int]bool{}
	for _, list := range [][]Result{j.unsaved, j.saving} {
		for i := range list {
			unsaved[list[i].Index] = true
		}
	}
	for i := range j.tasks {
		t := &j.tasks[i]
		r := t.result
		if r == nil || unsaved[r.Index] {
			continue
		}
		out = append(out, *r)
		p := Past{r.Index, t.fails, t.lost}
		switch {
		case !r.Retry || r.Evicted != "":
		case r.Lost:
			p.Lost -= min(p.Lost, 1)
		default:
			p.Fails -= min(p.Fails, 1)
		}
		if p.Fails > 0 || p.Lost > 0 {
			past = append(past, p)
		}
	}
	return out, past, j.account.without(j, out, j.unsaved, j.saving)
}

// Copied takes a member's answers to a batch of copies.
func (d *Dispatcher) Copied(now time.Time, by cluster.WorkerID, answers []CopyAnswer) {
	h := d.heirOf(by)
	sent := h.sent
	h.sent, h.failing, h.leaving = nil, time.Time{}, nil
	h.repeatDrops()
	for i, j := range sent {
		if j == nil || d.jobs[j.id] != j {
			continue
		}
		if i >= len(answers) || answers[i].Job != j.id {
			d.resendWhole(j)
			continue
		}
		switch a := &answers[i]; a.State {
		case CopyKept:
			d.noteCopied(now, j)
		case CopyRivaled:
			if a.Rival != nil && j.rival == nil {
				d.Rival(now, *a.Rival)
				continue
			}
			d.resendWhole(j)
		case CopyRefused: // Heirs gives the job another heir, so nothing is sent again to this one
			h.unfit = now
			j.copying.needWhole()
			j.rivalLost = j.rival != nil
		default:
			if j.rival != nil {
				j.rivalLost = true
				continue
			}
			d.resendWhole(j)
			d.releaseJob(now, j)
		}
	}
}

// resendWhole has a whole copy of a job sent.
func (d *Dispatcher) resendWhole(j *job) {
	j.copying.needWhole()
	d.queueCopy(j)
}

// noteCopied reports that the heir has what was in flight.
func (d *Dispatcher) noteCopied(now time.Time, j *job) {
	c := &j.copying
	switch {
	case c.sent.probe:
		c.probe, c.first, c.theirs = false, false, c.sent.head
		d.releaseCopied(j, 0)
	case c.sent.piece > 0:
		c.rest = c.rest[c.sent.groups:]
		if c.sent.last {
			c.whole, c.piece, c.rest, c.theirs = false, 0, nil, c.sent.head
			if j.rival != nil {
				d.forgetHandedOver(j)
				return
			}
			d.releaseCopied(j, c.covered)
		}
	default:
		c.theirs = c.sent.head
		d.releaseCopied(j, c.sent.groups)
	}
	d.releaseJob(now, j)
	d.settleSaved(j)
	d.announceWork(now)
	if !j.isUpToDate() {
		d.queueCopy(j)
	}
}

// NotCopied reports that a member could not be reached with a batch of copies.
func (d *Dispatcher) NotCopied(by cluster.WorkerID) {
	h := d.heirOf(by)
	if h.failing.IsZero() {
		h.failing = h.sentAt
	}
	if h.missed = append(h.missed, h.leaving...); len(h.missed) > maxMissed {
		h.missed = h.missed[len(h.missed)-maxMissed:]
	}
	h.leaving = nil
	for _, j := range h.sent {
		if j == nil || d.jobs[j.id] != j {
			continue
		}
		if c := &j.copying; c.whole && c.piece > 0 {
			c.piece-- // of this piece again
		}
		d.queueCopy(j)
	}
	h.sent = nil
}

// IsSafe reports whether what was last done to a job by its user is durable here and at its heir. A job that is not
// known any more counts as safe.
func (d *Dispatcher) IsSafe(id string) bool {
	j := d.jobs[id]
	return j == nil || j.rival != nil || j.isHeadSafe()
}
