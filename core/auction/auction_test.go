package auction_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/auction"
)

func jobTasks(job, tasks int32, estimate int64, long bool) auction.JobTasks {
	return auction.JobTasks{Job: job, Tasks: tasks, Long: long, Estimate: estimate, Submitted: int64(job)}
}

func TestQueueGivesLeastRemainingWorkFirst(t *testing.T) {
	b := auction.NewTaskQueue(auction.DefaultRules(1))
	b.Add(jobTasks(1, 2, 50, false))
	b.Add(jobTasks(2, 3, 10, false))
	b.Add(jobTasks(3, 1, 90, true))
	if bid := b.Bid(); bid.Short >= bid.Long || b.Tasks() != 6 || bid.Work != 90 || bid.Task != 90 {
		t.Fatalf("%+v, %d tasks", bid, b.Tasks())
	}
	for i, want := range []struct{ job, task int32 }{{2, 0}, {2, 1}, {2, 2}, {1, 0}, {1, 1}} {
		terms, task, ok := b.Take(auction.ByShort)
		if !ok || terms.Job != want.job || task != want.task {
			t.Fatalf("take %d gave task %d of job %d, %v; want %+v", i, task, terms.Job, ok, want)
		}
	}
	if _, _, ok := b.Take(auction.ByShort); ok {
		t.Fatal("a short job is left")
	}
	terms, task, _ := b.Take(auction.ByAge)
	if b.Bid() != auction.NoBid() {
		t.Fatalf("an empty queue bids %+v", b.Bid())
	}
	b.Return(terms, task)
	if again, n, ok := b.TakeOf(3); !ok || again.Job != 3 || n != task || b.Tasks() != 0 {
		t.Fatal("what was returned does not come back")
	}
}

func TestChoosePicksTheBestBid(t *testing.T) {
	none := auction.NoBid()
	huge := auction.Bid{Short: auction.NoWork, Long: 9, Age: 0, Least: 100, Left: 100}
	fewLeft, manyLeft := auction.Bid{Short: auction.NoWork, Long: 8, Age: 8, Least: 2, Left: 2},
		auction.Bid{Short: auction.NoWork, Long: 7, Age: 8, Least: 3, Left: 3}
	short, long, old := auction.Bid{Short: 5, Long: auction.NoWork, Age: auction.NoWork},
		auction.Bid{Short: auction.NoWork, Long: 3, Age: 9, Least: 1},
		auction.Bid{Short: auction.NoWork, Long: 4, Age: 1, Least: 1}
	for _, c := range []struct {
		name           string
		bids           []auction.Bid
		reserved, aged bool
		who            int
		order          auction.Order
		ok             bool
	}{
		{"nobody has work", []auction.Bid{none, none}, false, false, 0, auction.ByShort, false},
		{"least work wins", []auction.Bid{none, short, long}, false, false, 2, auction.ByLong, true},
		{"a reserved worker takes short jobs only", []auction.Bid{none, short, long}, true, false, 1, auction.ByShort,
			true},
		{"and nothing if there are none", []auction.Bid{long, old}, true, true, 0, auction.ByShort, false},
		{"a job that needs few goes before the first by age", []auction.Bid{huge, manyLeft, fewLeft}, false, true, 2,
			auction.ByLong, true},
		{"one that needs more does not", []auction.Bid{huge, manyLeft}, false, true, 0, auction.ByAge, true},
		{"a turn by age is between long jobs", []auction.Bid{long, old}, false, true, 1, auction.ByAge, true},
		{"and a short job that is first stays first",
			[]auction.Bid{{Short: 2, Long: auction.NoWork, Age: auction.NoWork}, old}, false, true, 0, auction.ByShort,
			true},
	} {
		if who, order, ok := auction.Choose(c.bids, c.reserved, c.aged); ok != c.ok ||
			(ok && (who != c.who || order != c.order)) {
			t.Errorf("%s: buyer %d in order %d, %v", c.name, who, order, ok)
		}
	}
}

// TestAgeOrdersLongJobsOnlyBeyondTheUsualWait: when the first of them would take unusually long, and what waits is no more than all workers
// do in the time of one of its tasks.
func TestAgeOrdersLongJobsOnlyBeyondTheUsualWait(t *testing.T) {
	rules := auction.DefaultRules(10)
	other, bid := auction.NoBid(), auction.Bid{Short: auction.NoWork, Long: 1, Age: 1, Work: 4000, Task: 500, Since: 50}
	other.Seen, other.Tasks = 3, 600 // usually 200, by what both have seen
	bid.Seen, bid.Tasks = 1, 200
	for _, c := range []struct {
		name            string
		now, task, work int64
		want            bool
	}{
		{"it has not yet taken five and a half times as long as usual", 1149, 500, 4000, false},
		{"it has", 1150, 500, 4000, true},
		{"it has not, but one of its tasks takes four and a half times as long", 950, 900, 4000, true},
		{"all workers do what waits in less than one of its tasks", 2000, 500, 4999, true},
		{"they do not", 2000, 500, 5000, false},
	} {
		bid.Work, bid.Task = c.work, c.task
		if got := rules.Aged([]auction.Bid{other, bid}, c.now); got != c.want {
			t.Errorf("%s: %v, not %v", c.name, got, c.want)
		}
	}
	if rules.Aged([]auction.Bid{auction.NoBid()}, 1000) {
		t.Error("something goes by age where there is nothing")
	}
}

