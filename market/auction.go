package market

import "math"

// The auction is how short tasks find workers late. A buyer keeps the unstarted tasks of its jobs in a Book; a worker
// that is free asks one buyer, which grants it the task of the best bid that it knows: its own, or, by sending the
// worker's offer on, another buyer's. Nothing queues at workers.
//
// Time is whole microseconds, and only its differences matter.

// None is the bid of a buyer that has nothing to give out: later than all others.
const None = int64(math.MaxInt64)

// Auction holds the constants that all buyers of one market share.
type Auction struct {
	Workers int64 // of the market, about: the unit in which work is turned into time
	Haste   int64 // how many times the fleet's time for its remaining work a job may be overtaken by newer ones
	Patient int64 // the same, where a long job's turn is by age
	Unusual int64 // no task goes by age before a job's time is this many tenths of a usual long job's task,
	Giant   int64 // or one task of its own is this many tenths of it
}

// DefaultAuction gives the constants for a market of about n workers.
//
// Bids are by least remaining work in all but the rarest cases (Haste is large), and yet each job is overtaken only by
// what comes before a moment that is fixed at its submission, so that none starves. But least work first alone makes
// the very largest jobs wait until there is nothing else. So there are times when long jobs go by age: a job's age
// begins one task before its submission, as a job of long tasks that starts late ends last of all (Jackson's rule),
// and thrice the time of all workers for the work that it has left counts against it.
//
// Age is for the few jobs that would end last of all, where that can be helped. So nothing goes by age before the first
// job by age would have taken, if its last task began now, five and a half times as long as a task of a long job does on
// average, or one task of its own takes four and a half times as long: until then it ends among the others whatever
// comes first, and least work first is the best for all of them. And nothing goes by age while what waits would take all
// workers longer than one task of that job: then the largest jobs are last in any order, and to hurry one of them makes
// many others late.
func DefaultAuction(n int) Auction {
	return Auction{Workers: int64(max(1, n)), Haste: 1000, Patient: 3, Unusual: 55, Giant: 45}
}

// few is how many times as many tasks a job that goes by age must have left for a job of less work to go before it: what
// so small a job takes the large one hardly misses.
const few = 50

// Lot is the unstarted tasks of one job. Task numbers from Next on have never been given out.
type Lot struct {
	Job       int32
	Tasks     int32
	Next      int32
	Long      bool
	Submitted int64 // microseconds
	Estimate  int64 // microseconds, of one task

	again []int32 // given out, and come back
	rank  [3]int64
	place [3]int // in the book's heaps; -1 is not there
}

// Left gives the number of tasks not given out.
func (l *Lot) Left() int32 { return l.Tasks - l.Next + int32(len(l.again)) }

// Bid is a buyer's best offers, for each way a worker may choose; the least wins.
type Bid struct {
	Short int64 // by remaining work, of short jobs
	Long  int64 // by remaining work, of long jobs
	Age   int64 // by age, of long jobs

	Least int64 // tasks left of the long job of least remaining work
	Left  int64 // tasks left of the job that is first by age

	Work  int64 // estimated work of all long jobs that wait
	Task  int64 // estimate of one task of the job that is first by age
	Since int64 // one such task before that job's submission

	Seen  int64 // long jobs that the buyer has been given of late, about
	Tasks int64 // estimates of one task of each of them, together
}

// NoBid is the bid of a buyer that has no work.
func NoBid() Bid { return Bid{Short: None, Long: None, Age: None} }

// Way is how a worker's next task is chosen.
type Way uint8

// The ways: the short job or the long job of least remaining work, or the long job whose turn it is by age.
const (
	ByShort Way = iota
	ByLong
	ByAge
)

func (b Bid) by(w Way) int64 { return [...]int64{b.Short, b.Long, b.Age}[w] }

// Choose gives whose bid wins a worker, and in which way. Reserved workers take short jobs only; aged is whether this
// task goes by age if it is of a long job, but for jobs that need few workers beside the one that is first by age. ok is
// false when nobody has work for it.
func Choose(bids []Bid, reserved, aged bool) (who int, way Way, ok bool) {
	least := [...]int{0, 0, 0}
	for i, b := range bids {
		for w := range least {
			if b.by(Way(w)) < bids[least[w]].by(Way(w)) {
				least[w] = i
			}
		}
	}
	way = ByShort
	if !reserved && bids[least[ByLong]].Long < bids[least[ByShort]].Short {
		way = ByLong
		if aged {
			way = ByAge
			who, ok = small(bids, bids[least[ByAge]].Left/few)
			if ok {
				return who, ByLong, true
			}
		}
	}
	who = least[way]
	return who, way, bids[who].by(way) != None
}

// small gives the bid of the long job of least remaining work among those of the bids that have so many tasks left at most.
func small(bids []Bid, most int64) (who int, ok bool) {
	for i, b := range bids {
		if b.Long != None && b.Least <= most && (!ok || b.Long < bids[who].Long) {
			who, ok = i, true
		}
	}
	return who, ok
}

