package fsm

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/soukhq/souk/fault"
)

// The codes of this package's errors.
const (
	CodeParked fault.Code = "parked" // the machine's operation failed and cannot continue; destroy the machine
	CodeReplay fault.Code = "replay" // the journal does not replay
)

// Await is the Kind of the Effect that a step's Do returns while it only waits for the host's facts to change: the
// engine calls Do again at each Notify.
const Await = "await"

// MaxHistory bounds the ended runs kept for each key.
const MaxHistory = 10

// Effect is an action that a step asks the owner to carry out. Args are the host's own type; they are not journalled.
type Effect struct {
	Key     string
	Seq     uint64 // the Result names it; 0: no result is wanted
	Kind    string
	Args    any
	Timeout time.Duration // what is left of the step's deadline
	Durable bool          // wait until all records so far are committed, even if Sync is not set
	// Ahead allows the effect as soon as the records of its Out survive a crash of the owner. They need not survive a
	// crash of the host yet: the effect does not survive that either.
	Ahead bool
}

// Result is the outcome of an effect.
type Result struct {
	Key  string
	Seq  uint64
	Err  error
	Data any
	Took time.Duration // how long the effect itself took, 0 if unknown
}

// Out is what a transition asks of the owner, who carries out its fields in this order. The owner owns all of it: the
// engine neither keeps nor changes any of it.
type Out struct {
	// Records are to be committed, those of one Out together and successive Outs in order. They may reach the disk
	// later than the effects run, unless Sync is set or an Effect is Durable; they reach it before any records of a
	// later Out.
	Records []Record
	// Sync requires that Records, and all earlier ones, are on the disk before anything below is carried out. Without
	// Records it applies to the earlier ones.
	Sync bool
	// Cancels are the keys of runs whose effect is no longer wanted. The effect may have ended meanwhile; its result
	// still comes and is ignored.
	Cancels []string
	// Effects are to be carried out, each once, in any order and concurrently; the result of each comes back by its
	// Key and Seq. Durable and Ahead say which records an effect waits for.
	Effects []Effect
	// Finished are runs that have ended. Their records are in Records, so with Sync the owner reports the end only
	// after committing them.
	Finished []Finished
	// Retries are the keys of runs whose step failed and is tried again, or succeeded after failed tries: their
	// displayed state has changed. The owner has nothing to carry out for them.
	Retries []string
}

// Finished is a run that has ended.
type Finished struct {
	Key, Op, ID string
	Err         error // nil: the run succeeded
}

// Step is one step of a definition. Its functions are pure, except that they change the host's subjects.
type Step[H any] struct {
	Name     string
	Deadline time.Duration // over all tries; always set
	// DeadlineOf, if set, returns the deadline of one run instead. It must depend on the run's Args alone.
	DeadlineOf func(r *Run) time.Duration
	BestEffort bool // if it cannot be done in time, the run skips it instead of failing
	// Insists has the step tried again whenever its deadline has passed, until it is done: the run does not fail over
	// it. InsistsUndo does the same for Undo. An error that is final still ends the run, unless the run has completed
	// a step without an Undo.
	Insists, InsistsUndo bool
	// Late tells the host, once, that a step that insists has taken too long. nil: the host is not told.
	Late  func(h H, now time.Time, r *Run)
	Tries int // the most tries; 0: as many as fit the deadline
	// Do returns the effect to ask for; nil if nothing is (left) to do.
	Do func(h H, now time.Time, r *Run) *Effect
	// Done applies the result to the host. nil: nothing to apply.
	Done func(h H, now time.Time, r *Run, data any)
	// Undo returns the effect that reverses Do, also after Do failed half-way. nil: nothing to reverse.
	Undo func(h H, now time.Time, r *Run) *Effect
}

func (e *Engine[H]) stepDeadline(s *Step[H], r *Run) time.Duration {
	d := s.Deadline
	if s.DeadlineOf != nil {
		d = s.DeadlineOf(r)
	}
	return d / e.haste
}

func (e *Engine[H]) stepDue(s *Step[H], r *Run) time.Time {
	return r.StepBegan.Add(e.stepDeadline(s, r) + r.Extra)
}

// Hasten divides all deadlines by by, for tests.
func (e *Engine[H]) Hasten(by int) { e.haste = time.Duration(max(1, by)) }

func (s *Step[H]) retriesForever(r *Run) bool {
	return r.Undoing && s.InsistsUndo || !r.Undoing && s.Insists
}

