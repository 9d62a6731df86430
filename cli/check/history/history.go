// Package history records the calls of a cluster's clients with their answers, and checks that they are linearizable:
// each call took effect once, at some moment between its beginning and its answer (Herlihy and Wing, TOPLAS 1990). The
// search is porcupine's.
//
// A history is a file of lines of JSON, one Op each, in the order of their answers.
package history

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"sync"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// Kind is the kind of a call, or of an event at a worker.
type Kind string

// The kinds.
const (
	Create       Kind = "create"
	Destroy      Kind = "destroy"
	Hold         Kind = "hold"
	Release      Kind = "release"
	Lease        Kind = "lease"         // take a free lease; the answer has Nonce
	ReleaseLease Kind = "release_lease" // release the lease with Nonce

	Killed Kind = "killed" // the worker's process was killed, and served again at Return: its holds are gone
	// the worker was restored from a disk copy made at Call: what it did since is gone
	Restored Kind = "restored"
)

// Outcome is what a client knows of a call's effect.
type Outcome string

// The outcomes.
const (
	Yes    Outcome = "yes"
	No     Outcome = "no"     // an answer that nothing was done
	Unsure Outcome = "unsure" // no answer: it was done, was not, or will be
)

// Op is one call with its answer. A call that was repeated until it was answered is one Op from its first try.
type Op struct {
	Kind     Kind             `json:"kind"`
	Client   int              `json:"client"`
	Call     int64            `json:"call"`   // when it began: Unix nanoseconds of this host's clock
	Return   int64            `json:"return"` // when it was answered: as Call
	Gateway  string           `json:"gateway,omitempty"`
	App      string           `json:"app,omitempty"`
	Machine  string           `json:"machine,omitempty"`
	Instance string           `json:"instance,omitempty"` // the instance id that a create returned
	Worker   cluster.WorkerID `json:"worker,omitempty"`   // the worker that has the machine, or was asked
	Token    string           `json:"token,omitempty"`    // token of a hold to make or redeem
	Nonce    string           `json:"nonce,omitempty"`    // nonce of a lease
	Expires  int64            `json:"expires,omitempty"`  // end of a hold, Unix nanoseconds
	Outcome  Outcome          `json:"outcome"`
	Code     fault.Code       `json:"code,omitempty"`  // the error's code, for No
	Tries    int              `json:"tries,omitempty"` // number of tries
}

// Recorder writes a history. It may be used by many goroutines.
type Recorder struct {
	mu  sync.Mutex
	out *json.Encoder
	ops []Op
	err error
}

// NewRecorder makes a recorder that writes each Op to w at once, and keeps it.
func NewRecorder(w io.Writer) *Recorder { return &Recorder{out: json.NewEncoder(w)} }

// Add records an Op.
func (r *Recorder) Add(o Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, o)
	if err := r.out.Encode(o); r.err == nil {
		r.err = err
	}
}

// Ops returns what was recorded, or why it could not be written.
func (r *Recorder) Ops() ([]Op, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Op(nil), r.ops...), r.err
}

// maxLine bounds a line of a history, in bytes.
const maxLine = 1 << 16

// Read reads a history's file.
func Read(path string) (ops []Op, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, fault.CodeHistory, "the history %s cannot be read", path)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, maxLine)
	for n := 1; sc.Scan(); n++ {
		var o Op
		if err := json.Unmarshal(sc.Bytes(), &o); err != nil {
			return nil, fault.Wrap(err, fault.Invalid, fault.CodeHistory,
				"line %d of the history %s is no call with its answer", n,
				path)
		}
		ops = append(ops, o)
	}
	if err := sc.Err(); err != nil {
		return nil, fault.Wrap(err, fault.Invalid, fault.CodeHistory, "the history %s cannot be read", path)
	}
	return ops, nil
}
