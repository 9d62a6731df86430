package market_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/market"
)

func lot(job, tasks int32, estimate int64, long bool) market.Lot {
	return market.Lot{Job: job, Tasks: tasks, Long: long, Estimate: estimate, Submitted: int64(job)}
}

func TestBookGivesLeastRemainingWorkFirst(t *testing.T) {
	b := market.NewBook(market.DefaultAuction(1))
	b.Add(lot(1, 2, 50, false))
	b.Add(lot(2, 3, 10, false))
	b.Add(lot(3, 1, 90, true))
	if bid := b.Bid(); bid.Short >= bid.Long || b.Tasks() != 6 || bid.Work != 90 || bid.Task != 90 {
		t.Fatalf("%+v, %d tasks", bid, b.Tasks())
	}
	for i, want := range []struct{ job, task int32 }{{2, 0}, {2, 1}, {2, 2}, {1, 0}, {1, 1}} {
		terms, task, ok := b.Take(market.ByShort)
		if !ok || terms.Job != want.job || task != want.task {
			t.Fatalf("take %d gave task %d of job %d, %v; want %+v", i, task, terms.Job, ok, want)
		}
	}
	if _, _, ok := b.Take(market.ByShort); ok {
		t.Fatal("a short job is left")
	}
	terms, task, _ := b.Take(market.ByAge)
	if b.Bid() != market.NoBid() {
		t.Fatalf("an empty book bids %+v", b.Bid())
	}
	b.Return(terms, task)
	if again, n, ok := b.TakeOf(3); !ok || again.Job != 3 || n != task || b.Tasks() != 0 {
		t.Fatal("what was returned does not come back")
	}
}

func TestChoose(t *testing.T) {
	none := market.NoBid()
	huge := market.Bid{Short: market.None, Long: 9, Age: 0, Least: 100, Left: 100}
	fewLeft, manyLeft := market.Bid{Short: market.None, Long: 8, Age: 8, Least: 2, Left: 2}, market.Bid{Short: market.None, Long: 7, Age: 8, Least: 3, Left: 3}
	short, long, old := market.Bid{Short: 5, Long: market.None, Age: market.None}, market.Bid{Short: market.None, Long: 3, Age: 9, Least: 1}, market.Bid{Short: market.None, Long: 4, Age: 1, Least: 1}
	for _, c := range []struct {
		name           string
		bids           []market.Bid
		reserved, aged bool
		who            int
		way            market.Way
		ok             bool
	}{
		{"nobody has work", []market.Bid{none, none}, false, false, 0, market.ByShort, false},
		{"least work wins", []market.Bid{none, short, long}, false, false, 2, market.ByLong, true},
		{"a reserved worker takes short jobs only", []market.Bid{none, short, long}, true, false, 1, market.ByShort, true},
		{"and nothing if there are none", []market.Bid{long, old}, true, true, 0, market.ByShort, false},
		{"a job that needs few goes before the first by age", []market.Bid{huge, manyLeft, fewLeft}, false, true, 2, market.ByLong, true},
		{"one that needs more does not", []market.Bid{huge, manyLeft}, false, true, 0, market.ByAge, true},
		{"a turn by age is between long jobs", []market.Bid{long, old}, false, true, 1, market.ByAge, true},
		{"and a short job that is first stays first", []market.Bid{{Short: 2, Long: market.None, Age: market.None}, old}, false, true, 0, market.ByShort, true},
	} {
		if who, way, ok := market.Choose(c.bids, c.reserved, c.aged); ok != c.ok || (ok && (who != c.who || way != c.way)) {
			t.Errorf("%s: buyer %d in way %d, %v", c.name, who, way, ok)
		}
	}
}

// TestWhenLongJobsGoByAge: when the first of them would take unusually long, and what waits is no more than all workers
// do in the time of one of its tasks.
func TestWhenLongJobsGoByAge(t *testing.T) {
	rules := market.DefaultAuction(10)
	other, bid := market.NoBid(), market.Bid{Short: market.None, Long: 1, Age: 1, Work: 4000, Task: 500, Since: 50}
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
		if got := rules.Aged([]market.Bid{other, bid}, c.now); got != c.want {
			t.Errorf("%s: %v, not %v", c.name, got, c.want)
		}
	}
	if rules.Aged([]market.Bid{market.NoBid()}, 1000) {
		t.Error("something goes by age where there is nothing")
	}
}

