package yarn

import "github.com/soukhq/souk/core/scheduler"

// Queues are what the masters of jobs have asked a resource manager for, by queue, and what the queues have.
type Queues struct {
	Want   int64 // containers requested and not yet given
	queues []queue
}

type queue struct {
	jobs []request // with demand, by arrival
	has  int64     // containers in use
}

// request is what a job's master has asked for.
type request struct {
	job        int32
	next, want int32 // containers 0 to next-1 of want have been given
}

// NewQueues makes n queues without demand.
func NewQueues(n int) Queues { return Queues{queues: make([]queue, n)} }

// Ask adds a job's demand to a queue.
func (q *Queues) Ask(queue, job, want int32) {
	x := &q.queues[queue]
	x.jobs = append(x.jobs, request{job: job, want: want})
	q.Want += int64(want)
}

// Give gives a container, which is wanted, to the queue that has fewest, and returns its job and its number there.
func (q *Queues) Give() (job, n int32) {
	var least *queue
	for i := range q.queues {
		if x := &q.queues[i]; len(x.jobs) > 0 && (least == nil || x.has < least.has) {
			least = x
		}
	}
	r := &least.jobs[0]
	job, n = r.job, r.next
	least.has++
	q.Want--
	if r.next++; r.next == r.want {
		least.jobs = least.jobs[1:]
	}
	return job, n
}

// Release takes back a container of each of these queues.
func (q *Queues) Release(queues []int32) {
	for _, i := range queues {
		q.queues[i].has--
	}
}

// CheckQueues refuses a list of queues to Release that has one that does not exist: there are n.
func CheckQueues(queues []int32, n int) error {
	for _, i := range queues {
		if err := scheduler.CheckRange("queue", i, 0, int32(n-1)); err != nil {
			return err
		}
	}
	return nil
}

// phases is how many different moments in an interval the heartbeats of masters have.
const phases = 997

// UntilHeartbeat returns how long until the next heartbeat of a node, of so many, whose heartbeats are spread evenly.
func UntilHeartbeat(now, beat scheduler.Time, node, nodes int) scheduler.Time {
	at := scheduler.Time(node) * beat / scheduler.Time(nodes)
	return beat - (now-at+beat)%beat
}

// UntilFetch returns how long until the next heartbeat of a job's master.
func UntilFetch(now, beat scheduler.Time, job int32) scheduler.Time {
	return UntilHeartbeat(now, beat, int(job)%phases, phases)
}
