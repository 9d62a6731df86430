package jobs

import (
	"cmp"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/accounts"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/core/scheduler/shell"
	"github.com/soukhq/souk/core/share"
	"github.com/soukhq/souk/fault"
)

// Bounds of one dispatcher.
const (
	MaxJobs     = 1000      // unfinished
	MaxKept     = 1000      // finished jobs that stay readable; the oldest goes first
	MaxAllTasks = 4_000_000 // of all unfinished jobs
	// MaxKeptTasks bounds the tasks of finished jobs, whose results take memory; the oldest job goes first
	MaxKeptTasks = 1_000_000

	// MaxNamespaceJobs and MaxNamespaceTasks bound one namespace, so that it leaves room for others.
	MaxNamespaceJobs  = MaxJobs / 2
	MaxNamespaceTasks = MaxAllTasks / 2

	MaxLost = 8 // lost attempts of one task before it counts as failed
)

// firstGuess is the estimate of a task before any of its job has finished, in microseconds.
const firstGuess = int64(time.Second / time.Microsecond)

// Dispatcher is one buyer's state. It is for one goroutine. The package comment lists the owner's duties.
type Dispatcher struct {
	rules   auction.Rules
	jobs    map[string]*job
	numbers map[int32]*job // by the job's number in the queue
	order   []*job         // in order of arrival
	next    int32
	tasks   int // of all jobs

	queues  []*shapeQueue // one for each shape of task
	byShape map[Shape]*shapeQueue
	workers map[cluster.WorkerID]*workerState
	inOrder []*workerState // in order of arrival
	ready   bool           // Open was called: tasks may be given out
	sentAt  time.Time      // when bulletins were last sent
	unpaid  []*job         // jobs that are out of the queue, as their namespace cannot pay for them
	dirty   map[*job]bool
	corr    bool // there is, or was, a job with a dependency of AfterCorr
	// gatesDue says that a job has come or ended, so that another one may be let go
	gatesDue bool
	requeue  map[*job]bool // jobs with tasks in the queue that do not wait
	saving   []*job        // jobs in the commit in progress
	heads    []restored
	groups   map[string][]group
	done     []*job // finished, oldest first
	ledger   *accounts.Ledger
	maxKept  int // MaxKept, but for tests
	etas     forecasts
	handed   handed
	out      Out

	// attempts may have been given out that this dispatcher does not know of, since the host went down or a job was
	// taken over: each worker must report once
	rebooted bool

	caps     map[string]quota.Caps        // by namespace: what its tasks may occupy at once
	occupied map[string]cluster.Resources // by namespace: what they occupy; absent: it is to be counted

	best      []cluster.WorkerID // members that may be heirs, the best first
	heirs     []*heirState
	adopting  []adoption
	forgotten []*job          // handed over, and not removed from the journal yet
	lostTo    map[string]bool // IDs of jobs that were handed over: their tasks are left alone
}

// shapeQueue is the unstarted tasks of one shape, and how they are bid.
type shapeQueue struct {
	shape     Shape
	request   placement.Request     // of a task of it
	preferred []cluster.Requirement // of a worker
	queue     *auction.TaskQueue
	sent      auction.Bid        // the bid in the last bulletins
	stale     bool               // new bulletins are needed though the bid is the same: workers may have no quota left
	since     time.Time          // when tasks of it began to wait; zero: none waits
	capped    bool               // a cap of its namespace bounded the last bids
	allowed   int                // tasks that were bid, without those given out since
	everybody bool               // the last bulletins bid at every worker that can ever hold it
	reserved  []heardReservation // by workers for tasks of it, the soonest first
	saver     *workerState       // the worker that saves room for it; nil: none
	until     time.Time          // when saver stops saving
}