// TestNoJobIsOvertakenForEver: a job that waits is before every job submitted later than a moment that does not move.
func TestNoJobIsOvertakenForEver(t *testing.T) {
	rules := market.DefaultAuction(10)
	b := market.NewBook(rules)
	b.Add(lot(0, 100, 1000, false))
	limit := rules.Haste * 100 * 1000 / rules.Workers
	b.Add(market.Lot{Job: 1, Tasks: 1, Estimate: 0, Submitted: limit + 1})
	if terms, _, _ := b.Take(market.ByShort); terms.Job != 0 {
		t.Fatal("a job that came after the limit overtook one that waited")
	}
}

// TestABookLosesAndDoublesNothing: whatever is added, taken and returned, each task is out or in, once, and each way
// of taking gives the job with the least of its ranks.
func TestABookLosesAndDoublesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := market.NewBook(market.DefaultAuction(rapid.IntRange(1, 50).Draw(t, "workers")))
		type id struct{ job, task int32 }
		in, out := map[id]bool{}, map[id]market.Lot{}
		var order []id
		next := int32(0)
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "do") {
			case 0:
				l := lot(next, rapid.Int32Range(1, 5).Draw(t, "tasks"), rapid.Int64Range(0, 1000).Draw(t, "estimate"), rapid.Bool().Draw(t, "long"))
				b.Add(l)
				for n := range l.Tasks {
					in[id{next, n}] = true
				}
				next++
			case 1, 2:
				terms, task, ok := b.Take(market.Way(rapid.IntRange(0, 2).Draw(t, "way")))
				if !ok {
					continue
				}
				k := id{terms.Job, task}
				if !in[k] {
					t.Fatalf("%v was given out, and is not in the book", k)
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
				t.Fatalf("the book counts %d tasks, there are %d", b.Tasks(), len(in))
			}
		}
		for len(in) > 0 {
			way := market.ByShort
			if b.Bid().Short == market.None {
				way = market.ByAge
			}
			terms, task, ok := b.Take(way)
			if !ok || !in[id{terms.Job, task}] {
				t.Fatalf("task %d of job %d, %v, with %d left", task, terms.Job, ok, len(in))
			}
			delete(in, id{terms.Job, task})
		}
		if b.Bid() != market.NoBid() {
			t.Fatalf("an empty book bids %+v", b.Bid())
		}
	})
}

func TestPuller(t *testing.T) {
	var p market.Puller
	one := p.Free()
	if !p.Repeat(one) {
		t.Fatal("an offer that nobody answered is not repeated")
	}
	p.Kept(one)
	if p.Repeat(one) {
		t.Fatal("an offer that was answered is repeated")
	}
	g := market.Granted{Buyer: 3, Offer: one, Job: 7, Task: 2}
	if p.Grant(g) != market.Accept || !p.Runs {
		t.Fatal("a free worker does not accept")
	}
	if p.Grant(g) != market.Again {
		t.Fatal("a repeated grant is not known")
	}
	if p.Grant(market.Granted{Buyer: 4, Offer: one, Job: 8}) != market.Refuse {
		t.Fatal("two grants for one offer")
	}
	two := p.Free()
	if p.Grant(g) != market.Again || p.Runs {
		t.Fatal("what it ran before would be run again")
	}
	if p.Grant(market.Granted{Buyer: 4, Offer: one, Job: 9}) != market.Refuse {
		t.Fatal("a grant for an old offer is accepted")
	}
	p.Crash()
	if p.Free() <= two {
		t.Fatal("an offer's number is used twice")
	}
}

// TestABookKnowsWhatIsUsual: long jobs count, also those whose tasks never wait and those that turn out to be long, and
// what came long ago counts for little.
func TestABookKnowsWhatIsUsual(t *testing.T) {
	b := market.NewBook(market.DefaultAuction(1))
	b.See(lot(1, 2, 50, false))
	b.See(lot(2, 3, 100, true))
	b.Add(lot(3, 1, 20, false))
	b.Revise(3, true, 300)
	if bid := b.Bid(); bid.Seen != 2 || bid.Tasks != 400 || bid.Since != 3-300 {
		t.Fatalf("%+v", bid)
	}
	for range 10_000 {
		b.See(lot(4, 1, 1000, true))
	}
	if bid := b.Bid(); bid.Seen >= 1024 || bid.Tasks/bid.Seen != 999 {
		t.Fatalf("after many of 1000: %+v", bid)
	}
}
