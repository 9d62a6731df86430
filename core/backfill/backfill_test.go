package backfill_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/backfill"
	"github.com/soukhq/souk/fault"
)

// arrival is a job of a test: when it is submitted, and how long it runs.
type arrival struct {
	backfill.Job
	submit, run int64
}

// outcome is what a planner did with a list of arrivals; each slice has one number for each of them.
type outcome struct {
	start, first []int64 // when it started; when it was first expected to
	order        []int64 // ids in the order of their starts
}

// drive runs a planner over arrivals in the order of their submission, whose ids are their indices.
func drive(t interface{ Fatalf(string, ...any) }, p planner, capacity backfill.Vector, jobs []arrival,
	each func(now int64)) outcome {
	o := outcome{start: make([]int64, len(jobs)), first: make([]int64, len(jobs))}
	for i := range o.first {
		o.start[i], o.first[i] = -1, backfill.Never
	}
	ends := map[int64][]int64{}
	wake, next := int64(backfill.Never), 0
	for now := int64(0); len(o.order) < len(jobs); now++ {
		if now > 100_000 {
			t.Fatalf("%d of %d jobs started", len(o.order), len(jobs))
		}
		happens := wake == now || len(ends[now]) > 0
		for _, id := range ends[now] {
			if !p.End(now, id) {
				t.Fatalf("job %d does not run", id)
			}
		}
		for ; next < len(jobs) && jobs[next].submit <= now; next++ {
			happens = true
			if err := p.Submit(jobs[next].Job); err != nil {
				t.Fatalf("%v", err)
			}
		}
		if !happens {
			continue
		}
		for _, j := range p.Start(now) {
			o.start[j.ID], o.order = now, append(o.order, j.ID)
			end := now + jobs[j.ID].run
			ends[end] = append(ends[end], j.ID)
		}
		for id := range next {
			if at, ok := p.Expected(int64(id)); ok && o.first[id] == backfill.Never {
				o.first[id] = at
			} else if o.start[id] == now {
				o.first[id] = min(o.first[id], now)
			}
		}
		checkCapacity(t, capacity, jobs, o.start, now)
		if each != nil {
			each(now)
		}
		wake = p.Wake(now)
	}
	return o
}

func checkCapacity(t interface{ Fatalf(string, ...any) }, capacity backfill.Vector, jobs []arrival, start []int64,
	now int64) {
	for d := range capacity {
		sum := int64(0)
		for i, j := range jobs {
			if start[i] >= 0 && start[i] <= now && now < start[i]+j.run {
				sum += j.Need[d]
			}
		}
		if sum > capacity[d] {
			t.Fatalf("at %d %d of %d is occupied", now, sum, capacity[d])
		}
	}
}

// drawJobs draws jobs for a capacity. Their estimates are at least their run times unless over is set.
func drawJobs(t *rapid.T, capacity backfill.Vector, most int, over bool) []arrival {
	var jobs []arrival
	now := int64(0)
	for id := range rapid.IntRange(1, most).Draw(t, "jobs") {
		now += rapid.Int64Range(0, 4).Draw(t, "gap")
		need := make(backfill.Vector, len(capacity))
		for d := range need {
			need[d] = rapid.Int64Range(0, capacity[d]).Draw(t, "need")
		}
		if slices.Max(need) == 0 {
			need[0] = 1
		}
		run := rapid.Int64Range(1, 12).Draw(t, "run")
		estimate := run + rapid.SampledFrom([]int64{0, 0, 1, 5, 20}).Draw(t, "spare")
		if over && rapid.Bool().Draw(t, "exceeds") {
			estimate = rapid.Int64Range(1, run).Draw(t, "estimate")
		}
		jobs = append(jobs, arrival{backfill.Job{ID: int64(id), Need: need, Estimate: estimate}, now, run})
	}
	return jobs
}

func drawCapacity(t *rapid.T) backfill.Vector {
	return rapid.SampledFrom([]backfill.Vector{{4}, {10}, {6, 3}, {4, 4, 2}}).Draw(t, "capacity")
}

var policies = []backfill.Policy{backfill.FCFS, backfill.EASY, backfill.Conservative}