// workerState is what the dispatcher knows of one worker.
type workerState struct {
	id       cluster.WorkerID
	record   cluster.Record
	here     bool                 // it is connected
	near     bool                 // it is not connected, and can be
	free     int                  // slots that are neither busy nor offered
	open     map[Offer]*openGrant // grants that are not answered yet
	running  map[Life]*job
	bids     []ShapeBid                   // of its next bulletin
	bidAt    bool                         // its last bulletin had bids
	used     time.Time                    // when a task was last bid or ran there
	strays   bool                         // it may run tasks that this dispatcher does not know of, or has given up
	asked    time.Time                    // when it was last to be connected for that
	refused  map[Place]string             // places where it does not run tasks, and why
	accounts bool                         // it keeps accounts: see Report
	shares   map[share.Account]heardShare // of accounts with tasks that wait, or did
	kept     time.Time                    // when it last reserved room for tasks of other buyers
	met      bool                         // it has reported all that runs, or is to be asked for that
}

type openGrant struct {
	job   *job
	index int
	life  Life
	token *shell.Token // what it is to the job's scheduler; nil: it is the auction's
}

// Offer is a free slot of a worker. Each new offer has a higher Number.
type Offer struct {
	Slot   int32
	Number int32
}

// Grant gives one task to one slot.
type Grant struct {
	Slot    int32
	Granted auction.TaskGrant
	Life    Life
	Terms   *Terms
	Token   *shell.Token // what it is for its job's scheduler; nil: it is the auction's
}

// Reply is a worker's answer to a grant.
type Reply struct {
	Offer  Offer
	Answer auction.Reply
	Life   Life
	Unpaid time.Duration // with auction.Refuse: its namespace cannot pay now, and may be able to after this time
}

// Report is a message of a worker: what has happened since its last report.
type Report struct {
	Worker  cluster.WorkerID
	Record  cluster.Record // after everything else in the report
	Full    bool           // the first report of a connection: Running is all that runs, and earlier offers are void
	Running []Life         // set with Full
	// Accounts, set with Full, says that the worker keeps accounts: its offers have the whole shape of a bid.
	Accounts bool `json:",omitempty"`
	Offers   []SlotOffer
	Free     int // slots that are neither busy nor offered
	// Reserved is the room that is reserved for tasks of this buyer, and Kept whether some is for those of others. Both are
	// sent now and then.
	Reserved []Reserved `json:",omitempty"`
	Kept     bool       `json:",omitempty"`
	Passed   []Shape    // shapes that have had the best bid, but no room, for passPatience
	Replies  []Reply
	Results  []Result
	Places   []PlaceAnswer
	Rivals   []Claim // of jobs of this buyer that another member keeps
	// Shares are how accounts with waiting tasks of this buyer stand; sent now and then.
	Shares []share.Standing
}

// Orders is a message to a worker.
type Orders struct {
	Worker   cluster.WorkerID
	Bulletin *Bulletin // nil: the previous one stands
	Back     []Offer   // offers for which there is no task
	Save     []Shape   // shapes to save room for
	Grants   []Grant
	Watch    []Watch // tasks that it reported running with Full, and their terms
	Kill     []Life
	Withdraw []Life // tasks of schedulers: they are not to begin any more
	Recorded []Life // their results are durable: the worker may forget them

	// Parcels are of the schedulers of this member, for those of the worker's member. Grants come before them.
	Parcels []shell.Parcel
}

// Watch gives a worker the terms of a task that it already runs.
type Watch struct {
	Life  Life
	Terms *Terms
}

// Out is what the owner does at once.
type Out struct {
	Orders  []*Orders
	Changed map[string]bool // IDs of jobs whose status has changed
	Ended   []string        // IDs of jobs whose end has become durable, oldest first
	Purged  []string        // IDs of jobs that are no longer kept
	Renew   bool            // jobs were taken over: the owner must reconnect all workers
	Adopted []Adopted       // jobs that were taken over
	Wake    time.Time       // when Open must be called again; zero: no change

	Connect    []cluster.WorkerID // of Peers: tasks are bid there
	Disconnect []cluster.WorkerID // connected workers of Peers that are of no use for a while
}

// Adopted is a job that was taken over.
type Adopted struct {
	Job       string
	Namespace string
	From      cluster.WorkerID // the member that kept it
}

