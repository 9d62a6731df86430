package jobs

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/share"
)

// Queue is what is before a job, in the order in which this member's jobs are served.
type Queue struct {
	Jobs        int     `json:"jobs_before"`
	Tasks       int     `json:"tasks_before"`        // of them, that wait
	CoreSeconds float64 `json:"core_seconds_before"` // of those tasks, by their estimates
	// Accounts are those of others that go first where most workers have said so lately. Their tasks are counted above.
	Accounts []AccountBefore `json:"accounts_before,omitempty"`
	Cores    float64         `json:"cores"` // of the workers that can ever hold a task of it
	Slots    int             `json:"slots"` // tasks like its own that fit at once where no other task of this member runs
	// workers on which a task of it fits now, fits once others have ended, and never does
	Now   int `json:"workers_now"`
	Later int `json:"workers_later"`
	Never int `json:"workers_never"`
}

// AccountBefore is an account whose tasks go first. All those of other namespaces are one without a name.
type AccountBefore struct {
	share.Account
	Jobs  int `json:"jobs"`
	Tasks int `json:"tasks"`
}

// point is a forecast without its interval: durations from now on.
type point struct {
	start, end time.Duration
}

// jobAhead is a job with tasks in a queue that go before those of another, and how many.
type jobAhead struct {
	*job
	tasks   int
	account share.Account
	order   int // of its account beside that of the other job: less than 0 if it goes first
	rank    int64
}

// jobsAhead lists the jobs with tasks that go before those of a job, the first first. Jobs of one account go by the
// queue's order. Of two accounts each worker serves the one first that has used less there: the one goes first for which
// most workers have lately said so, and if none has, the queue's order decides.
func (d *Dispatcher) jobsAhead(now time.Time, j *job) (out []jobAhead) {
	sh := d.queueOf(j.shape())
	own, rank := sh.shape.Account(), sh.queue.Rank(j.number)
	orders := map[share.Account]int{own: 0}
	for _, x := range d.queues {
		if x.queue.Tasks() == 0 {
			continue
		}
		a := x.shape.Account()
		if _, known := orders[a]; !known {
			orders[a] = d.compareAccounts(now, a, own)
		}
		x.queue.Jobs(func(number int32) {
			r := x.queue.Rank(number)
			before := orders[a] < 0 || orders[a] == 0 && (r < rank || r == rank && number < j.number)
			if o := d.numbers[number]; before && o != j {
				out = append(out, jobAhead{o, int(x.queue.LeftOf(number)), a, orders[a], r})
			}
		})
	}
	slices.SortFunc(out, func(x, y jobAhead) int {
		return cmp.Or(cmp.Compare(x.order, y.order), cmp.Compare(x.rank, y.rank), cmp.Compare(x.number, y.number))
	})
	return out
}

// compareAccounts returns on how many workers an account goes before another, less those where it goes behind, as a
// number below 0 if it goes first.
func (d *Dispatcher) compareAccounts(now time.Time, a, b share.Account) (order int) {
	for _, s := range d.inOrder {
		x, is := s.shares[a]
		y, too := s.shares[b]
		if is && too && s.here && now.Sub(x.at) <= shareFresh && now.Sub(y.at) <= shareFresh {
			order += cmp.Compare(x.Order(), y.Order())
		}
	}
	return cmp.Compare(order, 0)
}

// queueBefore counts what is before a job, and the workers for it.
func (d *Dispatcher) queueBefore(now time.Time, j *job) (q Queue) {
	sh := d.queueOf(j.shape())
	own := sh.shape.Account()
	for _, x := range d.jobsAhead(now, j) {
		q.Jobs, q.Tasks = q.Jobs+1, q.Tasks+x.tasks
		q.CoreSeconds += float64(x.tasks) * float64(x.estimate) / 1e6 * float64(x.terms.Shape.CPU) / 1000
		if x.order >= 0 {
			continue
		}
		if x.account.Namespace != own.Namespace { // who may see this job need not see theirs
			x.account = share.Account{}
		}
		i := slices.IndexFunc(q.Accounts, func(y AccountBefore) bool { return y.Account == x.account })
		if i < 0 {
			i, q.Accounts = len(q.Accounts), append(q.Accounts, AccountBefore{Account: x.account})
		}
		q.Accounts[i].Jobs, q.Accounts[i].Tasks = q.Accounts[i].Jobs+1, q.Accounts[i].Tasks+x.tasks
	}
	for _, s := range d.inOrder {
		if !s.here && !s.near {
			continue
		}
		switch v := s.judgeShape(sh); {
		case v.Never:
			q.Never++
			continue
		case v.Fits && (s.free > 0 || !s.here):
			q.Now++
		default:
			q.Later++
		}
		q.Cores += float64(s.record.Capacity.CPU) / 1000
		q.Slots += sh.shape.timesIn(s.freeForTasks(), mostSlots)
	}
	return q
}

// freeForTasks is what of a worker is free, or occupied by tasks of this dispatcher.
func (s *workerState) freeForTasks() cluster.Resources {
	room := s.record.Capacity.Sub(s.record.Used)
	for l := range s.running {
		room = room.Add(l.Shape())
	}
	return room
}

// mostForeseen bounds the tasks that a forecast goes through. Beyond it several of one job count as one that takes as
// long as they do one after another.
const mostForeseen = 2000

