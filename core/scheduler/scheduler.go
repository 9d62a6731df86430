// Package scheduler defines the interface of all scheduling architectures: jobs of tasks, the parties that schedule
// and run them, messages between parties, and the Env in which a step is taken. Each architecture is a small package
// below this one.
//
// A Strategy is pure: its methods report what happened, and it adds to its Env what is to happen. Time and randomness
// come from the Env. The simulator drives it from a heap of ticks, which it does not know.
//
// A party knows the fleet as it was at the beginning, and beyond that only what it was told in a message: a job from
// the first message about it on. One Strategy may hold all parties of a fleet, as the simulator's fast runs do, or
// only one of them. It must act the same in both cases, so the steps of a party must not touch the state of another.
package scheduler

import (
	"fmt"
	"math/rand/v2"
)

// Time is a moment or a span, in microseconds.
type Time = int64

// Second is a second of Time.
const Second Time = 1_000_000

// Job is what a job's submission and each message about it say of it. The actual durations of its tasks are not here.
type Job struct {
	Submitted Time  `json:"s,omitempty"`
	Estimate  Time  `json:"e,omitempty"` // of one task: the job's mean, or an estimate with errors
	Tasks     int32 `json:"n,omitempty"` // how many it has
	Buyer     int32 `json:"b,omitempty"` // the buyer whose client submitted it
	// of the workers that its tasks can run on; 0 is any. Worker w is of kind w mod Fleet.Kinds plus 1
	Kind int32 `json:"k,omitempty"`
	Long bool  `json:"l,omitempty"` // by the trace's cutoff on the mean task duration
}

// Role is what a party is.
type Role uint8

// The roles.
const (
	Worker Role = iota // it runs tasks
	Buyer              // it finds workers for its clients' jobs
	Center             // one place for all workers and buyers, or for a group of them
)

// Party is one participant of a Strategy.
type Party struct {
	Role Role
	ID   int32 // from 0 on in each role
}

// String returns the party's name in reports, such as "worker 3".
func (p Party) String() string {
	return fmt.Sprintf("%s %d", [...]string{"worker", "buyer", "center"}[p.Role], p.ID)
}

// Parties is how many parties of each role there are.
type Parties struct{ Workers, Buyers, Centers int }

// Kind is the kind of a message. Each architecture has its own.
type Kind uint8

// Msg is a message, or a note to its sender. Its Kind determines which fields are set. Between hosts it travels as JSON,
// and its Payload beside it: see PayloadReader.
type Msg struct {
	Time    Time    `json:"t,omitempty"`  // the moment or the span that it is about
	At      Time    `json:"at,omitempty"` // when it was sent, if its age matters
	Payload Payload `json:"-"`            // receivers must not change it
	To      int32   `json:"to,omitempty"` // its receiver, a party of role Role
	From    int32   `json:"f,omitempty"`  // a worker, buyer or center
	Job     int32   `json:"j,omitempty"`  // 0: it is not about a job
	Task    int32   `json:"n,omitempty"`  // a task of Job, or the first of Count
	Count   int32   `json:"c,omitempty"`  // tasks
	Offer   int32   `json:"o,omitempty"`  // of a worker's free slot, counted by the worker from 1
	Kind    Kind    `json:"k,omitempty"`
	Role    Role    `json:"r,omitempty"`
	Hops    uint8   `json:"h,omitempty"`
	Flag    bool    `json:"x,omitempty"`
	Done    bool    `json:"d,omitempty"`
	Note    bool    `json:"note,omitempty"` // not sent: a note to its sender
	Sure    bool    `json:"s,omitempty"`    // sent over a connection that repeats lost packets: a loss costs time, not the message
	// It hands Task of Job to its receiver, a worker, to run. Only buyers set it, and always for one task: Count, if set,
	// is what the Kind says. The worker may refuse the task, or return it later. Repeated grants and second copies of a
	// task set it, too; probes, permissions to run a task that the worker already has, and messages from centers do not
	Gives bool `json:"g,omitempty"`
}

// Receiver returns the party that a message is for.
func (m *Msg) Receiver() Party { return Party{m.Role, m.To} }

// Number returns what distinguishes a message from others of its kind and job, for a hash of a run.
func (m *Msg) Number() int32 {
	switch {
	case m.Payload != nil:
		return m.Payload.Number()
	case m.Offer != 0:
		return m.Offer
	}
	return m.Task
}

// Out is one action that follows from a step.
type Out struct {
	Msg   Msg
	After Time // from now; of a sent message, on top of the network's delay
	Run   bool // task Msg.Task of job Msg.Job begins on worker Msg.To
}

