package fsm

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/backoff"
)

// stepPause is the pause between tries of one step, plus or minus a fifth.
var stepPause = backoff.Doubling{Base: 50 * time.Millisecond, Most: 5 * time.Second}

// advanceRun asks for the effect of the current step, and skips steps that have nothing to ask for.
func (e *Engine[H]) advanceRun(now time.Time, r *Run, o *Out) {
	d := e.defs[r.Op]
	for {
		if r.Undoing && r.At < 0 {
			e.finishRun(now, r, r.causeError(), o)
			return
		}
		if r.At >= len(d.Steps) {
			e.finishRun(now, r, nil, o)
			return
		}
		var eff *Effect
		s := &d.Steps[r.At]
		switch {
		case !r.Undoing:
			eff = s.Do(e.host, now, r)
		case s.Undo != nil:
			eff = s.Undo(e.host, now, r)
		}
		if eff == nil {
			e.leaveStep(now, r, o)
			continue
		}
		o.Records = append(o.Records, r.encodeRecord())
		if eff.Kind == Await {
			return
		}
		e.seq++
		r.seq, r.out = e.seq, true
		eff.Key, eff.Seq = r.Key, r.seq
		eff.Timeout = max(0, e.stepDue(s, r).Sub(now))
		o.Effects = append(o.Effects, *eff)
		return
	}
}

// leaveStep closes the current step and moves to the one after it, or before it when undoing.
func (e *Engine[H]) leaveStep(now time.Time, r *Run, o *Out) {
	r.Done = append(r.Done, DoneStep{Step: r.Step(), Took: now.Sub(r.StepBegan), Effect: r.took, Tries: r.Tries,
		Undo: r.Undoing})
	if r.Tries > 0 {
		o.Retries = append(o.Retries, r.Key)
	}
	r.took = 0
	if r.Undoing {
		r.At--
	} else {
		r.At++
	}
	r.restartStepClock(now)
	if !r.Undoing {
		r.Reason = ""
	}
}

func (e *Engine[H]) passStep(now time.Time, r *Run, o *Out) {
	e.leaveStep(now, r, o)
	e.advanceRun(now, r, o)
}

// handleFailure handles an effect that failed: it tries the step again, or gives it up.
func (e *Engine[H]) handleFailure(now time.Time, r *Run, s *Step[H], err error, o *Out) {
	r.Tries++
	wait := e.backoffAfter(r.Tries)
	last := s.Tries > 0 && r.Tries >= s.Tries || !now.Add(wait).Before(e.stepDue(s, r))
	giveUp := last && !s.retriesForever(r) || isFinal(err) && !(s.retriesForever(r) && e.isIrreversible(r))
	if !giveUp {
		changed := r.Reason != err.Error()
		r.Reason, r.retryAt = err.Error(), now.Add(wait)
		o.Retries = append(o.Retries, r.Key)
		if changed {
			o.Records = append(o.Records, r.encodeRecord())
		}
		return
	}
	if s.BestEffort && !r.Undoing && !isFinal(err) {
		e.passStep(now, r, o)
		return
	}
	e.beginUndo(now, r, err, o)
}

// isIrreversible reports whether a run goes forward and has completed a step without an Undo. A failure would then be
// reported for something that partly happened, so a step that insists is retried even if a person must first mend the
// cause.
func (e *Engine[H]) isIrreversible(r *Run) bool {
	return !r.Undoing && slices.ContainsFunc(e.defs[r.Op].Steps[:r.At], func(s Step[H]) bool { return s.Undo == nil })
}

// handleOverdue handles a step whose deadline has passed.
func (e *Engine[H]) handleOverdue(now time.Time, r *Run, s *Step[H], o *Out) {
	if s.BestEffort && !r.Undoing {
		e.passStep(now, r, o)
		return
	}
	text := "it took longer than " + e.stepDeadline(s, r).String()
	if s.retriesForever(r) {
		r.Tries++
		r.Extra += e.stepDeadline(s, r)
		r.retryAt = time.Time{}
		if r.Reason == "" {
			r.Reason = text
		}
		o.Retries = append(o.Retries, r.Key)
		if s.Late != nil && !r.late {
			r.late = true
			s.Late(e.host, now, r)
		}
		e.advanceRun(now, r, o)
		return
	}
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	e.beginUndo(now, r, fault.New(fault.Timeout, fault.CodeDeadline,
		"%s of %s failed at step %q: %s", r.Op, r.Key, r.Step(), text), o)
}

// beginUndo gives the current step up. A forward run begins to undo; a run that is undoing skips the step and records
// that.
func (e *Engine[H]) beginUndo(now time.Time, r *Run, err error, o *Out) {
	r.Reason = err.Error()
	if r.Undoing {
		r.Cause.Text += "; and step " + r.Step() + " could not be undone: " + err.Error()
		e.passStep(now, r, o)
		return
	}
	r.Undoing, r.Cause = true, causeOf(err)
	r.restartStepClock(now)
	o.Sync = true // durable before anything is undone
	e.advanceRun(now, r, o)
}

// finishRun ends a run. Its records are not Sync: the run's beginning is durable and its effects have happened, so
// after a crash the run resumes, finds them done, and ends the same way.
func (e *Engine[H]) finishRun(now time.Time, r *Run, err error, o *Out) {
	delete(e.runs, r.Key)
	outcome := "ok"
	switch {
	case Aborted(err):
		outcome = "aborted"
	case err != nil:
		outcome = "failed"
	}
	e.done[r.Op+"/"+outcome]++
	h := History{ID: r.ID, Op: r.Op, Began: r.Began, Ended: now, Outcome: outcome, Cause: causeOf(err), Done: r.Done}
	b, jerr := json.Marshal(h)
	if jerr != nil {
		panic("fsm: a history does not encode: " + jerr.Error()) // plain data: cannot fail
	}
	o.Records = append(o.Records, Record{RunBucket, r.Key, nil}, Record{HistoryBucket, historyKey(r.Key, r.ID), b})
	ids := append(e.history[r.Key], r.ID)
	for len(ids) > MaxHistory {
		o.Records = append(o.Records, Record{HistoryBucket, historyKey(r.Key, ids[0]), nil})
		ids = ids[1:]
	}
	e.history[r.Key] = ids
	e.defs[r.Op].Finish(e.host, now, r, err)
	o.Finished = append(o.Finished, Finished{Key: r.Key, Op: r.Op, ID: r.ID, Err: err})
}

// isFinal reports whether err will be the same at the next try.
func isFinal(err error) bool {
	switch fault.KindOf(err) {
	case fault.Unavailable, fault.Timeout, fault.Internal:
		return false
	}
	return true
}

func (e *Engine[H]) backoffAfter(tries int) time.Duration {
	d := stepPause.After(tries - 1)
	return d*4/5 + time.Duration(e.rand.Int64N(int64(d)*2/5+1))
}

func stepNames[H any](d *Def[H]) []string {
	names := make([]string, len(d.Steps))
	for i, s := range d.Steps {
		names[i] = s.Name
	}
	return names
}

func historyKey(key, id string) string { return key + "|" + id }

func splitHistory(s string) (key, id string) {
	i := strings.LastIndexByte(s, '|')
	if i < 0 {
		return s, ""
	}
	return s[:i], s[i+1:]
}
