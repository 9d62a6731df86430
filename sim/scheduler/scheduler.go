// Package scheduler defines the interface of all scheduling architectures: jobs of tasks, messages between buyers and
// workers, and the Env in which a step is taken. Each architecture is a small package below this one.
//
// A Strategy is pure: its methods report what happened, and it adds to its Env what is to happen. Time and randomness
// come from the Env. The simulator drives it from a heap of ticks, which it does not know.
package scheduler

import (
	"math/rand/v2"

	"github.com/soukhq/souk/core/auction"
)

// Time is a moment or a span, in microseconds.
type Time = int64

// Second is a second of Time.
const Second Time = 1_000_000

// Job is what schedulers may know of a job. The actual durations of its tasks are not here.
type Job struct {
	Submitted Time
	Estimate  Time  // of one task: the job's mean, or an estimate with errors
	Tasks     int32 // how many it has
	Next      int32 // tasks 0 to Next-1 have been given out
	Ended     int32 // tasks that have ended
	Buyer     int32 // the buyer of the job
	Kind      int32 // of the workers that its tasks can run on; 0 is any. Worker w is of kind w mod Fleet.Kinds plus 1
	Long      bool  // by the trace's cutoff on the mean task duration
}

// Left returns the number of tasks not yet given out.
func (j *Job) Left() int32 { return j.Tasks - j.Next }

// Work returns the estimated work not yet given out.
func (j *Job) Work() Time { return Time(j.Left()) * j.Estimate }

// Kind is the kind of a message. Each architecture has its own.
type Kind uint8

// Msg is a message, or a note to its sender. Its Kind determines which fields are set.
type Msg struct {
	Time     Time      // the moment or the span that it is about
	At       Time      // when it was sent, if its age matters
	Bulletin *Bulletin // receivers must not change it
	To, From int32     // a worker or a buyer, by its index
	Job      int32
	Task     int32 // a task of Job, or the first of Count
	Count    int32 // tasks
	Offer    int32 // of a worker's free slot, counted by the worker from 1
	Kind     Kind
	Hops     uint8
	Flag     bool
	Done     bool
	Note     bool // not sent: a note to its sender
	Sure     bool // sent over a connection that repeats lost packets: a loss costs time, not the message
}

// Bulletin is a buyer's periodic message to all others: its best work, and the offers that rest with it.
type Bulletin struct {
	Bid     auction.Bid
	Resting [2]int32 // offers without a task: of workers that run short tasks only, and of the others
	Tasks   int32    // waiting tasks
}

// Number returns what distinguishes a message from others of its kind, for a hash of a run.
func (m *Msg) Number() int32 {
	switch {
	case m.Bulletin != nil:
		return m.Bulletin.Resting[1]
	case m.Offer != 0:
		return m.Offer
	}
	return m.Task
}

// Subject returns the job that a message is about; for a bulletin, a number that represents it.
func (m *Msg) Subject() int32 {
	if m.Bulletin != nil {
		return m.Bulletin.Resting[0]
	}
	return m.Job
}

// Out is one action that follows from a step.
type Out struct {
	Msg   Msg
	After Time // from now; of a sent message, on top of the network's delay
	Run   bool // task Msg.Task of job Msg.Job begins on worker Msg.To after After
}

// Env is the environment of a step: its inputs, and the list of actions.
type Env struct {
	Now      Time
	Jobs     []Job // by number; a Strategy changes only Next and Buyer
	RNG      *rand.Rand
	Delay    Time // one way, of a message
	Outs     []Out
	Messages int64 // sent, and counted

	Conflicts int64 // refused grants or placements, as the room was taken by another
	// slots held in vain: a reservation served when its job had no task left, or an unused offer
	Idled int64
}

// Send sends a message over the network.
func (d *Env) Send(m Msg) {
	d.Messages++
	d.Outs = append(d.Outs, Out{Msg: m})
}

// Note delivers a message to its sender after a time. It does not count as a message and cannot be lost.
func (d *Env) Note(after Time, m Msg) {
	m.Note = true
	d.Outs = append(d.Outs, Out{Msg: m, After: after})
}

// Run starts task n of a job on a worker after a time.
func (d *Env) Run(worker, job, n int32, after Time) {
	d.Outs = append(d.Outs, Out{Msg: Msg{To: worker, Job: job, Task: n}, After: after, Run: true})
}

// Strategy is a scheduling architecture, with all its workers and buyers.
type Strategy interface {
	// Arrive reports that a job was submitted.
	Arrive(d *Env, job int32)
	// Deliver reports that a message or a note has arrived.
	Deliver(d *Env, m Msg)
	// Ended reports that task n of a job has ended on a worker.
	Ended(d *Env, worker, job, n int32)
}

// Fleet is the fleet that a Strategy is built for.
type Fleet struct {
	Workers int
	Slots   int // of each worker; 1 when 0
	Reserve int // the first Reserve workers run only tasks of short jobs
	Kinds   int // number of kinds of workers, for jobs with constraints; 0: none
}

// Mortal is a Strategy that handles the death of workers.
type Mortal interface {
	Strategy
	// Died reports a worker's death as only the worker itself knows it: it does not answer from now on.
	Died(d *Env, worker int32)
	// Lost reports that task n of a job was running on a worker whose death has been noticed.
	Lost(d *Env, worker, job, n int32)
	// Noticed reports, after Lost, that the worker is known to be dead.
	Noticed(d *Env, worker int32)
	// Back reports that the worker is alive again, and empty.
	Back(d *Env, worker int32)
}