// Env is the environment of a step: its inputs, and the list of actions.
type Env struct {
	Now   Time
	Self  Party          // whose step it is
	Jobs  []Job          // by number, from 1 on; a Strategy uses Job
	Facts map[int32]Job  // in place of Jobs, where numbers are far apart; nil: Jobs has them
	Known map[int32]bool // the jobs that Self was told of; nil: all
	RNG   *rand.Rand
	Delay Time // one way, of a message
	Outs  []Out

	Messages  int64 // sent; a Strategy does not change it
	Conflicts int64 // refused grants or placements, as the room was taken by another
	// slots held in vain: a reservation served when its job had no task left, or an unused offer
	Idled int64
}

// Job returns a job, which Self must have been told of.
func (d *Env) Job(job int32) Job {
	if d.Known != nil && !d.Known[job] {
		panic(fmt.Sprintf("scheduler: %v was never told of job %d", d.Self, job))
	}
	if d.Facts == nil {
		return d.Jobs[job]
	}
	j, is := d.Facts[job]
	if !is {
		panic(fmt.Sprintf("scheduler: %v was never told of job %d", d.Self, job))
	}
	return j
}

// Send sends a message over the network to the party that m.Role and m.To name.
func (d *Env) Send(m Msg) { d.SendLate(0, m) }

// SendLate sends a message that takes longer than the network's delay, or less if more is negative: some simulators in
// the literature let messages take no time.
func (d *Env) SendLate(more Time, m Msg) {
	d.Messages++
	d.Outs = append(d.Outs, Out{Msg: m, After: more})
}

// Note delivers a message to Self after a time. It does not count as a message and cannot be lost.
func (d *Env) Note(after Time, m Msg) {
	m.Note, m.Role, m.To = true, d.Self.Role, d.Self.ID
	d.Outs = append(d.Outs, Out{Msg: m, After: after})
}

// Run starts task n of a job on the worker that is Self.
func (d *Env) Run(job, n int32) {
	if d.Self.Role != Worker {
		panic(fmt.Sprintf("scheduler: %v cannot run a task", d.Self))
	}
	d.Outs = append(d.Outs, Out{Msg: Msg{To: d.Self.ID, Job: job, Task: n}, Run: true})
}

// Strategy is a scheduling architecture: the behaviour of its parties, and the state of one or all of them.
type Strategy interface {
	// Parties returns how many parties there are.
	Parties() Parties
	// Entry returns the party that a client submits a job to: a buyer or a center.
	Entry(j Job) Party
	// Arrive reports that a job was submitted, to its Entry.
	Arrive(d *Env, job int32)
	// Deliver reports that a message or a note has arrived, to its receiver.
	Deliver(d *Env, m Msg)
	// Ended reports that task n of a job has ended, to its worker.
	Ended(d *Env, job, n int32)
	// Freed reports that a slot is free that something else had, to its worker: see Fleet.Busy.
	Freed(d *Env)
}

// Fleet is the fleet that a Strategy is built for.
type Fleet struct {
	Workers int
	Slots   int // of each worker; 1 when 0
	Reserve int // the first Reserve workers run only tasks of short jobs
	Kinds   int // number of kinds of workers, for jobs with constraints; 0: none
	Buyers  int // 1 when 0
	// something else has all slots at the beginning, and everybody knows that; Freed reports each that becomes free
	Busy    bool
	Slowing // as profiles of the jobs would tell it
}

// FreeSlots returns how many slots of each worker are free at the beginning.
func (f Fleet) FreeSlots() int32 {
	if f.Busy {
		return 0
	}
	return int32(max(1, f.Slots))
}

// Slowing is what makes a task take longer on one worker than on another. The zero Slowing does not.
type Slowing struct {
	Beside float64 // how much longer for each task that runs beside it when it begins; Firmament simulates 0.1
	// how much longer where the worker's hardware suits the job least. How well it does is drawn for each job and
	// worker, from 0 to 1 and uniformly, as Tarcil's analysis has it
	Uneven float64
}

// Factor returns how many times as long as at its best a task of a job takes on a worker with beside other tasks.
func (s Slowing) Factor(job, worker int32, beside int) float64 {
	f := 1 + s.Beside*float64(beside)
	if s.Uneven > 0 {
		h := uint64(uint32(job))<<32 | uint64(uint32(worker))
		for range 2 { // the finalizer of SplitMix64
			h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
			h = (h ^ h>>27) * 0x94d049bb133111eb
			h ^= h >> 31
		}
		f *= 1 + s.Uneven*float64(h>>11)/(1<<53)
	}
	return f
}

// Mortal is a Strategy that handles the death of workers.
type Mortal interface {
	Strategy
	// Died reports a worker's death to itself: it does not answer from now on.
	Died(d *Env)
	// Noticed reports to each buyer and center that a worker is known to be dead.
	Noticed(d *Env, worker int32)
	// Back reports to each buyer and center, and then to the worker, that the worker is alive again, and empty.
	Back(d *Env, worker int32)
}
