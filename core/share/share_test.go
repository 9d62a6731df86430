package share_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/core/share"
	"github.com/soukhq/souk/machine"
)

var epoch = time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)

// user is somebody with tasks of one length and size, of which there are always some, from a time on until another.
type user struct {
	share.Account
	task        time.Duration
	part        float64
	from, until time.Duration
}

// simulation is a worker whose order within a level is always that of the users: the worst for the last one.
type simulation struct {
	users   []user
	ledger  *share.Ledger
	now     time.Duration
	free    float64
	running []run
	had     map[share.Account]float64 // worker-hours since begin
	begin   time.Duration
}

type run struct {
	user user
	end  time.Duration
}

func newSimulation(weights map[string]float64, users ...user) *simulation {
	s := &simulation{users: users, ledger: share.NewLedger(), free: 1, had: map[share.Account]float64{}}
	s.ledger.SetWeights(weights)
	return s
}

func (s *simulation) time() time.Time { return epoch.Add(s.now) }

// run goes on until a time, and counts what each gets from begin on.
func (s *simulation) run(begin, until time.Duration) {
	s.begin, s.had = begin, map[share.Account]float64{}
	for s.now < until {
		s.fill()
		next := until
		for _, r := range s.running {
			next = min(next, r.end)
		}
		for _, u := range s.users {
			if u.from > s.now {
				next = min(next, u.from)
			}
		}
		for _, r := range s.running {
			s.had[r.user.Account] += r.user.part * max(0, next-max(s.now, begin)).Hours()
		}
		s.now = next
		s.running = slices.DeleteFunc(s.running, func(r run) bool {
			if r.end > s.now {
				return false
			}
			s.free += r.user.part
			s.ledger.End(s.time(), r.user.Account, r.user.part)
			return true
		})
	}
}

// fill starts tasks while there is room.
func (s *simulation) fill() {
	for {
		var waiting []user
		var accounts []share.Account
		for _, u := range s.users {
			if s.now >= u.from && (u.until == 0 || s.now < u.until) && u.part <= s.free+1e-9 {
				waiting, accounts = append(waiting, u), append(accounts, u.Account)
			}
		}
		if len(waiting) == 0 {
			return
		}
		levels := s.ledger.Standings(s.time(), accounts)
		best := 0
		for i := range levels {
			if levels[i].Order() < levels[best].Order() {
				best = i
			}
		}
		u := waiting[best]
		s.free -= u.part
		s.ledger.Promise(s.time(), u.Account, u.part)
		s.ledger.EndPromise(u.Account, u.part)
		s.ledger.Begin(s.time(), u.Account, u.part, s.time())
		s.running = append(s.running, run{u, s.now + u.task})
	}
}

// part is what an account got of what all got.
func (s *simulation) part(of share.Account) float64 {
	all := 0.0
	for _, h := range s.had {
		all += h
	}
	return s.had[of] / all
}

func account(namespace, owner string) share.Account {
	return share.Account{Namespace: namespace, Owner: owner}
}

// TestRoomIsSharedAsIsDue: accounts that always have tasks get room in proportion to the weights of their namespaces,
// and equally in one, though the auction prefers the tasks of one, and whatever the length and size of their tasks.
func TestRoomIsSharedAsIsDue(t *testing.T) {
	hour := time.Hour
	for _, c := range []struct {
		what    string
		weights map[string]float64
		users   []user
		due     []float64
	}{
		{"two owners", nil, []user{
			{Account: account("n", "a"), task: hour, part: 1. / 16},
			{Account: account("n", "b"), task: hour, part: 1. / 16}}, []float64{.5, .5}},
		{"short and long tasks", nil, []user{
			{Account: account("n", "a"), task: time.Minute, part: 1. / 16},
			{Account: account("n", "b"), task: 5 * hour, part: 1. / 16}}, []float64{.5, .5}},
		{"small and large tasks", nil, []user{
			{Account: account("n", "a"), task: hour / 2, part: 1. / 32},
			{Account: account("n", "b"), task: hour / 2, part: 1. / 8}}, []float64{.5, .5}},
		{"weights", map[string]float64{"m": 3}, []user{
			{Account: account("n", ""), task: hour, part: 1. / 16},
			{Account: account("m", ""), task: hour, part: 1. / 16}}, []float64{.25, .75}},
		{"many owners in one namespace", nil, []user{
			{Account: account("n", "a"), task: hour, part: 1. / 32},
			{Account: account("n", "b"), task: hour, part: 1. / 32},
			{Account: account("n", "c"), task: hour, part: 1. / 32},
			{Account: account("m", "d"), task: hour, part: 1. / 32}}, []float64{1. / 6, 1. / 6, 1. / 6, .5}},
	} {
		s := newSimulation(c.weights, c.users...)
		s.run(120*hour, 360*hour)
		for i, u := range c.users {
			if got := s.part(u.Account); math.Abs(got/c.due[i]-1) > 0.07 {
				t.Errorf("%s: %v got %.3f of the worker, and %.3f was due", c.what, u.Account, got, c.due[i])
			}
		}
	}
}

