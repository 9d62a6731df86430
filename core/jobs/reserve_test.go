package jobs_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/backfill"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/machine"
)

// limited makes a bid with a time limit; 0: none.
func limited(rank, cpu int64, quota int, limit time.Duration) jobs.ShapeBid {
	bid := auction.NoBid()
	bid.Short = rank
	return jobs.ShapeBid{Shape: jobs.Shape{CPU: cpu, Memory: 64}, Bid: bid, Quota: quota, Limit: limit.Microseconds()}
}

// stall is a worker of four cores.
type stall struct {
	*jobs.Slots
	used cluster.Resources
	now  time.Time
}

// newStall makes a worker with a task of each limit, each of one core.
func newStall(t *testing.T, limits ...time.Duration) *stall {
	t.Helper()
	s := &stall{Slots: jobs.NewSlots(8, auction.DefaultRules(8)), now: epoch}
	for _, limit := range limits {
		s.hear(limited(1, 1000, 1, limit))
		s.begin(t, s.offers()[0], limit)
	}
	return s
}

func (s *stall) hear(bids ...jobs.ShapeBid) { s.Hear("a", &jobs.Bulletin{Bids: bids}) }

func (s *stall) record() cluster.Record {
	return cluster.Record{Worker: "w", State: cluster.Ready, Incarnation: 1, Used: s.used,
		Capacity: cluster.Resources{CPU: 4000, Memory: 4096}}
}

func (s *stall) offers() []jobs.SlotOffer { return s.Offers(s.now, s.record())["a"] }

func (s *stall) begin(t fataler, o jobs.SlotOffer, limit time.Duration) {
	if got := s.Answer(s.now, "a", o.Offer, auction.TaskGrant{Offer: o.Number}, true); got != auction.Accept {
		t.Fatalf("the grant: %v", got)
	}
	s.Bound(o.Slot, o.Shape.Resources(), s.now, limit)
	s.used = s.used.Add(o.Shape.Resources())
}

func (s *stall) end(slot int32, shape jobs.Shape) {
	s.Free(s.now, slot)
	s.used = s.used.Sub(shape.Resources())
}

// TestReservedRoomIsFilledUntilItIsUsed: two tasks run, and the first of the bids has no room until they have ended. Each
// row says what the other bids are offered until then.
func TestReservedRoomIsFilledUntilItIsUsed(t *testing.T) {
	const sec = time.Second
	mixed, equal, never := []time.Duration{10 * sec, 20 * sec}, []time.Duration{10 * sec, 10 * sec},
		[]time.Duration{10 * sec, 0}
	whole, three, brief := limited(1, 4000, 1, 0), limited(1, 3000, 1, 0), limited(1, 3000, 1, 5*sec)
	whole2, wide := limited(2, 4000, 1, 0), limited(2, 3500, 1, 0)
	elsewhere := whole
	elsewhere.Elsewhere = true
	one := func(limit time.Duration) jobs.ShapeBid { return limited(2, 1000, 2, limit) }
	last := func(limit time.Duration) jobs.ShapeBid { return limited(3, 1000, 1, limit) }
	for name, c := range map[string]struct {
		runs   []time.Duration
		bids   []jobs.ShapeBid
		policy backfill.Policy
		want   []int64       // seconds of the offers' Within
		in     time.Duration // until the room of the first bid; -1: it is not reserved
	}{
		"ends just in time": {mixed, []jobs.ShapeBid{whole, one(20 * sec)}, backfill.EASY, []int64{20, 20}, 20 * sec},
		"ends too late":     {mixed, []jobs.ShapeBid{whole, one(21 * sec)}, backfill.EASY, nil, 20 * sec},
		"has no limit":      {mixed, []jobs.ShapeBid{whole, one(0)}, backfill.EASY, nil, 20 * sec},
		"runs beside it":    {equal, []jobs.ShapeBid{three, one(0)}, backfill.EASY, []int64{0}, 10 * sec},
		"both":              {equal, []jobs.ShapeBid{three, one(10 * sec)}, backfill.EASY, []int64{0, 10}, 10 * sec},
		"in all its room":   {mixed, []jobs.ShapeBid{whole, one(2 * sec)}, backfill.EASY, []int64{20, 20}, 20 * sec},
		"first come":        {mixed, []jobs.ShapeBid{whole, one(sec)}, backfill.FCFS, nil, 20 * sec},
		"elsewhere":         {mixed, []jobs.ShapeBid{elsewhere, one(0)}, backfill.EASY, []int64{0, 0}, -1},
		"nobody knows when": {never, []jobs.ShapeBid{whole, one(0)}, backfill.EASY, []int64{0, 0}, -1},
		"the second, too":   {equal, []jobs.ShapeBid{three, wide, last(0)}, backfill.EASY, []int64{0}, 10 * sec},
		"the second, not":   {equal, []jobs.ShapeBid{brief, whole2, last(0)}, backfill.Conservative, nil, 10 * sec},
		"the second in time": {equal, []jobs.ShapeBid{brief, whole2, last(15 * sec)}, backfill.Conservative,
			[]int64{15}, 10 * sec},
	} {
		s := newStall(t, c.runs...)
		s.SetBackfill(c.policy)
		s.hear(c.bids...)
		var got []int64
		for _, o := range s.offers() {
			got = append(got, o.Within/1e6)
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: offered within %v, not %v", name, got, c.want)
		}
		list, _ := s.ReservedFor(s.now, "a")
		switch {
		case c.in < 0 && len(list) != 0:
			t.Errorf("%s: reserved is %+v", name, list)
		case c.in >= 0 && (len(list) == 0 || list[0].Shape != c.bids[0].Shape || list[0].InMS != c.in.Milliseconds()):
			t.Errorf("%s: reserved is %+v, not in %v", name, list, c.in)
		}
		if _, others := s.ReservedFor(s.now, "b"); others != (c.in >= 0) {
			t.Errorf("%s: another buyer is told %v", name, others)
		}
	}
}

