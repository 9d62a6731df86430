package auction

import "math"

// NoWork is the bid of a buyer that has nothing to give out: later than all others.
const NoWork = int64(math.MaxInt64)

// Rules holds the constants that all buyers of one market share.
type Rules struct {
	Workers int64 // workers of the market, about; turns work into time
	Haste   int64 // newer jobs may overtake a job for this many times the fleet's time for its remaining work
	Patient int64 // as Haste, while long jobs go by age
	Unusual int64 // tasks go by age only once a job's time is this many tenths of a usual long job's task,
	Giant   int64 // or one of its own tasks is this many tenths of it
}

// DefaultRules returns the constants for a market of about n workers.
//
// Bids are by least remaining work in all but the rarest cases (Haste is large), and yet each job is overtaken only by
// what comes before a moment that is fixed at its submission, so that none starves. But least work first alone makes
// the very largest jobs wait until there is nothing else. So there are times when long jobs go by age: a job's age
// begins one task before its submission, as a job of long tasks that starts late ends last of all (Jackson's rule),
// and thrice the time of all workers for the work that it has left counts against it.
//
// Age is for the few jobs that would end last of all, where that can be helped. So nothing goes by age before the first
// job by age would have taken, if its last task began now, five and a half times as long as a task of a long job does
// on average, or one task of its own takes four and a half times as long: until then it ends among the others whatever
// comes first, and least work first is the best for all of them. And nothing goes by age while what waits would take
// all workers longer than one task of that job: then the largest jobs are last in any order, and to hurry one of them
// makes many others late.
func DefaultRules(n int) Rules {
	return Rules{Workers: int64(max(1, n)), Haste: 1000, Patient: 3, Unusual: 55, Giant: 45}
}

// fewFraction is how many times more tasks the first job by age must have left than a job of less work, for the
// smaller one to go first: the large job hardly notices so small a delay.
const fewFraction = 50

// Bid is a buyer's best offers, for each order a worker may choose by; the least wins.
type Bid struct {
	Short int64 // rank by remaining work, of short jobs
	Long  int64 // rank by remaining work, of long jobs
	Age   int64 // rank by age, of long jobs

	Least int64 // tasks left of the long job of least remaining work
	Left  int64 // tasks left of the job that is first by age

	Work  int64 // estimated work of all long jobs that wait
	Task  int64 // estimate of one task of the job that is first by age
	Since int64 // that job's submission less the estimate of one task

	Seen  int64 // long jobs that the buyer has received recently, about
	Tasks int64 // sum of those jobs' estimates of one task
}

// NoBid is the bid of a buyer that has no work.
func NoBid() Bid { return Bid{Short: NoWork, Long: NoWork, Age: NoWork} }

// Order is how a worker's next task is chosen.
type Order uint8

// The orders: the short job or the long job of least remaining work, or the long job that is first by age.
const (
	ByShort Order = iota
	ByLong
	ByAge
)

func (b Bid) orderValue(w Order) int64 { return [...]int64{b.Short, b.Long, b.Age}[w] }

// Choose returns which buyer's bid wins a worker, and in which order that buyer picks the task. Reserved workers take
// short jobs only. If aged is set, tasks of long jobs go by age, except that a job with far fewer tasks than the first
// by age goes before it. ok is false when no buyer has work for the worker.
func Choose(bids []Bid, reserved, aged bool) (who int, order Order, ok bool) {
	least := [...]int{0, 0, 0}
	for i, b := range bids {
		for w := range least {
			if b.orderValue(Order(w)) < bids[least[w]].orderValue(Order(w)) {
				least[w] = i
			}
		}
	}
	order = ByShort
	if !reserved && bids[least[ByLong]].Long < bids[least[ByShort]].Short {
		order = ByLong
		if aged {
			order = ByAge
			who, ok = leastOfFew(bids, bids[least[ByAge]].Left/fewFraction)
			if ok {
				return who, ByLong, true
			}
		}
	}
	who = least[order]
	return who, order, bids[who].orderValue(order) != NoWork
}

// leastOfFew returns the bid of the long job of least remaining work among those with at most most tasks left.
func leastOfFew(bids []Bid, most int64) (who int, ok bool) {
	for i, b := range bids {
		if b.Long != NoWork && b.Least <= most && (!ok || b.Long < bids[who].Long) {
			who, ok = i, true
		}
	}
	return who, ok
}

// Aged reports whether tasks of long jobs go by age now.
func (a Rules) Aged(bids []Bid, now int64) bool {
	oldest := 0
	work, seen, tasks := int64(0), int64(0), int64(0)
	for i, b := range bids {
		work, seen, tasks = work+b.Work, seen+b.Seen, tasks+b.Tasks
		if b.Age < bids[oldest].Age {
			oldest = i
		}
	}
	first, usual := bids[oldest], tasks/max(1, seen)
	unusual := 10*(now-first.Since) >= a.Unusual*usual || 10*first.Task >= a.Giant*usual
	return unusual && work/a.Workers < first.Task
}