// TestAnyMixIsShared: for any weights and any tasks.
func TestAnyMixIsShared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := map[string]float64{}
		var users []user
		spaces := rapid.IntRange(1, 3).Draw(t, "namespaces")
		total, due := 0.0, map[share.Account]float64{}
		for i := range spaces {
			name := fmt.Sprint("n", i)
			weights[name] = float64(rapid.IntRange(1, 4).Draw(t, "weight"))
			total += weights[name]
			owners := rapid.IntRange(1, 3).Draw(t, "owners")
			for k := range owners {
				u := user{Account: account(name, fmt.Sprint("o", k)), part: 1. / 32,
					task: time.Duration(rapid.IntRange(60, 180).Draw(t, "minutes")) * time.Minute}
				users = append(users, u)
				due[u.Account] = weights[name] / float64(owners)
			}
		}
		s := newSimulation(weights, users...)
		s.run(80*time.Hour, 200*time.Hour)
		for _, u := range users {
			if got, want := s.part(u.Account), due[u.Account]/total; math.Abs(got/want-1) > 0.1 {
				t.Fatalf("%v got %.4f, and %.4f was due: %v", u.Account, got, want, s.had)
			}
		}
	})
}

// TestWhoReturnsIsFirstAndNotForEver: after a pause an account goes before one that has used the worker meanwhile, until
// it has had as much, as far as that is not forgotten; then they share.
func TestWhoReturnsIsFirstAndNotForEver(t *testing.T) {
	a := user{Account: account("n", "a"), task: 10 * time.Minute, part: 1. / 16}
	b := user{Account: account("n", "b"), task: 10 * time.Minute, part: 1. / 16, from: 200 * time.Hour}
	s := newSimulation(nil, a, b)
	s.run(0, 200*time.Hour)
	if got := s.part(a.Account); got != 1 {
		t.Errorf("alone it had %v of the worker", got)
	}
	s.run(201*time.Hour, 215*time.Hour)
	if got := s.part(b.Account); got < 0.99 {
		t.Errorf("after the pause the other had %v of the worker at first", got)
	}
	s.run(235*time.Hour, 300*time.Hour)
	if got := s.part(b.Account); math.Abs(got-.5) > .03 {
		t.Errorf("later it had %v of it", got)
	}
}

// TestNobodyFillsTheWorkerWithLongTasks: of two that have used nothing, the first does not get all the room before it
// counts as use.
func TestNobodyFillsTheWorkerWithLongTasks(t *testing.T) {
	s := newSimulation(nil,
		user{Account: account("n", "a"), task: 100 * time.Hour, part: 1. / 64},
		user{Account: account("n", "b"), task: 100 * time.Hour, part: 1. / 64})
	s.run(0, time.Minute)
	if got := s.part(account("n", "b")); got < 0.2 {
		t.Errorf("the second got %v of the room", got)
	}
}