// TestOfferOfUnknownLimitIsAwaited: while it is not known for how long an offer will be used, nothing is offered that
// might take the room of the first bid.
func TestOfferOfUnknownLimitIsAwaited(t *testing.T) {
	s := newStall(t)
	s.hear(limited(1, 3000, 1, 10*time.Second))
	first := s.offers()
	s.hear(limited(1, 4000, 1, 0), limited(2, 1000, 1, 0))
	if got := s.offers(); len(first) != 1 || len(got) != 0 {
		t.Fatalf("%+v, then %+v", first, got)
	}
	s.begin(t, first[0], 0) // a task without a limit was granted
	if got := s.offers(); len(got) != 1 {
		t.Fatalf("%+v", got)
	}
}

// TestGPUsAreReservedByKind: a task that needs the GPUs of one kind leaves those of another to others.
func TestGPUsAreReservedByKind(t *testing.T) {
	s := newStall(t)
	kind := func(rank int64, kind string, limit time.Duration) jobs.ShapeBid {
		b := limited(rank, 100, 1, limit)
		b.Shape.GPU, b.Shape.GPUKind = 1000, kind
		return b
	}
	gpus := []cluster.GPU{{Kind: "a100", Free: 1000}, {Kind: "h200", Free: 1000}}
	rec := s.record()
	rec.GPUs, rec.Capacity = gpus, rec.Capacity.Add(machine.DeviceResources(gpus))
	s.hear(kind(1, "a100", time.Minute))
	s.begin(t, s.Offers(s.now, rec)["a"][0], time.Minute)
	rec.Used, rec.GPUs[0].Free = s.used, 0
	s.hear(kind(1, "a100", 0), kind(2, "h200", 0))
	got := s.Offers(s.now, rec)["a"]
	if len(got) != 1 || got[0].Shape.GPUKind != "h200" || got[0].Within != 0 {
		t.Fatalf("%+v", got)
	}
}

// guest is a task of a property test.
type guest struct {
	shape jobs.Shape
	slot  int32
	ends  time.Time
}