// Def is the definition of an operation.
type Def[H any] struct {
	Op    string
	Steps []Step[H]
	// Finish brings the subject to its final state; err is why the operation failed, or nil.
	Finish func(h H, now time.Time, r *Run, err error)
}

// Engine runs operations. It is not safe for concurrent use.
type Engine[H any] struct {
	host    H
	defs    map[string]*Def[H]
	runs    map[string]*Run
	parked  map[string]parked // by key
	history map[string][]string
	rand    *rand.Rand
	seq     uint64
	done    map[string]uint64 // by op/outcome
	haste   time.Duration     // all deadlines are divided by it
}

// parked is a run that cannot continue, decoded as far as its record can be read.
type parked struct {
	run *Run
	why string
}

// NewEngine makes an engine over a host's subjects. It panics on a definition without deadline: that is a programming
// error.
func NewEngine[H any](host H, rng *rand.Rand, defs ...*Def[H]) *Engine[H] {
	e := &Engine[H]{host: host, defs: map[string]*Def[H]{}, runs: map[string]*Run{}, parked: map[string]parked{},
		history: map[string][]string{}, rand: rng, done: map[string]uint64{}, haste: 1}
	for _, d := range defs {
		for _, s := range d.Steps {
			if s.Deadline <= 0 || s.Do == nil {
				panic("fsm: step " + d.Op + "/" + s.Name + " needs a deadline and a Do")
			}
		}
		e.defs[d.Op] = d
	}
	return e
}

// Free returns nil if Start can begin a run of key, a Conflict while a run is active, and a Precondition if a run is
// parked.
func (e *Engine[H]) Free(key string) error {
	if r, ok := e.runs[key]; ok {
		return fault.New(fault.Conflict, fault.CodeBusy,
			"the operation %s of %s is under way (step %q); wait for it to end", r.Op, key,
			r.Step())
	}
	if p, ok := e.parked[key]; ok {
		return fault.New(fault.Precondition, CodeParked, "%s", p.why)
	}
	return nil
}

// Start begins a run, if Free returns nil.
func (e *Engine[H]) Start(now time.Time, op, key, id string, args any, o *Out) error {
	if err := e.Free(key); err != nil {
		return err
	}
	d, ok := e.defs[op]
	if !ok {
		return fault.New(fault.Internal, fault.CodeOp, "no operation is named %q", op)
	}
	var raw json.RawMessage
	if args != nil {
		b, err := json.Marshal(args)
		if err != nil {
			return fault.Wrap(err, fault.Internal, fault.CodeOp, "the arguments of %s do not encode", op)
		}
		raw = b
	}
	r := &Run{ID: id, Op: op, Key: key, Args: raw, Steps: stepNames(d), Began: now, StepBegan: now}
	e.runs[key] = r
	o.Sync = true
	e.advanceRun(now, r, o)
	return nil
}

// Result handles the result of an effect. A stale result is dropped.
func (e *Engine[H]) Result(now time.Time, res Result, o *Out) {
	r, ok := e.runs[res.Key]
	if !ok || !r.out || r.seq != res.Seq {
		return
	}
	r.out = false
	r.took += res.Took
	s := &e.defs[r.Op].Steps[r.At]
	if res.Err != nil {
		e.handleFailure(now, r, s, res.Err, o)
		return
	}
	if s.Done != nil && !r.Undoing {
		s.Done(e.host, now, r, res.Data)
	}
	e.passStep(now, r, o)
}

// Notify reports that the host's facts about key have changed: a waiting step calls Do again.
func (e *Engine[H]) Notify(now time.Time, key string, o *Out) {
	if r, ok := e.runs[key]; ok && !r.out && r.retryAt.IsZero() {
		e.advanceRun(now, r, o)
	}
}

// Tick acts on deadlines and retries that have come due.
func (e *Engine[H]) Tick(now time.Time, o *Out) {
	for _, key := range slices.Sorted(maps.Keys(e.runs)) { // in order, so that a simulation is repeatable
		r := e.runs[key]
		s := &e.defs[r.Op].Steps[r.At]
		switch {
		case !now.Before(e.stepDue(s, r)):
			if r.out {
				o.Cancels = append(o.Cancels, key)
			}
			r.out = false
			e.handleOverdue(now, r, s, o)
		case !r.retryAt.IsZero() && !now.Before(r.retryAt):
			r.retryAt = time.Time{}
			e.advanceRun(now, r, o)
		}
	}
}

