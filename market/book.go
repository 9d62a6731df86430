package market

import "slices"

// Revise puts a lot where another estimate of its tasks says, as a job's finished tasks teach it. It is nil for a job
// that is not in the book.
func (b *Book) Revise(job int32, long bool, estimate int64) {
	l := b.lots[job]
	if l == nil || (l.Long == long && l.Estimate == estimate) {
		return
	}
	n := l.Left()
	b.count(l, -n)
	if l.Long != long {
		b.unlist(l)
		b.See(Lot{Long: long, Estimate: estimate})
	}
	l.Long, l.Estimate = long, estimate
	b.count(l, n)
	b.rerank(l)
}

// remembered is how many long jobs a book remembers the tasks of: at twice as many what it has seen counts half.
const remembered = 512

// See tells of a job that has come to the buyer, whether or not its tasks will ever wait in the book. Long ones are how
// the market knows what is usual.
func (b *Book) See(l Lot) {
	if !l.Long {
		return
	}
	b.seen++
	b.usual += l.Estimate
	if b.seen >= 2*remembered {
		b.seen, b.usual = b.seen/2, b.usual/2
	}
}

// Withdraw takes a job's tasks out of the book, and gives how many there were.
func (b *Book) Withdraw(job int32) int32 {
	l := b.lots[job]
	if l == nil {
		return 0
	}
	n := l.Left()
	b.count(l, -n)
	b.drop(l)
	return n
}

// Ahead gives how many tasks of how many other lots come before those of a lot, as things stand, by remaining work. Turns
// by age are left out: they change the order of few.
func (b *Book) Ahead(rank int64, job int32) (tasks, lots int32) {
	for id, l := range b.lots {
		if r := l.work(); id != job && (r < rank || (r == rank && id < job)) {
			tasks += l.Left()
			lots++
		}
	}
	return tasks, lots
}

// Rank gives a lot's place by remaining work, for Ahead; None when it is not in the book.
func (b *Book) Rank(job int32) int64 {
	if l := b.lots[job]; l != nil {
		return l.work()
	}
	return None
}

func (l *Lot) work() int64 {
	if l.Long {
		return l.rank[ByLong]
	}
	return l.rank[ByShort]
}

// unlist takes a lot out of the heaps.
func (b *Book) unlist(l *Lot) {
	for h := ByShort; h <= ByAge; h++ {
		i := l.place[h]
		if i < 0 {
			continue
		}
		last := len(b.heaps[h]) - 1
		b.swap(h, i, last)
		b.heaps[h] = b.heaps[h][:last]
		l.place[h] = -1
		if i < last {
			b.settle(h, i)
		}
	}
}

// AddTasks puts these tasks of a job in the book, and no others: the first of them goes first.
func (b *Book) AddTasks(terms Lot, tasks []int32) {
	terms.Next, terms.again = terms.Tasks, slices.Clone(tasks)
	slices.Reverse(terms.again) // they are taken from the end
	b.Add(terms)
}