// TestEqualUseChangesNothing: one account, or those that have used about as much, have one level.
func TestEqualUseChangesNothing(t *testing.T) {
	a, b := account("n", "a"), account("n", "b")
	l := share.NewLedger()
	levels := func(now time.Time) (out []int) {
		for _, s := range l.Standings(now, []share.Account{a, b}) {
			out = append(out, s.Order())
		}
		return out
	}
	if got := levels(epoch); got[0] != 0 || got[1] != 0 {
		t.Errorf("of no use: %v", got)
	}
	l.Begin(epoch, a, 0.3, epoch)
	l.Begin(epoch, b, 0.29, epoch)
	for h := range 100 {
		if got := levels(epoch.Add(time.Duration(h) * time.Hour)); got[0] != 0 || got[1] != 0 {
			t.Errorf("of equal use, after %d hours: %v", h, got)
		}
	}
	if got := l.Standings(epoch.Add(time.Hour), []share.Account{a}); got[0].Order() != 0 || got[0].Due != 1 {
		t.Errorf("one alone: %+v", got)
	}
	l.End(epoch.Add(100*time.Hour), a, 0.3)
	l.End(epoch.Add(100*time.Hour), b, 0.29)
	l.Begin(epoch.Add(100*time.Hour), a, 1, epoch.Add(100*time.Hour))
	if got := levels(epoch.Add(110 * time.Hour)); got[0] <= 0 || got[1] >= 0 {
		t.Errorf("after ten hours of one alone: %v", got)
	}
}

// TestUseDecays: by half in HalfLife, while nothing runs; it grows to a bound while something does.
func TestUseDecays(t *testing.T) {
	l, a := share.NewLedger(), account("n", "a")
	l.Begin(epoch, a, 0.5, epoch)
	l.End(epoch.Add(time.Hour), a, 0.5)
	at := func(d time.Duration) float64 { return l.Standings(epoch.Add(d), []share.Account{a})[0].Hours }
	first := at(time.Hour)
	if math.Abs(first-0.5) > 0.01 {
		t.Errorf("half the worker for an hour is %v worker-hours", first)
	}
	if got := at(time.Hour + share.HalfLife); math.Abs(got-first/2) > 1e-9 {
		t.Errorf("after a half-life %v of %v is left", got, first)
	}
	if got := at(time.Hour); math.Abs(got-first/2) > 1e-9 {
		t.Errorf("a clock that goes back changes it to %v", got)
	}
	l.Begin(epoch.Add(100*time.Hour), a, 1, epoch.Add(100*time.Hour))
	if got := at(1e5 * time.Hour); math.Abs(got-24/math.Ln2) > 0.01 {
		t.Errorf("the whole worker for ever is %v worker-hours", got)
	}
}

// TestCountsStaySane: whatever comes in whatever order, nothing is negative, infinite or no number, and no more accounts
// are kept than MaxAccounts; what is saved and restored is the same.
func TestCountsStaySane(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, now := share.NewLedger(), epoch
		draw := func() share.Account {
			return account(rapid.SampledFrom([]string{"", "n", "m"}).Draw(t, "namespace"),
				rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "owner"))
		}
		part := rapid.SampledFrom([]float64{0, 1e-9, 0.1, 1. / 3, 1})
		weight := rapid.SampledFrom([]float64{-1, 0, 1e-9, 2, 1e300, math.MaxFloat64})
		l.SetWeights(map[string]float64{"n": weight.Draw(t, "weight"), "m": weight.Draw(t, "other weight")})
		check := func(*rapid.T) {
			saved := l.Save(now)
			for _, u := range saved.Used {
				if !(u.Hours >= 0) || u.Hours > 1e6 {
					t.Fatalf("%+v", u)
				}
			}
			if _, err := json.Marshal(saved); err != nil {
				t.Fatal(err)
			}
			var all []share.Account
			for _, n := range []string{"", "n", "m"} {
				all = append(all, account(n, ""), account(n, "a"), account(n, "b"))
			}
			for _, s := range l.Standings(now, all) {
				if !(s.Hours >= 0 && s.Held >= 0 && s.Due >= 0 && s.Due <= 1) || max(s.Order(), -s.Order()) > 1<<20 {
					t.Fatalf("%+v", s)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": check,
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.Int64Range(-int64(time.Hour), int64(1e5*time.Hour)).Draw(t, "time")))
			},
			"begin":   func(t *rapid.T) { l.Begin(now, draw(), part.Draw(t, "part"), now) },
			"resume":  func(t *rapid.T) { l.Begin(now, draw(), part.Draw(t, "part"), time.Time{}) },
			"end":     func(t *rapid.T) { l.End(now, draw(), part.Draw(t, "part")) },
			"promise": func(t *rapid.T) { l.Promise(now, draw(), part.Draw(t, "part")) },
			"keep":    func(t *rapid.T) { l.EndPromise(draw(), part.Draw(t, "part")) },
			"restart": func(t *rapid.T) {
				saved := l.Save(now)
				l = share.NewLedger()
				l.Restore(now, saved)
			},
		})
	})
}