// Aged says whether tasks of long jobs go by age now.
func (a Auction) Aged(bids []Bid, now int64) bool {
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

// Book is one buyer's unstarted tasks. It is for one goroutine; the zero Book is not ready, use NewBook.
type Book struct {
	rules Auction
	lots  map[int32]*Lot
	heaps [3][]*Lot
	tasks int32
	work  int64  // estimated, of long jobs
	seen  int64  // long jobs, of late
	usual int64  // estimates of one task of each of them, together
	free  []*Lot // records to use again
}

// NewBook makes an empty book.
func NewBook(rules Auction) *Book { return &Book{rules: rules, lots: map[int32]*Lot{}} }

// Tasks gives the number of tasks in the book.
func (b *Book) Tasks() int32 { return b.tasks }

// Bid gives the book's best offers.
func (b *Book) Bid() Bid {
	bid := NoBid()
	bid.Seen, bid.Tasks = b.seen, b.usual
	if h := b.heaps[ByShort]; len(h) > 0 {
		bid.Short = h[0].rank[ByShort]
	}
	if h := b.heaps[ByLong]; len(h) > 0 {
		oldest := b.heaps[ByAge][0]
		bid.Long, bid.Age = h[0].rank[ByLong], oldest.rank[ByAge]
		bid.Least, bid.Left = int64(h[0].Left()), int64(oldest.Left())
		bid.Work, bid.Task, bid.Since = b.work, oldest.Estimate, oldest.Submitted-oldest.Estimate
	}
	return bid
}

// Add puts the tasks of a job in the book.
func (b *Book) Add(l Lot) {
	if l.Left() == 0 {
		return
	}
	var lot *Lot
	if n := len(b.free); n > 0 {
		lot, b.free = b.free[n-1], b.free[:n-1]
		l.again = append(lot.again[:0], l.again...)
	} else {
		lot = &Lot{}
	}
	*lot = l
	lot.place = [3]int{-1, -1, -1}
	b.lots[l.Job] = lot
	b.count(lot, lot.Left())
	b.rerank(lot)
}

// Return puts a task back that was given out. terms are those of its job, whose tasks may all have been given out.
func (b *Book) Return(terms Lot, task int32) {
	lot := b.lots[terms.Job]
	if lot == nil {
		terms.Next, terms.again = terms.Tasks, []int32{task}
		b.Add(terms)
		return
	}
	lot.again = append(lot.again, task)
	b.count(lot, 1)
	b.rerank(lot)
}

// Take takes the best task of the book in a way that Choose gave.
func (b *Book) Take(way Way) (terms Lot, task int32, ok bool) {
	if len(b.heaps[way]) == 0 {
		return terms, 0, false
	}
	return b.takeFrom(b.heaps[way][0])
}

// TakeOf takes the next task of one job.
func (b *Book) TakeOf(job int32) (terms Lot, task int32, ok bool) {
	lot := b.lots[job]
	if lot == nil {
		return terms, 0, false
	}
	return b.takeFrom(lot)
}

func (b *Book) takeFrom(lot *Lot) (Lot, int32, bool) {
	var task int32
	if n := len(lot.again); n > 0 {
		task, lot.again = lot.again[n-1], lot.again[:n-1]
	} else {
		task = lot.Next
		lot.Next++
	}
	b.count(lot, -1)
	terms := *lot
	terms.again = nil
	if lot.Left() > 0 {
		b.rerank(lot)
	} else {
		b.drop(lot)
	}
	return terms, task, true
}

func (b *Book) count(l *Lot, tasks int32) {
	b.tasks += tasks
	if l.Long {
		b.work += int64(tasks) * l.Estimate
	}
}

// rerank puts a lot where its remaining work says.
func (b *Book) rerank(l *Lot) {
	fleet := float64(int64(l.Left())*l.Estimate) / float64(b.rules.Workers) // time of all workers for it
	work := l.Submitted + int64(float64(b.rules.Haste)*fleet)
	if !l.Long {
		b.put(ByShort, l, work)
		return
	}
	b.put(ByLong, l, work)
	b.put(ByAge, l, l.Submitted-l.Estimate+int64(float64(b.rules.Patient)*fleet))
}

func (b *Book) drop(l *Lot) {
	b.unlist(l)
	delete(b.lots, l.Job)
	b.free = append(b.free, l)
}

func (b *Book) put(h Way, l *Lot, rank int64) {
	l.rank[h] = rank
	if l.place[h] < 0 {
		l.place[h] = len(b.heaps[h])
		b.heaps[h] = append(b.heaps[h], l)
	}
	b.settle(h, l.place[h])
}

// less orders by rank, equal ranks by job, so that a run repeats.
func (b *Book) less(h Way, i, j int) bool {
	x, y := b.heaps[h][i], b.heaps[h][j]
	return x.rank[h] < y.rank[h] || (x.rank[h] == y.rank[h] && x.Job < y.Job)
}

func (b *Book) swap(h Way, i, j int) {
	hp := b.heaps[h]
	hp[i], hp[j] = hp[j], hp[i]
	hp[i].place[h], hp[j].place[h] = i, j
}

func (b *Book) settle(h Way, i int) {
	for p := (i - 1) / 2; i > 0 && b.less(h, i, p); p = (i - 1) / 2 {
		b.swap(h, i, p)
		i = p
	}
	for n := len(b.heaps[h]); ; {
		c := 2*i + 1
		if c >= n {
			return
		}
		if c+1 < n && b.less(h, c+1, c) {
			c++
		}
		if !b.less(h, c, i) {
			return
		}
		b.swap(h, i, c)
		i = c
	}
}