// TestPlannerEqualsTheObviousOne: the same starts and the same reservations at every moment, jobs past their estimates
// too.
func TestPlannerEqualsTheObviousOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := drawCapacity(t)
		policy := rapid.SampledFrom(policies).Draw(t, "policy")
		jobs := drawJobs(t, capacity, 25, rapid.Bool().Draw(t, "over"))
		type expected struct{ now, id, at int64 }
		var seen [2][]expected
		var got [2]outcome
		both := []planner{backfill.NewPlanner(policy, 0, capacity, 1), &slow{policy: policy, capacity: capacity}}
		for k, p := range both {
			got[k] = drive(t, p, capacity, jobs, func(now int64) {
				for id := range jobs {
					if at, ok := p.Expected(int64(id)); ok {
						seen[k] = append(seen[k], expected{now, int64(id), at})
					}
				}
			})
		}
		if !slices.Equal(got[0].start, got[1].start) || !slices.Equal(got[0].order, got[1].order) {
			t.Fatalf("%v: starts %v, the obvious way %v; jobs %+v", policy, got[0].start, got[1].start, jobs)
		}
		if !slices.Equal(seen[0], seen[1]) {
			t.Fatalf("%v: expects\n%v, the obvious way\n%v; jobs %+v", policy, seen[0], seen[1], jobs)
		}
	})
}

// TestNobodyStartsLaterThanPromised: with estimates that are not exceeded, a reservation is a promise.
func TestNobodyStartsLaterThanPromised(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := drawCapacity(t)
		policy := rapid.SampledFrom(policies).Draw(t, "policy")
		jobs := drawJobs(t, capacity, 60, false)
		o := drive(t, backfill.NewPlanner(policy, 0, capacity, 1), capacity, jobs, nil)
		for id := range jobs {
			if o.start[id] > o.first[id] {
				t.Fatalf("%v: job %d started at %d, and was first expected at %d; jobs %+v", policy, id, o.start[id],
					o.first[id], jobs)
			}
			if policy == backfill.Conservative && o.first[id] == backfill.Never {
				t.Fatalf("job %d never had a reservation", id)
			}
		}
		if policy == backfill.FCFS && !slices.IsSorted(o.order) {
			t.Fatalf("first come, first served started %v", o.order)
		}
	})
}

func TestProfileEqualsAnArray(t *testing.T) {
	const horizon = 120
	rapid.Check(t, func(t *rapid.T) {
		p := backfill.NewProfile(0, backfill.Vector{9, 5})
		var free [horizon + 1][2]int64 // the last is what is free from then on
		for i := range free {
			free[i] = [2]int64{9, 5}
		}
		begin := int64(0)
		for range rapid.IntRange(1, 400).Draw(t, "changes") {
			from := rapid.Int64Range(begin, horizon-1).Draw(t, "from")
			until := rapid.Int64Range(from, horizon).Draw(t, "until")
			if until == horizon {
				until = backfill.Never
			}
			need := backfill.Vector{rapid.Int64Range(0, 3).Draw(t, "a"), rapid.Int64Range(0, 3).Draw(t, "b")}
			duration := rapid.SampledFrom([]int64{1, 2, 5, 40, backfill.Never}).Draw(t, "duration")
			change, sign := p.Take, int64(-1)
			switch rapid.IntRange(0, 8).Draw(t, "do") {
			case 0, 1, 2, 3:
				change, sign = p.Release, 1
			case 4:
				begin = min(from, begin+2)
				p.Forget(begin)
			}
			change(from, until, need)
			for i := from; i < min(until, horizon+1); i++ {
				free[i][0], free[i][1] = free[i][0]+sign*need[0], free[i][1]+sign*need[1]
			}
			for i := begin; i <= horizon; i++ {
				if got := p.FreeAt(i); got[0] != free[i][0] || got[1] != free[i][1] {
					t.Fatalf("at %d %v is free, not %v", i, got, free[i])
				}
			}
			want, fitting := int64(backfill.Never), 0
			for i := horizon; i >= int(from); i-- {
				if fitting++; free[i][0] < need[0] || free[i][1] < need[1] {
					fitting = 0
				}
				if fitting > 0 && (int64(fitting) >= duration || i+fitting == horizon+1) {
					want = int64(i)
				}
			}
			if got := p.Earliest(from, duration, need); got != want {
				t.Fatalf("%v is free for %d from %d at %d, not %d", need, duration, from, want, got)
			}
			want = backfill.Never
			for i := horizon; i >= int(from); i-- {
				if free[i][0] < need[0] || free[i][1] < need[1] {
					want = int64(i)
				}
			}
			if got := p.Until(from, need); got != want {
				t.Fatalf("%v is free from %d until %d, not %d", need, from, want, got)
			}
		}
	})
}

