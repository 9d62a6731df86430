package fleet

import (
	"time"

	"github.com/soukhq/souk/cluster"
)

// State is what is believed of a worker's member.
type State string

// The states. A worker of this process is Alive.
const (
	Unheard State = ""        // it is expected, and nothing was heard of it yet
	Alive   State = "alive"   // it answers
	Suspect State = "suspect" // it did not answer lately, and may yet
	Dead    State = "dead"    // it has not answered for so long that it counts as gone; its machines may be running
	Left    State = "left"    // it said goodbye
)

// Worker is what is known of one worker. It does not change: a change makes another one.
type Worker struct {
	ID     cluster.WorkerID
	Record cluster.Record // as the worker last said; zero until Told
	Told   bool           // false: it may have anything, so it must be asked
	State  State
	Since  time.Time // of State
	Addr   string    // host:port at which its member is called; "" where that is not known
	Heard  time.Time // when Record came
	Own    bool      // it is a worker of this process

	epoch uint64 // of its records: see Edit.Record
}

// Reachable reports whether the worker can be asked for something with hope of an answer.
func (w *Worker) Reachable() bool { return w.State == Alive || w.State == Suspect }

// mustBeAsked reports whether the worker may have anything, as it is somewhere and has told nothing yet.
func (w *Worker) mustBeAsked() bool { return !w.Told && w.State != Left }

// Ready reports whether the worker can be asked and its record is known, so that it can be ranked.
func (w *Worker) Ready() bool { return w.Told && w.Reachable() }

// Member is what is believed of the member that a worker belongs to.
type Member struct {
	ID    cluster.WorkerID
	State State
	Since time.Time // of State
	Addr  string    // host:port at which it is called; "" where that is not known
}

func workerBefore(a, b *Worker) bool { return a.ID < b.ID }