// TestAccountsAreBounded: of more than MaxAccounts those are forgotten that have used least, and none that has tasks.
func TestAccountsAreBounded(t *testing.T) {
	l := share.NewLedger()
	for i := range share.MaxAccounts + 100 {
		a := account("n", fmt.Sprint(i))
		l.Begin(epoch, a, 0.1, epoch)
		if i > 0 {
			l.End(epoch.Add(time.Duration(i+1)*time.Second), a, 0.1)
		}
	}
	saved := l.Save(epoch)
	if len(saved.Used) > share.MaxAccounts || saved.Used[0].Owner != "0" || saved.Used[1].Owner == "1" {
		t.Errorf("%d accounts are kept, first %+v", len(saved.Used), saved.Used[:2])
	}
}

// TestTaskThatRanOnCounts: over a restart, from when the counts were saved, or from its begin.
func TestTaskThatRanOnCounts(t *testing.T) {
	a := account("n", "a")
	for began, want := range map[time.Duration]float64{-time.Hour: 1.5, 30 * time.Minute: 1} {
		l := share.NewLedger()
		l.Restore(epoch.Add(time.Hour), share.Saved{At: epoch, Used: []share.Used{{Account: a, Hours: 0.5},
			{Account: account("x", ""), Hours: -1}, {Account: account("y", ""), Hours: math.Inf(1)}}})
		l.Begin(epoch.Add(time.Hour), a, 1, epoch.Add(began))
		saved := l.Save(epoch.Add(time.Hour))
		if len(saved.Used) != 1 || math.Abs(saved.Used[0].Hours-want) > 0.05 {
			t.Errorf("a task that began at %v: %+v", began, saved)
		}
	}
}

// TestWorthIsThePartOfAWorker: by price, and by the dominant dimension where there is none.
func TestWorthIsThePartOfAWorker(t *testing.T) {
	all := cluster.Resources{CPU: 16_000, Memory: 64 << 10, GPU: 2000}
	for _, c := range []struct {
		want  cluster.Resources
		price map[string]float64
		part  float64
	}{
		{cluster.Resources{CPU: 4000}, map[string]float64{"cpu": 1}, 0.25},
		{cluster.Resources{CPU: 4000, Memory: 64 << 10}, nil, 1},
		{cluster.Resources{CPU: 4000, Memory: 1 << 10}, nil, 0.25},
		{cluster.Resources{CPU: 1000, GPU: 1000}, map[string]float64{"gpu": 8}, 0.5},
		{cluster.Resources{CPU: 1000}, map[string]float64{"gpu": 8}, 1. / 16},
		{cluster.Resources{CPU: 99_000}, map[string]float64{"cpu": 8}, 1},
		{cluster.Resources{}, map[string]float64{"cpu": 8}, 0},
	} {
		p := quota.Price{PerHour: c.price, Bands: map[machine.Band]float64{"service": 0}}
		if got := share.Worth(c.want, all, p); math.Abs(got-c.part) > 1e-9 {
			t.Errorf("%v at %v is %v of the worker, want %v", c.want, c.price, got, c.part)
		}
	}
	if got := share.Worth(all, cluster.Resources{}, quota.DefaultPrice()); got != 0 {
		t.Errorf("of a worker with nothing: %v", got)
	}
}
