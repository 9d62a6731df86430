package fsm

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/soukhq/souk/fault"
)

// Buckets of the engine's records in a journal.
const (
	RunBucket     = "run"     // key: the subject's key
	HistoryBucket = "history" // key: the subject's key, "|", the run's id
)

// Run is one operation on one subject, on its way. Exported fields are what a crash leaves.
type Run struct {
	ID   string          `json:"id"`
	Op   string          `json:"op"`
	Key  string          `json:"key"`
	Args json.RawMessage `json:"args,omitempty"` // as the host gave them to Start
	// as they were when the run began: a replay under other steps is refused
	Steps     []string  `json:"steps"`
	At        int       `json:"at"` // index of the current step
	Undoing   bool      `json:"undoing,omitempty"`
	Began     time.Time `json:"began"`
	StepBegan time.Time `json:"step_began"`
	// by which the current step's deadline has moved: time in which nobody could act, and further tries of one that
	// insists
	Extra  time.Duration `json:"extra,omitempty"`
	Tries  int           `json:"tries,omitempty"`  // of the current step
	Reason string        `json:"reason,omitempty"` // why the current step is not done yet, one sentence
	Cause  *Cause        `json:"cause,omitempty"`  // why it turned to undo
	Done   []DoneStep    `json:"trail,omitempty"`  // the steps behind it

	// Memo is the host's to keep what it has decoded of Args. It is not journalled.
	Memo any `json:"-"`

	seq     uint64    // of the newest effect asked for; results of older ones are stale
	out     bool      // an effect is being carried out
	retryAt time.Time // zero: no retry is waiting
	took    time.Duration
	late    bool // the host was told
}

// Cause is an error as a journal keeps it.
type Cause struct {
	Kind fault.Kind `json:"kind"`
	Code fault.Code `json:"code,omitempty"`
	Text string     `json:"text"`
}

// DoneStep tells how one step went.
type DoneStep struct {
	Step   string        `json:"step"`
	Took   time.Duration `json:"took"`             // nanoseconds, from the step before
	Effect time.Duration `json:"effect,omitempty"` // nanoseconds of that in the effect itself
	Tries  int           `json:"tries,omitempty"`
	Undo   bool          `json:"undo,omitempty"`
}

// History is what is kept of a run that has ended.
type History struct {
	ID      string     `json:"id"`
	Op      string     `json:"op"`
	Began   time.Time  `json:"began"`
	Ended   time.Time  `json:"ended"`
	Outcome string     `json:"outcome"` // ok, failed or aborted
	Cause   *Cause     `json:"cause,omitempty"`
	Done    []DoneStep `json:"trail"`
}

// Step is the name of the current step; "" at the end.
func (r *Run) Step() string {
	if r.At < 0 || r.At >= len(r.Steps) {
		return ""
	}
	return r.Steps[r.At]
}

// RetryAt returns when the current step is tried again; zero while it is being tried.
func (r *Run) RetryAt() time.Time { return r.retryAt }

// restartStepClock begins the time of a step.
func (r *Run) restartStepClock(now time.Time) {
	r.StepBegan, r.Extra, r.Tries, r.retryAt, r.late = now, 0, 0, time.Time{}, false
}

func (r *Run) causeError() error {
	if r.Cause == nil {
		return nil
	}
	return &fault.Error{Kind: r.Cause.Kind, Code: r.Cause.Code, Text: r.Cause.Text}
}

func (r *Run) encodeRecord() Record {
	b, err := json.Marshal(r)
	if err != nil {
		panic("fsm: a run does not encode: " + err.Error()) // plain data, valid Args: cannot happen
	}
	return Record{RunBucket, r.Key, b}
}

func causeOf(err error) *Cause {
	if err == nil {
		return nil
	}
	e := fault.As(err)
	return &Cause{Kind: e.Kind, Code: e.Code, Text: e.Error()}
}

// decodeRun reads a run record and holds it against the definitions' steps. It refuses what it does not know whole.
func decodeRun(rec Record, steps func(op string) ([]string, bool)) (*Run, error) {
	var r Run
	bad := func(format string, args ...any) (*Run, error) {
		return &r, fault.New(fault.Internal, CodeReplay,
			"operation %q of %s cannot go on: "+format+"; destroy the machine, or go back to the souk that began it",
			append([]any{r.Op, rec.Key}, args...)...)
	}
	if err := json.Unmarshal(rec.Value, &r); err != nil {
		return bad("its record does not read (%v)", err)
	}
	known, ok := steps(r.Op)
	switch {
	case r.Key != rec.Key:
		return bad("its record is filed under another key (%q)", r.Key)
	case !ok:
		return bad("this souk has no such operation")
	case !slices.Equal(known, r.Steps):
		return bad("it was begun with the steps %q, and this souk knows %q", r.Steps, known)
	case r.At > len(r.Steps) || r.At < -1 || (r.At < 0 && !r.Undoing) || (r.Undoing && r.At == len(r.Steps)):
		return bad("it stands at step %d of %d", r.At, len(r.Steps))
	case r.Tries < 0:
		return bad("it has had %d tries", r.Tries)
	case r.Undoing && r.Cause == nil:
		return bad("it is being undone for no reason")
	}
	return &r, nil
}