// TestNoJobIsStarved: a job that waits is before every job submitted later than a moment that does not move.
func TestNoJobIsStarved(t *testing.T) {
	rules := auction.DefaultRules(10)
	b := auction.NewTaskQueue(rules)
	b.Add(jobTasks(0, 100, 1000, false))
	limit := rules.Haste * 100 * 1000 / rules.Workers
	b.Add(auction.JobTasks{Job: 1, Tasks: 1, Estimate: 0, Submitted: limit + 1})
	if terms, _, _ := b.Take(auction.ByShort); terms.Job != 0 {
		t.Fatal("a job that came after the limit overtook one that waited")
	}
}

// TestQueueNeitherLosesNorDuplicatesTasks: whatever is added, taken and returned, each task is out or in, once, and each way
// of taking gives the job with the least of its ranks.
func TestQueueNeitherLosesNorDuplicatesTasks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := auction.NewTaskQueue(auction.DefaultRules(rapid.IntRange(1, 50).Draw(t, "workers")))
		type id struct{ job, task int32 }
		in, out := map[id]bool{}, map[id]auction.JobTasks{}
		var order []id
		next := int32(0)
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "do") {
			case 0:
				l := jobTasks(next, rapid.Int32Range(1, 5).Draw(t, "tasks"),
					rapid.Int64Range(0, 1000).Draw(t, "estimate"), rapid.Bool().Draw(t, "long"))
				b.Add(l)
				for n := range l.Tasks {
					in[id{next, n}] = true
				}
				next++
			case 1, 2:
				terms, task, ok := b.Take(auction.Order(rapid.IntRange(0, 2).Draw(t, "way")))
				if !ok {
					continue
				}
				k := id{terms.Job, task}
				if !in[k] {
					t.Fatalf("%v was given out, and is not in the queue", k)
				}
				delete(in, k)
				out[k] = terms
				order = append(order, k)
			case 3:
				if len(order) == 0 {
					continue
				}
				k := order[len(order)-1]
				order = order[:len(order)-1]
				b.Return(out[k], k.task)
				delete(out, k)
				in[k] = true
			}
			if int(b.Tasks()) != len(in) {
				t.Fatalf("the queue counts %d tasks, there are %d", b.Tasks(), len(in))
			}
		}
		for len(in) > 0 {
			order := auction.ByShort
			if b.Bid().Short == auction.NoWork {
				order = auction.ByAge
			}
			terms, task, ok := b.Take(order)
			if !ok || !in[id{terms.Job, task}] {
				t.Fatalf("task %d of job %d, %v, with %d left", task, terms.Job, ok, len(in))
			}
			delete(in, id{terms.Job, task})
		}
		if b.Bid() != auction.NoBid() {
			t.Fatalf("an empty queue bids %+v", b.Bid())
		}
	})
}

func TestPullerRepeatsOnlyUnansweredOffers(t *testing.T) {
	var p auction.Puller
	one := p.Free()
	if !p.ShouldRepeat(one) {
		t.Fatal("an offer that nobody answered is not repeated")
	}
	p.Acknowledge(one)
	if p.ShouldRepeat(one) {
		t.Fatal("an offer that was answered is repeated")
	}
	g := auction.TaskGrant{Buyer: 3, Offer: one, Job: 7, Task: 2}
	if p.Answer(g) != auction.Accept || !p.Busy {
		t.Fatal("a free worker does not accept")
	}
	if p.Answer(g) != auction.Again {
		t.Fatal("a repeated grant is not known")
	}
	if p.Answer(auction.TaskGrant{Buyer: 4, Offer: one, Job: 8}) != auction.Refuse {
		t.Fatal("two grants for one offer")
	}
	two := p.Free()
	if p.Answer(g) != auction.Again || p.Busy {
		t.Fatal("what it ran before would be run again")
	}
	if p.Answer(auction.TaskGrant{Buyer: 4, Offer: one, Job: 9}) != auction.Refuse {
		t.Fatal("a grant for an old offer is accepted")
	}
	p.Crash()
	if p.Free() <= two {
		t.Fatal("an offer's number is used twice")
	}
}

// TestQueueLearnsUsualJobDurations: long jobs count, also those whose tasks never wait and those that turn out to be long,
// and what came long ago counts for little.
func TestQueueLearnsUsualJobDurations(t *testing.T) {
	b := auction.NewTaskQueue(auction.DefaultRules(1))
	b.Observe(jobTasks(1, 2, 50, false))
	b.Observe(jobTasks(2, 3, 100, true))
	b.Add(jobTasks(3, 1, 20, false))
	b.Revise(3, true, 300)
	if bid := b.Bid(); bid.Seen != 2 || bid.Tasks != 400 || bid.Since != 3-300 {
		t.Fatalf("%+v", bid)
	}
	for range 10_000 {
		b.Observe(jobTasks(4, 1, 1000, true))
	}
	if bid := b.Bid(); bid.Seen >= 1024 || bid.Tasks/bid.Seen != 999 {
		t.Fatalf("after many of 1000: %+v", bid)
	}
}