// Missed reports that no effect could be carried out for the last d: the deadlines of active steps move by d.
func (e *Engine[H]) Missed(now time.Time, d time.Duration) {
	for _, r := range e.runs {
		r.Extra += max(0, min(d, now.Sub(r.StepBegan)))
	}
}

// Abort ends the run of key at once, without undoing: the caller takes over the subject. A parked run is deleted.
func (e *Engine[H]) Abort(now time.Time, key, why string, o *Out) {
	if _, ok := e.parked[key]; ok {
		delete(e.parked, key)
		o.Records = append(o.Records, Record{RunBucket, key, nil})
		o.Sync = true
	}
	r, ok := e.runs[key]
	if !ok {
		return
	}
	if r.out {
		o.Cancels = append(o.Cancels, key)
	}
	r.out = false
	e.finishRun(now, r, &fault.Error{Kind: fault.Conflict, Code: codeAborted, Text: why}, o)
}

// codeAborted says that the run was aborted.
const codeAborted fault.Code = "aborted"

// Aborted reports whether a run ended with err because it was aborted.
func Aborted(err error) bool { return fault.CodeOf(err) == codeAborted }

// Active returns the run of key, or nil. It is the engine's own: read only.
func (e *Engine[H]) Active(key string) *Run { return e.runs[key] }

// Each calls f for every run on its way, in no order.
func (e *Engine[H]) Each(f func(*Run)) {
	for _, r := range e.runs {
		f(r)
	}
}

// Parked returns the parked run of key, as far as its record can be read, and why it cannot continue; nil if there is
// none.
func (e *Engine[H]) Parked(key string) (r *Run, why string) {
	p := e.parked[key]
	return p.run, p.why
}

// Park sets the run of key aside, for a reason that only a person can mend.
func (e *Engine[H]) Park(key, why string) {
	r := e.runs[key]
	if r == nil {
		r = &Run{Key: key}
	}
	e.parked[key] = parked{r, why}
	delete(e.runs, key)
}

// Next returns when Tick is next due; zero if nothing waits.
func (e *Engine[H]) Next() time.Time {
	var first time.Time
	for _, r := range e.runs {
		at := e.stepDue(&e.defs[r.Op].Steps[r.At], r)
		if !r.retryAt.IsZero() && r.retryAt.Before(at) {
			at = r.retryAt
		}
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

// Counts returns the active runs by operation, how many runs are stuck (failing for over a minute, or parked), and the
// ended runs by "op/outcome".
func (e *Engine[H]) Counts(now time.Time) (active map[string]int, stuck int, done map[string]uint64) {
	active = map[string]int{}
	for _, r := range e.runs {
		active[r.Op]++
		if r.Reason != "" && now.Sub(r.StepBegan) > time.Minute {
			stuck++
		}
	}
	return active, stuck + len(e.parked), maps.Clone(e.done)
}

// Restore takes back a record of the engine's buckets. A run that it cannot decode or does not know is parked and
// returned as an error: the owner reports it and continues.
func (e *Engine[H]) Restore(rec Record) error {
	if rec.Bucket == HistoryBucket {
		key, id := splitHistory(rec.Key)
		e.history[key] = append(e.history[key], id)
		return nil
	}
	r, err := decodeRun(rec, func(op string) ([]string, bool) {
		d, ok := e.defs[op]
		if !ok {
			return nil, false
		}
		return stepNames(d), true
	})
	if err != nil {
		e.parked[rec.Key] = parked{r, err.Error()}
		return err
	}
	e.runs[rec.Key] = r
	return nil
}

// Resume continues every restored run: the effect of its current step is asked for again, with the step's whole
// deadline.
func (e *Engine[H]) Resume(now time.Time, o *Out) {
	for _, key := range slices.Sorted(maps.Keys(e.runs)) {
		r := e.runs[key]
		r.Extra = max(0, now.Sub(r.StepBegan)) // it is unknown how much of it souk was running
		e.advanceRun(now, r, o)
	}
}

// Forget drops the history of a key.
func (e *Engine[H]) Forget(key string, o *Out) {
	for _, id := range e.history[key] {
		o.Records = append(o.Records, Record{HistoryBucket, historyKey(key, id), nil})
	}
	delete(e.history, key)
}