func job(id, need, estimate int64) backfill.Job {
	return backfill.Job{ID: id, Need: backfill.Vector{need}, Estimate: estimate}
}

func submit(t *testing.T, p *backfill.Planner, jobs ...backfill.Job) {
	t.Helper()
	for _, j := range jobs {
		if err := p.Submit(j); err != nil {
			t.Fatal(err)
		}
	}
}

func wantStarts(t *testing.T, p *backfill.Planner, now int64, want ...int64) {
	t.Helper()
	var got []int64
	for _, j := range p.Start(now) {
		got = append(got, j.ID)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("at %d started %v, want %v", now, got, want)
	}
}

func wantExpected(t *testing.T, p *backfill.Planner, id, want int64) {
	t.Helper()
	if at, _ := p.Expected(id); at != want {
		t.Fatalf("job %d is expected at %d, want %d", id, at, want)
	}
}

// TestPoliciesOnOneQueue: 4 processors, of which job 1 has 3 until 10. Job 2 needs all. Job 3 ends by then. Job 4 needs
// longer than the hole in front of job 2, and EASY has nothing extra for it.
func TestPoliciesOnOneQueue(t *testing.T) {
	for policy, want := range map[backfill.Policy][]int64{
		backfill.FCFS: {1}, backfill.EASY: {1, 3}, backfill.Conservative: {1, 3}} {
		p := backfill.NewPlanner(policy, 0, backfill.Vector{4}, 1)
		submit(t, p, job(1, 3, 10), job(2, 4, 5), job(3, 1, 10), job(4, 1, 11))
		wantStarts(t, p, 0, want...)
		if policy == backfill.Conservative {
			wantExpected(t, p, 2, 10)
			wantExpected(t, p, 4, 15)
		}
	}
}

// TestEASYDelaysTheSecondAndConservativeDoesNot: job 3 could start at 10 beside job 2. Job 4 would take its place.
func TestEASYDelaysTheSecondAndConservativeDoesNot(t *testing.T) {
	jobs := []backfill.Job{job(1, 3, 10), job(2, 2, 10), job(3, 2, 10), job(4, 1, 30)}
	easy := backfill.NewPlanner(backfill.EASY, 0, backfill.Vector{4}, 1)
	submit(t, easy, jobs...)
	wantStarts(t, easy, 0, 1, 4)
	easy.End(10, 1)
	wantStarts(t, easy, 10, 2)
	wantExpected(t, easy, 3, 20)
	cons := backfill.NewPlanner(backfill.Conservative, 0, backfill.Vector{4}, 1)
	submit(t, cons, jobs...)
	wantStarts(t, cons, 0, 1)
	wantExpected(t, cons, 4, 20)
	cons.End(10, 1)
	wantStarts(t, cons, 10, 2, 3)
}

// TestEASYSpendsExtraOnce: 10 processors, of which job 1 has 3 until 10, when job 2 takes 8: 2 are extra, for job 3 or
// for job 4, though both fit now.
func TestEASYSpendsExtraOnce(t *testing.T) {
	p := backfill.NewPlanner(backfill.EASY, 0, backfill.Vector{10}, 1)
	submit(t, p, job(1, 3, 10), job(2, 8, 5), job(3, 2, 100), job(4, 2, 100), job(5, 4, 10))
	wantStarts(t, p, 0, 1, 3, 5)
	wantExpected(t, p, 2, 10)
}

// TestEASYCountsAllThatEndsWithTheShadow: job 3 fits at 10 by the end of job 1 alone; that of job 2 makes extra.
func TestEASYCountsAllThatEndsWithTheShadow(t *testing.T) {
	p := backfill.NewPlanner(backfill.EASY, 0, backfill.Vector{10}, 1)
	submit(t, p, job(1, 6, 10), job(2, 3, 10), job(3, 7, 5), job(4, 1, 100))
	wantStarts(t, p, 0, 1, 2, 4)
}

func TestEarlyEndCompresses(t *testing.T) {
	p := backfill.NewPlanner(backfill.Conservative, 0, backfill.Vector{4}, 1)
	submit(t, p, job(1, 4, 100), job(2, 3, 10), job(3, 2, 10))
	wantStarts(t, p, 0, 1)
	wantExpected(t, p, 2, 100)
	wantExpected(t, p, 3, 110)
	p.End(7, 1)
	wantStarts(t, p, 7, 2)
	wantExpected(t, p, 3, 17)
	if wake := p.Wake(7); wake != 17 {
		t.Fatalf("wakes at %d", wake)
	}
}