// NewDispatcher makes a dispatcher without jobs. It gives out no tasks before Open.
func NewDispatcher(rules auction.Rules) *Dispatcher {
	return &Dispatcher{rules: rules, ledger: accounts.NewLedger(), maxKept: MaxKept,
		jobs: map[string]*job{}, numbers: map[int32]*job{},
		workers: map[cluster.WorkerID]*workerState{}, dirty: map[*job]bool{},
		requeue: map[*job]bool{}, byShape: map[Shape]*shapeQueue{}, etas: newForecasts(),
		handed: handed{loose: map[*job]bool{}, resting: map[*job]bool{}, batches: map[batchKey]*batch{}}}
}

// Open begins to give out tasks. Call it once every worker that may already run some has reported or is given up. Call
// it again now and then: it retries jobs that wait for a time.
func (d *Dispatcher) Open(now time.Time) {
	d.ready = true
	clear(d.handed.resting)
	d.ledger.Prune(now)
	for j := range d.requeue {
		d.requeueWaiting(j)
	}
	clear(d.requeue)
	d.openGates(now)
	d.tryUnpaid(now)
	d.foretellDue(now)
	d.announceWork(now)
}

// Take returns the pending Out and clears it.
func (d *Dispatcher) Take() Out {
	out := d.out
	d.out = Out{}
	return out
}

func (d *Dispatcher) ordersTo(w cluster.WorkerID) *Orders {
	for _, o := range d.out.Orders {
		if o.Worker == w {
			return o
		}
	}
	o := &Orders{Worker: w}
	d.out.Orders = append(d.out.Orders, o)
	return o
}

func (d *Dispatcher) noteChanged(j *job) {
	if d.out.Changed == nil {
		d.out.Changed = map[string]bool{}
	}
	d.out.Changed[j.id] = true
}

// Submit accepts a job. Submitting the same id again changes nothing. spec must be settled.
func (d *Dispatcher) Submit(now time.Time, id string, spec Spec) error {
	if !ValidID(id) {
		return fault.New(fault.Invalid, codeJobID,
			"%.40q is no id of a job; use a j and ten hexadecimal digits, or none", id)
	}
	if old := d.jobs[id]; old != nil && old.rival == nil {
		return nil
	} else if old != nil {
		return errKeptBy(old)
	}
	if err := cmp.Or(spec.checkTimes(now, id), d.checkJobBounds(&spec)); err != nil {
		return err
	}
	j := d.enterJob(id, spec, now)
	j.headDirty, j.fresh = true, true
	d.giveHeir(j)
	d.dirty[j] = true
	d.noteChanged(j)
	return nil
}

// checkJobBounds refuses a job that would exceed the bounds on unfinished jobs and their tasks.
func (d *Dispatcher) checkJobBounds(spec *Spec) error {
	space := cmp.Or(spec.Namespace, cluster.DefaultNamespace)
	jobs, tasks, own, ownTasks := 0, 0, 0, 0
	for _, j := range d.order {
		if j.isOver() {
			continue
		}
		jobs, tasks = jobs+1, tasks+len(j.tasks)
		if cmp.Or(j.spec.Namespace, cluster.DefaultNamespace) == space {
			own, ownTasks = own+1, ownTasks+len(j.tasks)
		}
	}
	var e *fault.Error
	switch more := spec.Tasks(); {
	case jobs >= MaxJobs || tasks+more > MaxAllTasks:
		e = fault.New(fault.Exhausted, CodeJobs, "there are %d unfinished jobs with %d tasks, and at most %d with %d "+
			"can be; try again when some have finished", jobs, tasks, MaxJobs, MaxAllTasks)
	case own >= MaxNamespaceJobs || ownTasks+more > MaxNamespaceTasks:
		e = fault.New(fault.Exhausted, CodeJobs,
			"namespace %s has %d unfinished jobs with %d tasks, and one namespace can have at most %d with %d; "+
				"try again when some have finished", space, own, ownTasks, MaxNamespaceJobs, MaxNamespaceTasks)
	default:
		return nil
	}
	e.Scope, e.RetryAfter = fault.ScopeQuota, 5*time.Second
	return e
}

