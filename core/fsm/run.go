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

// Run is one active operation on one subject. Exported fields survive a crash.
type Run struct {
	ID   string          `json:"id"`
	Op   string          `json:"op"`
	Key  string          `json:"key"`
	Args json.RawMessage `json:"args,omitempty"` // as the host gave them to Start
	// the step names when the run began: a replay with other steps is refused
	Steps     []string  `json:"steps"`
	At        int       `json:"at"` // index of the current step
	Undoing   bool      `json:"undoing,omitempty"`
	Began     time.Time `json:"began"`
	StepBegan time.Time `json:"step_began"`
	// how far the current step's deadline has moved: by time in which the owner could not act, and by further tries of
	// a step that insists
	Extra  time.Duration `json:"extra,omitempty"`
	Tries  int           `json:"tries,omitempty"`  // of the current step
	Reason string        `json:"reason,omitempty"` // why the current step is not done yet, one sentence
	Cause  *Cause        `json:"cause,omitempty"`  // why the run began to undo
	Done   []DoneStep    `json:"trail,omitempty"`  // the completed steps

	// Memo is for the host to cache its decoded Args. It is not journalled.
	Memo any `json:"-"`

	seq     uint64    // of the newest effect asked for; results of older ones are stale
	out     bool      // an effect is in progress
	retryAt time.Time // zero: no retry is waiting
	took    time.Duration
	late    bool // the host was told by Late
}

// Cause is an error in the journal's form.
type Cause struct {
	Kind fault.Kind `json:"kind"`
	Code fault.Code `json:"code,omitempty"`
	Text string     `json:"text"`
}

// DoneStep records how one step went.
type DoneStep struct {
	Step   string        `json:"step"`
	Took   time.Duration `json:"took"`             // nanoseconds, since the previous step
	Effect time.Duration `json:"effect,omitempty"` // nanoseconds of Took that the effect itself took
	Tries  int           `json:"tries,omitempty"`
	Undo   bool          `json:"undo,omitempty"`
}

// History is the record of a run that has ended.
type History struct {
	ID      string     `json:"id"`
	Op      string     `json:"op"`
	Began   time.Time  `json:"began"`
	Ended   time.Time  `json:"ended"`
	Outcome string     `json:"outcome"` // ok, failed or aborted
	Cause   *Cause     `json:"cause,omitempty"`
	Done    []DoneStep `json:"trail"`
}

// Step returns the name of the current step; "" at the end.
func (r *Run) Step() string {
	if r.At < 0 || r.At >= len(r.Steps) {
		return ""
	}
	return r.Steps[r.At]
}

// RetryAt returns when the current step is tried again; zero while it is being tried.
func (r *Run) RetryAt() time.Time { return r.retryAt }

// restartStepClock resets the clock and the tries for a new step.
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

// decodeRun reads a run record and checks its steps against the definition. It refuses any record it cannot read
// completely.
func decodeRun(rec Record, steps func(op string) ([]string, bool)) (*Run, error) {
	var r Run
	bad := func(format string, args ...any) (*Run, error) {
		return &r, fault.New(fault.Internal, CodeReplay,
			"operation %q of %s cannot continue: "+format+"; destroy the machine, or run the souk that began it again",
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