// TestJobPastItsEstimateEndsAnyMoment: nothing that would outlast the head's next chance goes before it, and what waits
// does not wait for Start to be asked at every unit of time.
func TestJobPastItsEstimateEndsAnyMoment(t *testing.T) {
	for _, policy := range policies[1:] {
		p := backfill.NewPlanner(policy, 0, backfill.Vector{4}, 1)
		submit(t, p, job(1, 3, 10), job(2, 4, 5))
		wantStarts(t, p, 0, 1)
		submit(t, p, job(3, 1, 3))
		wantStarts(t, p, 50)
		wantExpected(t, p, 2, 51)
		if wake := p.Wake(50); wake < 56 {
			t.Fatalf("%v wakes at %d for a job that waits for an end", policy, wake)
		}
		p.End(60, 1)
		wantStarts(t, p, 60, 2)
		p.End(65, 2)
		wantStarts(t, p, 65, 3)
	}
}

// TestCancelOfTheFirstReservationKeepsTheOthers: were the cancelled one still the first to be expected, the wake at 12
// would count as late, and all reservations would be made again.
func TestCancelOfTheFirstReservationKeepsTheOthers(t *testing.T) {
	p := backfill.NewPlanner(backfill.Conservative, 0, backfill.Vector{4}, 1)
	submit(t, p, job(1, 4, 10), job(2, 4, 5), job(3, 4, 5))
	wantStarts(t, p, 0, 1)
	if !p.Cancel(3, 2) {
		t.Fatal("job 2 does not wait")
	}
	if wake := p.Wake(3); wake != 15 {
		t.Fatalf("wakes at %d", wake)
	}
	p.End(10, 1)
	wantStarts(t, p, 10, 3)
}

func TestMissingEstimateIsThePlannersOwn(t *testing.T) {
	p := backfill.NewPlanner(backfill.EASY, 0, backfill.Vector{4}, 100)
	submit(t, p, job(1, 3, 0), job(2, 4, 5), job(3, 1, 101), job(4, 1, 0))
	wantStarts(t, p, 0, 1, 4)
	wantExpected(t, p, 2, 100)
}

func TestTooLargeJobIsRefused(t *testing.T) {
	p := backfill.NewPlanner(backfill.EASY, 0, backfill.Vector{4, 1}, 1)
	err := p.Submit(backfill.Job{ID: 1, Need: backfill.Vector{4, 2}})
	if fault.CodeOf(err) != fault.CodeNeverFits || p.Waiting() != 0 {
		t.Fatal(err)
	}
}

// TestShrunkCapacityHoldsUpOnlyWhatNeedsMore: job 2 cannot start until the capacity comes back; job 3 can.
func TestShrunkCapacityHoldsUpOnlyWhatNeedsMore(t *testing.T) {
	for _, policy := range policies {
		p := backfill.NewPlanner(policy, 0, backfill.Vector{4}, 1)
		p.Adopt(0, job(1, 2, 0), 10)
		submit(t, p, job(2, 4, 5), job(3, 2, 50))
		wantStarts(t, p, 0)
		p.Resize(1, backfill.Vector{3})
		wantStarts(t, p, 1)
		p.End(5, 1)
		wantStarts(t, p, 5, 3)
		if p.Running() != 1 || !p.Cancel(5, 2) || p.Cancel(5, 2) || p.End(5, 2) {
			t.Fatal("job 2 does not wait")
		}
	}
}