// enterJob makes a job's record, without any of its tasks in a queue.
func (d *Dispatcher) enterJob(id string, spec Spec, submitted time.Time) *job {
	d.next++
	j := &job{id: id, number: d.next, spec: spec, array: spec.Indices(), terms: spec.termsOf(id), submitted: submitted,
		tasks: make([]task, spec.Tasks()), firstFail: -1}
	j.updateEstimate()
	j.enterOrdering()
	d.noteCorr(&spec)
	d.jobs[id], d.numbers[j.number] = j, j
	d.order = append(d.order, j)
	d.tasks += len(j.tasks)
	return j
}

// Cancel ends a job: waiting tasks are dropped, running ones are killed.
func (d *Dispatcher) Cancel(now time.Time, id, why string) error {
	j := d.jobNamed(id)
	if j == nil {
		return noJob(id)
	}
	d.cancelJob(now, j, why)
	return nil
}

func (d *Dispatcher) cancelJob(now time.Time, j *job, why string) {
	if j.isOver() || j.why != "" {
		return
	}
	j.why = why
	j.headDirty = true
	d.dirty[j] = true
	d.queueOf(j.shape()).queue.Withdraw(j.number)
	for i := range j.tasks {
		switch t := &j.tasks[i]; t.state {
		case waiting:
			d.endTask(now, j, i, cancelled)
		case running:
			d.killTask(j, i)
		case granted:
			d.killQueued(j, i)
		}
	}
	d.noteChanged(j)
}

func (d *Dispatcher) killTask(j *job, i int) {
	o := d.ordersTo(j.tasks[i].worker)
	o.Kill = append(o.Kill, j.lifeOf(i))
}

// killQueued ends a task that is granted, if it may wait at its worker for a while. Others are ended once their worker
// has answered.
func (d *Dispatcher) killQueued(j *job, i int) {
	if j.hasScheduler() {
		d.killTask(j, i)
	}
}

// TasksCancelled counts the tasks that one CancelTasks cancels.
type TasksCancelled struct {
	Tasks  int // all, without those that had already ended or been cancelled
	Ending int // those of Tasks that run, or are about to, and are killed
}

// CancelTasks ends tasks of a job: waiting ones are dropped, running ones are killed. All of list must be the job's.
func (d *Dispatcher) CancelTasks(now time.Time, id string, list Indices) (out TasksCancelled, err error) {
	j := d.jobNamed(id)
	if j == nil {
		return out, noJob(id)
	}
	if index, is := j.array.Missing(list); is {
		return out, noTask(j, index)
	}
	return d.dropTasks(now, j, list, ""), nil
}

// dropTasks cancels tasks of a job. why is "" if a user wants it.
func (d *Dispatcher) dropTasks(now time.Time, j *job, list Indices, why string) (out TasksCancelled) {
	var dropped Indices
	for _, r := range list {
		for i := j.array.From(r.First); i < j.array.From(r.Last+1); i++ {
			index := j.array.At(i)
			switch t := &j.tasks[i]; {
			case t.state >= finished || j.isUnwanted(i):
				continue
			case t.state == waiting:
				d.endTask(now, j, i, cancelled)
			case t.state == running:
				d.killTask(j, i)
			default:
				d.killQueued(j, i)
			}
			out.Tasks++
			if j.tasks[i].state < finished {
				out.Ending++
			}
			dropped = dropped.Add(index)
		}
	}
	if out.Tasks == 0 {
		return out
	}
	j.dropped, j.dropWhy = j.dropped.With(dropped), cmp.Or(why, j.dropWhy)
	j.headDirty = true
	d.dirty[j] = true
	d.requeueWaiting(j)
	d.noteChanged(j)
	return out
}

func noTask(j *job, index int) error {
	return fault.New(fault.NotFound, CodeTaskNotFound, "job %s has no task %d; it has %s", j.id, index, j.array)
}

func noJob(id string) error {
	return fault.New(fault.NotFound, fault.CodeJobNotFound, "job %.80q not found; \"souk job ls\" lists them", id)
}