// forecastOf forecasts a job that may start, or runs; false: no worker is known that can run it. It lets the tasks before
// the job, and then the job's own, begin one after the other, each as soon as it has room. All workers that can hold the
// job's tasks are taken for one. Tasks take as long as those of their job do on average or, before any has ended, as long as the user
// or the queue guesses. One that has run for longer is taken to be half done.
func (d *Dispatcher) forecastOf(now time.Time, j *job) (p point, ok bool) {
	sh := d.queueOf(j.shape())
	var o outlook
	for _, s := range d.inOrder {
		if (s.here || s.near) && !s.judgeShape(sh).Never {
			o.addWorker(now, j, s)
		}
	}
	if o.most(sh.shape.Resources()) == 0 || j.counts[waiting] > 0 && d.explainCap(sh) != "" {
		return p, false
	}
	heap.Init(&o.ends)
	ahead := d.jobsAhead(now, j)
	tasks := j.counts[waiting]
	for _, x := range ahead {
		tasks += x.tasks
	}
	each := max(1, (tasks+mostForeseen-1)/mostForeseen)
	for _, x := range ahead {
		o.pass(x.job, x.tasks, each, d.boundOf(x.job))
	}
	p.start, p.end = o.pass(j, j.counts[waiting], each, d.boundOf(j))
	if j.counts[running]+j.counts[granted] > 0 {
		p.start = 0
	}
	p.end = max(p.end, o.last)
	return p, true
}

// boundOf returns how many tasks of a job may run at once by its array and the caps of its namespace, at most mostSlots.
func (d *Dispatcher) boundOf(j *job) int {
	n := mostSlots
	if b := j.spec.AtOnce; b > 0 {
		n = min(n, b)
	}
	sh := d.queueOf(j.shape())
	within, _ := d.tasksWithin(sh, n, cluster.Resources{})
	return within
}

// outlook is what is free now and from then on. Times are durations from now on.
type outlook struct {
	free cluster.Resources
	ends ending        // of tasks that run, the soonest first
	at   time.Duration // until which it has gone
	last time.Duration // when the last of the job's tasks ends that run
}

// taskEnd is the end of a task, and what is free then.
type taskEnd struct {
	at   time.Duration
	need cluster.Resources
}

type ending []taskEnd

func (e ending) Len() int           { return len(e) }
func (e ending) Less(i, k int) bool { return e[i].at < e[k].at }
func (e ending) Swap(i, k int)      { e[i], e[k] = e[k], e[i] }
func (e *ending) Push(x any)        { *e = append(*e, x.(taskEnd)) }
func (e *ending) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// addWorker adds a worker's room and the tasks that run there, or are about to. j is the job that is forecast.
func (o *outlook) addWorker(now time.Time, j *job, s *workerState) {
	o.free = o.free.Add(s.record.Capacity.Sub(s.record.Used))
	for l, x := range s.running {
		left := time.Duration(x.estimate) * time.Microsecond
		if i, is := x.placeOf(l.Index); is && x.tasks[i].began > 0 {
			if ran := now.Sub(time.UnixMicro(x.tasks[i].began)); ran <= left {
				left -= max(0, ran)
			} else {
				left = ran
			}
		}
		o.ends = append(o.ends, taskEnd{left, l.Shape()})
		if x == j {
			o.last = max(o.last, left)
		}
	}
	for _, g := range s.open { // on their way to the worker, whose record does not know of them
		left := time.Duration(g.job.estimate) * time.Microsecond
		o.free = o.free.Sub(g.life.Shape())
		o.ends = append(o.ends, taskEnd{left, g.life.Shape()})
		if g.job == j {
			o.last = max(o.last, left)
		}
	}
}

// most returns how many tasks fit when nothing that is known runs, at most mostSlots.
func (o *outlook) most(need cluster.Resources) int {
	all := o.free
	for _, e := range o.ends {
		all = all.Add(e.need)
	}
	return ShapeOf(need).timesIn(all, mostSlots)
}

// pass has n tasks of a job begin as soon as there is room, each of them as many as it stands for, and returns when the
// first begins and the last ends. At most bound run at once. Tasks that never have room are left out.
func (o *outlook) pass(j *job, n, each, bound int) (start, end time.Duration) {
	start, end = o.at, o.at
	need := j.shape().Resources()
	most := min(o.most(need), bound)
	if most == 0 || n == 0 {
		return start, end
	}
	if each > 1 { // as many tasks as run at once stay so many, so that the job takes as long
		each = max(1, min(each, n/most))
	}
	long := time.Duration(j.estimate) * time.Microsecond
	var own []time.Duration // ends, in order: all take as long, and begin one after another
	for i := 0; n > 0; i++ {
		k := min(each, n)
		n -= k
		if i >= most && bound < mostSlots {
			o.advance(own[i-most])
		}
		for ShapeOf(need).timesIn(o.free, 1) == 0 && len(o.ends) > 0 {
			o.advance(o.ends[0].at)
		}
		if i == 0 {
			start = o.at
		}
		o.free = o.free.Sub(need)
		until := o.at + time.Duration(k)*long
		own = append(own, until)
		heap.Push(&o.ends, taskEnd{until, need})
		end = max(end, until)
	}
	return start, end
}

// advance moves the clock on, and frees what tasks have that end by then.
func (o *outlook) advance(to time.Duration) {
	o.at = max(o.at, to)
	for len(o.ends) > 0 && o.ends[0].at <= o.at {
		o.free = o.free.Add(heap.Pop(&o.ends).(taskEnd).need)
	}
}