// TestPlannerKeepsCapacityThroughLateWakesAndResizes: wakes that come late, cancels and resizes never start too
// much, and all that can start does.
func TestPlannerKeepsCapacityThroughLateWakesAndResizes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := backfill.Vector{8, 4}
		p := backfill.NewPlanner(rapid.SampledFrom(policies).Draw(t, "policy"), 0, capacity, 3)
		jobs := drawJobs(t, backfill.Vector{8, 4}, 30, true)
		free := slices.Clone(capacity)
		var running []backfill.Job
		now, next, halved := int64(0), 0, false
		for next < len(jobs) || p.Waiting()+p.Running() > 0 {
			now += rapid.Int64Range(0, 6).Draw(t, "pause")
			switch do := rapid.IntRange(0, 9).Draw(t, "do"); {
			case do < 5 && next < len(jobs):
				if err := p.Submit(jobs[next].Job); err != nil && !halved {
					t.Fatal(err)
				}
				next++
			case do == 8: // half of the pool goes, or comes back
				change := backfill.Vector{-4, -2}
				if halved {
					change = backfill.Vector{4, 2}
				}
				halved = !halved
				for d := range free {
					free[d], capacity[d] = free[d]+change[d], capacity[d]+change[d]
				}
				p.Resize(now, capacity)
			case do == 9 && next > 0:
				p.Cancel(now, rapid.Int64Range(0, int64(next-1)).Draw(t, "cancel"))
			case len(running) > 0:
				k := rapid.IntRange(0, len(running)-1).Draw(t, "end")
				if !p.End(now, running[k].ID) {
					t.Fatalf("job %d does not run", running[k].ID)
				}
				for d, n := range running[k].Need {
					free[d] += n
				}
				running = slices.Delete(running, k, k+1)
			}
			for _, j := range p.Start(now) {
				running = append(running, j)
				for d, n := range j.Need {
					if free[d] -= n; free[d] < 0 {
						t.Fatalf("at %d job %d makes it %v free", now, j.ID, free)
					}
				}
			}
			if len(running) == 0 && p.Waiting() > 0 && !halved {
				t.Fatalf("%d jobs wait and nothing runs", p.Waiting())
			}
		}
	})
}

// busy returns a planner whose pool is full, and jobs for its queue.
func busy(b *testing.B, policy backfill.Policy, n int) (*backfill.Planner, []backfill.Job) {
	rng := rand.New(rand.NewPCG(1, 2))
	p := backfill.NewPlanner(policy, 0, backfill.Vector{4000, 16000, 64}, 3600)
	draw := func(id int64) backfill.Job {
		return backfill.Job{ID: id, Need: backfill.Vector{1 + rng.Int64N(200), 1 + rng.Int64N(800), rng.Int64N(2)},
			Estimate: 60 + rng.Int64N(86_400)}
	}
	for id := range int64(200) {
		if err := p.Submit(draw(id)); err != nil {
			b.Fatal(err)
		}
	}
	p.Start(0)
	var jobs []backfill.Job
	for id := range int64(n) {
		jobs = append(jobs, draw(1000+id))
	}
	return p, jobs
}

// BenchmarkQueue fills a queue of 10,000 jobs, and then lets jobs end early, which compresses all reservations; it
// reports the time of the first and the mean of the others.
func BenchmarkQueue(b *testing.B) {
	for _, policy := range policies {
		b.Run(policy.String(), func(b *testing.B) {
			for b.Loop() {
				p, jobs := busy(b, policy, 10_000)
				for _, j := range jobs {
					if err := p.Submit(j); err != nil {
						b.Fatal(err)
					}
				}
				began := b.Elapsed()
				p.Start(1)
				filled := b.Elapsed()
				ended := 0
				for id := int64(0); id < 10_000 && ended < 10; id++ {
					if p.End(2+id, id) {
						ended++
						p.Start(2 + id)
					}
				}
				b.ReportMetric(float64((filled-began).Microseconds())/1000, "fill-ms")
				b.ReportMetric(float64((b.Elapsed()-filled).Microseconds())/1000/float64(ended), "pass-ms")
			}
		})
	}
}

// TestForeseenStartsComeTrue: where every job runs as long as estimated and no other comes, each starts when foreseen,
// and asking changes nothing.
func TestForeseenStartsComeTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := backfill.Policy(rapid.IntRange(0, 2).Draw(t, "policy"))
		p := backfill.NewPlanner(policy, 0, backfill.Vector{5}, 1)
		n := rapid.IntRange(1, 30).Draw(t, "jobs")
		ids := make([]int64, n)
		for i := range n {
			ids[i] = int64(i)
			err := p.Submit(backfill.Job{ID: int64(i), Need: backfill.Vector{rapid.Int64Range(1, 5).Draw(t, "need")},
				Estimate: rapid.Int64Range(1, 20).Draw(t, "estimate")})
			if err != nil {
				t.Fatal(err)
			}
		}
		foreseen := p.Foresee(0, 10_000, nil, ids...)
		ends := map[int64][]int64{}
		for now, started := int64(0), 0; started < n; now++ {
			if now > 1000 {
				t.Fatal("not all start")
			}
			for _, id := range ends[now] {
				p.End(now, id)
			}
			for _, j := range p.Start(now) {
				started++
				ends[now+j.Estimate] = append(ends[now+j.Estimate], j.ID)
				if at, is := foreseen[j.ID]; !is || at != now {
					t.Fatalf("%v: job %d starts at %d, foreseen %d", policy, j.ID, now, at)
				}
			}
		}
	})
}