// TestReservedRoomIsThereInTime: a bid has its room when that was first expected, as long as no better one comes and
// nothing runs past its limit, whatever else is offered meanwhile; under conservative backfill so has each bid.
func TestReservedRoomIsThereInTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &stall{Slots: jobs.NewSlots(rapid.IntRange(2, 6).Draw(t, "slots"), auction.DefaultRules(8)), now: epoch}
		policy := rapid.SampledFrom([]backfill.Policy{backfill.EASY, backfill.Conservative}).Draw(t, "policy")
		s.SetBackfill(policy)
		waits, due := map[jobs.Shape]jobs.ShapeBid{}, map[jobs.Shape]time.Time{}
		var runs []guest
		serve := func() {
			bids := []jobs.ShapeBid{}
			for _, k := range slices.SortedFunc(maps.Keys(waits), func(a, b jobs.Shape) int {
				return int(waits[a].Bid.Short - waits[b].Bid.Short)
			}) {
				bids = append(bids, waits[k])
			}
			for again := true; again; {
				s.hear(bids...)
				offers := s.offers()
				again = len(offers) > 0
				for _, o := range offers {
					limit := time.Duration(waits[o.Shape].Limit) * time.Microsecond
					if worse := waits[o.Shape].Bid.Short > o.Before; worse && o.Within > 0 && (limit == 0 ||
						limit.Microseconds() > o.Within) {
						t.Fatalf("%+v is offered to tasks with a limit of %v", o, limit)
					}
					s.begin(t, o, limit)
					ends := s.now.Add(time.Hour)
					if limit > 0 {
						ends = s.now.Add(time.Duration(rapid.Int64Range(0, limit.Milliseconds()).Draw(t, "takes")) *
							time.Millisecond)
					}
					runs = append(runs, guest{o.Shape, o.Slot, ends})
					if at, is := due[o.Shape]; is && s.now.After(at) {
						t.Fatalf("%+v has room at %v, and was to have it at %v", o.Shape, s.now, at)
					}
					delete(waits, o.Shape)
					delete(due, o.Shape)
					bids = slices.DeleteFunc(bids, func(b jobs.ShapeBid) bool { return b.Shape == o.Shape })
				}
			}
			list, _ := s.ReservedFor(s.now, "a")
			for i, r := range list {
				at := s.now.Add(time.Duration(r.InMS+1) * time.Millisecond)
				if _, is := due[r.Shape]; !is && (i == 0 || policy == backfill.Conservative) {
					due[r.Shape] = at
				}
			}
		}
		for n := range rapid.IntRange(1, 40).Draw(t, "events") {
			if rapid.Bool().Draw(t, "a new bid") {
				limit := time.Duration(rapid.SampledFrom([]int{0, 1, 3, 10, 30}).Draw(t, "limit")) * time.Second
				cpu := rapid.SampledFrom([]int64{500, 1000, 2000, 3000, 4000}).Draw(t,
					"cpu") + int64(n) // one bid a shape
				if cpu <= 4000 {
					b := limited(int64(n+1), cpu, 1, limit)
					waits[b.Shape] = b
				}
			}
			s.now = s.now.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond)
			slices.SortStableFunc(runs, func(a, b guest) int { return a.ends.Compare(b.ends) })
			now := s.now
			for len(runs) > 0 && !runs[0].ends.After(now) {
				s.now = runs[0].ends
				s.end(runs[0].slot, runs[0].shape)
				runs = runs[1:]
				serve()
				slices.SortStableFunc(runs, func(a, b guest) int { return a.ends.Compare(b.ends) })
			}
			s.now = now
			serve()
			for shape, at := range due {
				if s.now.After(at) {
					t.Fatalf("%+v was to have room at %v, and has none at %v", shape, at, s.now)
				}
			}
		}
	})
}

// TestOneWorkerReservesRoomForOneTask: two workers have no room for a large task. The one that has it first reserves it,
// and runs only what ends in time; the other runs what comes. The large job is told where its room is.
func TestOneWorkerReservesRoomForOneTask(t *testing.T) {
	scene(t, 2, 8, func(t *rapid.T, w *world) {
		for _, p := range w.workers {
			p.accounts = true
			p.connect()
		}
		small := func(n, tasks int, limit time.Duration) string {
			return w.submit(n, settled(t, jobs.Spec{CPUKind: "performance", CPUs: 1, MemoryMB: 64, Last: tasks - 1,
				TimeoutMS: limit.Milliseconds()}))
		}
		small(1, 6, time.Minute)
		large := w.submit(2, settled(t, jobs.Spec{CPUKind: "performance", CPUs: 4, MemoryMB: 64}))
		tick := func() {
			w.now = w.now.Add(500 * time.Millisecond)
			w.dispatcher.Open(w.now)
			w.obey()
		}
		tick()
		reserving := func() (out []*peer) {
			for _, p := range w.workers {
				list, _ := p.slots.ReservedFor(w.now, buyer)
				if slices.ContainsFunc(list, func(r jobs.Reserved) bool { return r.Shape.CPU == 4000 }) {
					out = append(out, p)
				}
			}
			return out
		}
		if len(reserving()) != 1 {
			t.Fatalf("%d workers reserve room for one task", len(reserving()))
		}
		long, short, endless := small(3, 1, 2*time.Minute), small(4, 1, 50*time.Second), small(5, 1, 0)
		tick()
		states := map[string]jobs.Job{}
		for _, j := range w.dispatcher.List(w.now, "") {
			j, _ = w.dispatcher.Status(w.now, j.ID)
			states[j.ID] = j
		}
		if states[long].Running != 1 || states[short].Running != 1 || states[endless].Running != 0 {
			t.Fatalf("%+v", states)
		}
		if at := w.tasks(short)[0].Worker; at != reserving()[0].id {
			t.Errorf("what ends in time runs on %s, and %s reserves room", at, reserving()[0].id)
		}
		if why := states[large].Why; !strings.Contains(why, "room for it is reserved on worker "+
			string(reserving()[0].id)+", and is free in 59s at the latest") {
			t.Error(why)
		}
		w.drain(0)
	})
}

