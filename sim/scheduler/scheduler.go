// Package scheduler holds what every scheduling architecture is written against: jobs of tasks, messages between
// buyers and workers, and the Env in which a step is taken. Each architecture is a small package below this one.
//
// A Strategy is pure: it is told what happened, and says in its Env what is to happen. Time and chance are in the Env.
// The simulator drives it from a heap of ticks; nothing in it knows that.
package scheduler

import (
	"math/rand/v2"

	"github.com/soukhq/souk/core/auction"
)

// Time is a moment or a span, in microseconds.
type Time = int64

// Second is a second of Time.
const Second Time = 1_000_000

// Job is what may be known of a job. How long its tasks really take is not here.
type Job struct {
	Submitted Time
	Estimate  Time  // of one task: the mean of the job, or what the estimator makes of it
	Tasks     int32 // how many it has
	Next      int32 // tasks 0 to Next-1 have been given out
	Ended     int32 // tasks that have ended
	Buyer     int32 // who buys for it
	Kind      int32 // of the workers that its tasks can run on; 0 is any. Worker w is of kind w mod Fleet.Kinds plus 1
	Long      bool  // by the trace's cutoff on the mean task duration
}

// Left gives the number of tasks not yet given out.
func (j *Job) Left() int32 { return j.Tasks - j.Next }

// Work gives the estimated work not yet given out.
func (j *Job) Work() Time { return Time(j.Left()) * j.Estimate }

// Kind says what a message means. Each architecture has its own.
type Kind uint8

// Msg is a message, or a note to oneself. Its Kind says which fields it has.
type Msg struct {
	Time     Time      // the moment or the span that it tells of
	At       Time      // when it was sent, where its age counts
	Bulletin *Bulletin // what a buyer tells the others; those who get it do not change it
	To, From int32     // a worker or a buyer, by its index
	Job      int32
	Task     int32 // of Job: the one that is meant, or the first of Count
	Count    int32 // tasks
	Offer    int32 // of a worker's free slot, counted by the worker from 1
	Kind     Kind
	Hops     uint8
	Flag     bool
	Done     bool
	Note     bool // not sent: a note to oneself
	Sure     bool // sent over a connection that sends again what is lost: loss costs time, not the message
}

// Bulletin is what a buyer tells all others from time to time: the best work it has, and the offers that rest at it.
type Bulletin struct {
	Bid     auction.Bid
	Resting [2]int32 // offers that no task was found for: of workers that take short tasks only, and of the others
	Tasks   int32    // that wait
}

// Number returns what tells a message from others of its kind, for a hash of a run.
func (m *Msg) Number() int32 {
	switch {
	case m.Bulletin != nil:
		return m.Bulletin.Resting[1]
	case m.Offer != 0:
		return m.Offer
	}
	return m.Task
}

// Subject returns the job that a message is about; of a bulletin, what stands for one.
func (m *Msg) Subject() int32 {
	if m.Bulletin != nil {
		return m.Bulletin.Resting[0]
	}
	return m.Job
}

// Out is one thing that is to happen.
type Out struct {
	Msg   Msg
	After Time // from now; of a sent message, on top of the network's delay
	Run   bool // task Msg.Task of job Msg.Job begins on worker Msg.To after After
}

// Env is where a step is taken: what can be seen, and the list of what is to happen.
type Env struct {
	Now      Time
	Jobs     []Job // by number; a Strategy changes Next and Buyer only
	RNG      *rand.Rand
	Delay    Time // one way, of a message
	Outs     []Out
	Messages int64 // sent, and counted

	Conflicts int64 // grants or placements refused, as the room had gone to another
	// holds on a slot that came to nothing: a reservation served when its job had no task left, an offer not used
	Idled int64
}

// Send sends a message over the network.
func (d *Env) Send(m Msg) {
	d.Messages++
	d.Outs = append(d.Outs, Out{Msg: m})
}

// Note delivers a message to its sender after a time. It costs no message and cannot be lost.
func (d *Env) Note(after Time, m Msg) {
	m.Note = true
	d.Outs = append(d.Outs, Out{Msg: m, After: after})
}

// Run begins task n of a job on a worker after a time.
func (d *Env) Run(worker, job, n int32, after Time) {
	d.Outs = append(d.Outs, Out{Msg: Msg{To: worker, Job: job, Task: n}, After: after, Run: true})
}

// Strategy is a scheduling architecture: all of its workers and buyers.
type Strategy interface {
	// Arrive tells that a job has been submitted.
	Arrive(d *Env, job int32)
	// Deliver tells that a message or a note has arrived.
	Deliver(d *Env, m Msg)
	// Ended tells that task n of a job has ended on a worker.
	Ended(d *Env, worker, job, n int32)
}

// Fleet is what a Strategy is built for.
type Fleet struct {
	Workers int
	Slots   int // of each worker; 1 when 0
	Reserve int // the first Reserve workers take tasks of short jobs only
	Kinds   int // of workers, for jobs with constraints; 0 when there are none
}

// Mortal is a Strategy that knows what to do when a worker dies.
type Mortal interface {
	Strategy
	// Died tells that a worker is gone, as only the worker itself would know: from now on it answers nothing.
	Died(d *Env, worker int32)
	// Lost tells that task n of a job was running on a worker whose death has been noticed.
	Lost(d *Env, worker, job, n int32)
	// Noticed tells, after Lost, that the worker is known to be gone.
	Noticed(d *Env, worker int32)
	// Back tells that the worker is there again, and empty.
	Back(d *Env, worker int32)
}