// TestWorseTasksOfABidAreBoundToo: short tasks whose job has learned how short they are go before a large one that
// waits; a task of the same shape that does not, and would not end in time, waits behind it.
func TestWorseTasksOfABidAreBoundToo(t *testing.T) {
	scene(t, 1, 8, func(t *rapid.T, w *world) {
		w.workers[0].accounts = true
		w.workers[0].connect()
		small := jobs.Spec{CPUKind: "performance", CPUs: 1, MemoryMB: 64, TimeoutMS: 60_000}
		w.submit(1, settled(t, small))
		large := w.submit(2, settled(t, jobs.Spec{CPUKind: "performance", CPUs: 4, MemoryMB: 64}))
		late, short := small, small
		late.Priority, short.TimeoutMS, short.EstimateMS, short.Last = jobs.Low, 20_000, 1, 9
		late.TimeoutMS = rapid.SampledFrom([]int64{0, 61_000, 1_000}).Draw(t, "limit")
		policy := rapid.SampledFrom([]backfill.Policy{backfill.EASY, backfill.FCFS}).Draw(t, "policy")
		w.workers[0].slots.SetBackfill(policy)
		fills := policy == backfill.EASY && late.TimeoutMS == 1_000
		waits := w.submit(3, settled(t, late))
		id := w.submit(4, settled(t, short))
		for range 30 {
			for _, p := range w.workers {
				for _, l := range inOrder(p.running) {
					if l.Job == id {
						p.end(l, 0)
						p.report()
					}
				}
			}
			w.now = w.now.Add(100 * time.Millisecond)
			w.dispatcher.Open(w.now)
			w.obey()
			w.flush()()
		}
		if j, _ := w.dispatcher.Status(w.now, id); j.State != jobs.Succeeded {
			t.Errorf("what is short and goes first: %+v", j)
		}
		if j, _ := w.dispatcher.Status(w.now, waits); j.Running > 0 != fills {
			t.Errorf("a task that comes behind the large one: %+v", j)
		}
		if j, _ := w.dispatcher.Status(w.now, large); j.Running > 0 {
			t.Error("the large one began without room")
		}
		w.drain(0)
	})
}

// TestTasksAreKeptFromWhatAGangWaitsFor: what came before the gang began to wait goes first; what comes later may have
// its room until the gang can have it, where that is known, and nothing where it is not.
func TestTasksAreKeptFromWhatAGangWaitsFor(t *testing.T) {
	for name, c := range map[string]struct {
		runs time.Duration
		bid  jobs.ShapeBid
		want int
	}{
		"before it":            {time.Minute, limited(epoch.UnixMicro()-1, 1000, 3, 0), 3},
		"ends in time":         {time.Minute, limited(epoch.UnixMicro()+1, 1000, 3, time.Minute), 3},
		"ends too late":        {time.Minute, limited(epoch.UnixMicro()+1, 1000, 3, 61*time.Second), 0},
		"nobody knows when":    {0, limited(epoch.UnixMicro()+1, 1000, 3, time.Second), 0},
		"and it came before":   {0, limited(epoch.UnixMicro()-1, 1000, 3, 0), 3},
		"small, and beside it": {time.Minute, limited(epoch.UnixMicro()+1, 10, 3, 0), 3},
	} {
		s := newStall(t, c.runs)
		rec := s.record()
		rec.Capacity.CPU += 100
		rec.Wanted = []cluster.Wanted{{Namespace: cluster.DefaultNamespace, Gang: "g", Since: epoch,
			Resources: cluster.Resources{CPU: 4000, Memory: 64}, Until: epoch.Add(time.Second)}}
		s.hear(c.bid)
		got := s.Offers(s.now, rec)["a"]
		if len(got) != c.want {
			t.Errorf("%s: %+v", name, got)
		}
		if _, others := s.ReservedFor(s.now, "a"); name == "ends too late" && !others {
			t.Errorf("%s: a buyer is not told that room is kept", name)
		}
		s.now = s.now.Add(time.Second) // nobody asked again
		if got = append(got, s.Offers(s.now, rec)["a"]...); len(got) != 3 {
			t.Errorf("%s: %+v when it waits no more", name, got)
		}
	}
}
