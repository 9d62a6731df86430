package market_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
)

// bazaar runs gangs against real sellers on a heap of what is due: answers come late, in any order, or never.
type bazaar struct {
	now     time.Time
	due     dues
	seq     int
	sellers map[cluster.WorkerID]*market.Seller
	chance  *rand.Rand
	loss    float64
	work    time.Duration // how long the machines of a gang run
	gangs   []*gangRun
}

type gangRun struct {
	name    string
	req     market.GangRequest
	buyer   *market.GangBuyer
	asked   []market.Ask
	answers []market.Answer
	open    int // answers that are awaited
	done    bool
	err     error
	granted map[string]cluster.WorkerID // machines that exist
}

type due struct {
	at  time.Time
	seq int
	f   func()
}

type dues []due

func (d dues) Len() int { return len(d) }
func (d dues) Less(i, j int) bool {
	return d[i].at.Before(d[j].at) || (d[i].at.Equal(d[j].at) && d[i].seq < d[j].seq)
}
func (d dues) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d *dues) Push(x any)   { *d = append(*d, x.(due)) }
func (d *dues) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

func newBazaar(seed uint64, workers int, loss float64) *bazaar {
	b := &bazaar{now: epoch, sellers: map[cluster.WorkerID]*market.Seller{}, chance: rand.New(rand.NewPCG(seed, 1)),
		loss: loss, work: time.Minute}
	for i := range workers {
		id := cluster.WorkerID(fmt.Sprintf("w%02d", i))
		b.sellers[id] = market.NewSeller(cluster.Record{Worker: id, State: cluster.Ready, Incarnation: 1,
			Capacity:   cluster.Resources{CPU: 4000, Memory: 4000},
			Attributes: cluster.Attributes{"rack": cluster.Text(fmt.Sprintf("r%d", i%2))}})
	}
	return b
}

func (b *bazaar) after(d time.Duration, f func()) {
	b.seq++
	heap.Push(&b.due, due{b.now.Add(d), b.seq, f})
}

func (b *bazaar) delay() time.Duration {
	return time.Duration(b.chance.Int64N(int64(20 * time.Millisecond)))
}

func (b *bazaar) view() cluster.View {
	v := cluster.View{At: b.now}
	for i := range len(b.sellers) {
		v.Workers = append(v.Workers, b.sellers[cluster.WorkerID(fmt.Sprintf("w%02d", i))].Record(b.now))
	}
	return v
}

func (b *bazaar) start(t testing.TB, name string, members, least int, each int64, same string,
	patience time.Duration) *gangRun {
	g := &gangRun{name: name, granted: map[string]cluster.WorkerID{}}
	g.req = market.GangRequest{ID: name, Min: least, Same: same, Until: b.now.Add(patience)}
	for i := range members {
		g.req.Members = append(g.req.Members, placement.Request{App: name, Machine: fmt.Sprintf("%s-%d", name, i),
			Resources: cluster.Resources{CPU: each, Memory: each}})
	}
	var err error
	if g.buyer, err = market.NewGangBuyer(g.req, b.view(), placement.Default(), b.chance); err != nil {
		t.Fatal(err)
	}
	b.gangs = append(b.gangs, g)
	b.after(0, func() { b.step(g, nil) })
	return g
}

func (b *bazaar) step(g *gangRun, in []market.Answer) {
	out := g.buyer.Step(b.now, in)
	switch {
	case out.Done:
		g.done, g.err = true, out.Err
		if out.Err == nil {
			b.after(b.work, func() { b.end(g) })
		}
		return
	case len(out.Asks) == 0:
		b.after(out.After, func() {
			if out.Refresh {
				g.buyer.SetView(b.view())
			}
			b.step(g, nil)
		})
		return
	}
	g.asked, g.answers, g.open = out.Asks, make([]market.Answer, len(out.Asks)), len(out.Asks)
	for i, a := range out.Asks {
		lostThere, lostBack := b.chance.Float64() < b.loss, b.chance.Float64() < b.loss
		b.after(out.After+b.delay(), func() {
			answer := market.Answer{Lost: true}
			if !lostThere {
				if got := b.carryOut(g, a); !lostBack {
					answer = got
				}
			}
			b.after(b.delay(), func() {
				g.answers[i] = answer
				if g.open--; g.open == 0 {
					b.step(g, g.answers)
				}
			})
		})
	}
}

func (b *bazaar) carryOut(g *gangRun, a market.Ask) market.Answer {
	s, r := b.sellers[a.Worker], g.req.Members[a.Member]
	var err error
	in := market.Answer{Done: true}
	switch a.Act {
	case market.ActHold:
		in.Expires, err = s.Hold(b.now, "b", r, a.Token, a.TTL)
	case market.ActGrant:
		if err = s.Grant(b.now, r, a.Token, true); err == nil {
			g.granted[r.Machine] = a.Worker
		}
	case market.ActRelease:
		s.Release(b.now, a.Token)
	case market.ActUndo:
		s.Free(r.Machine)
		delete(g.granted, r.Machine)
	}
	s.Check()
	if err == nil {
		return in
	}
	refusal, ok := fault.Detail[market.Refusal](err)
	if !ok {
		return market.Answer{Failed: err}
	}
	return market.Answer{Refused: &refusal}
}

func (b *bazaar) end(g *gangRun) {
	for m, w := range g.granted {
		b.sellers[w].Free(m)
	}
	clear(g.granted)
}

// run works until nothing is due. check is called after each thing that happens.
func (b *bazaar) run(check func()) {
	for len(b.due) > 0 {
		d := heap.Pop(&b.due).(due)
		b.now = d.at
		d.f()
		if check != nil {
			check()
		}
	}
}

func (b *bazaar) holdsLeft() (n int) {
	for _, s := range b.sellers {
		if r := s.Record(b.now.Add(market.GangHoldTTL)); !r.Used.IsZero() {
			n++
		}
	}
	return n
}

// TestThreeGangsOf60PercentAllRun: three gangs that each want 60 % of everything all run, one after the other.
func TestThreeGangsOf60PercentAllRun(t *testing.T) {
	for seed := range uint64(50) {
		b := newBazaar(seed, 10, 0)
		for _, name := range []string{"a", "b", "c"} {
			b.start(t, name, 24, 0, 1000, "", time.Hour) // 24 of 40 cores
		}
		b.run(nil)
		for _, g := range b.gangs {
			if tries, refusals := g.buyer.Tries(); g.err != nil || !g.done {
				t.Fatalf("seed %d: gang %s ended with %v after %d tries: %q", seed, g.name, g.err, tries, refusals)
			}
		}
		if b.holdsLeft() > 0 {
			t.Fatalf("seed %d: something is left in the ledgers", seed)
		}
	}
}

// TestGangIsPlacedWholeOrNotAtAll: whatever is lost, a gang ends whole or with nothing, and every hold ends.
func TestGangIsPlacedWholeOrNotAtAll(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBazaar(rapid.Uint64().Draw(rt, "seed"), rapid.IntRange(1, 6).Draw(rt, "workers"),
			float64(rapid.IntRange(0, 30).Draw(rt, "loss"))/100)
		for i := range rapid.IntRange(1, 5).Draw(rt, "gangs") {
			n := rapid.IntRange(1, 12).Draw(rt, "members")
			same := rapid.SampledFrom([]string{"", "rack"}).Draw(rt, "same")
			b.start(t, fmt.Sprintf("g%d", i), n, rapid.IntRange(0, n).Draw(rt, "min"),
				rapid.Int64Range(200, 4000).Draw(rt, "each"), same, time.Minute)
		}
		b.work = 3 * time.Second
		ended := map[string]bool{}
		b.run(func() {
			for _, g := range b.gangs {
				if !g.done || ended[g.name] {
					continue
				}
				ended[g.name] = true
				checkWhole(rt, b, g)
			}
		})
		for _, g := range b.gangs {
			if !g.done {
				rt.Fatalf("gang %s never ended", g.name)
			}
		}
		if b.loss == 0 && b.holdsLeft() > 0 {
			rt.Fatal("something is left in the ledgers")
		}
	})
}

func checkWhole(rt *rapid.T, b *bazaar, g *gangRun) {
	least := g.req.Min
	if least == 0 {
		least = len(g.req.Members)
	}
	switch {
	case g.err == nil && len(g.granted) < least:
		rt.Fatalf("gang %s is told to be placed and has %d of %d machines", g.name, len(g.granted), least)
	case g.err != nil && b.loss == 0 && len(g.granted) > 0:
		rt.Fatalf("gang %s gave up (%v) and has %d machines", g.name, g.err, len(g.granted))
	}
	racks := map[string]bool{}
	for m, w := range g.granted {
		if i := strings.LastIndexByte(m, '-'); g.err == nil && g.buyer.Placed()[atoi(m[i+1:])] != w {
			rt.Fatalf("machine %s is on %s and was told to be elsewhere", m, w)
		}
		v, _ := b.sellers[w].Record(b.now).Attributes["rack"], true
		racks[v.String()] = true
	}
	if g.req.Same != "" && g.err == nil && len(racks) > 1 {
		rt.Fatalf("gang %s lies on racks %v", g.name, racks)
	}
}

func atoi(s string) (n int) {
	for _, c := range s {
		n = 10*n + int(c-'0')
	}
	return n
}

func TestRefusedGangReportsTheFailingMember(t *testing.T) {
	b := newBazaar(1, 2, 0)
	g := b.start(t, "g", 9, 0, 1000, "", 100*time.Millisecond)
	b.run(nil)
	want := "no room for 9 of 9 machines at once after "
	if g.err == nil || !strings.HasPrefix(fault.As(g.err).Text, want) ||
		!strings.Contains(fault.As(g.err).Text, "there is room for 8, then cpu: wanted 1") {
		t.Errorf("%v", g.err)
	}
	for _, r := range []market.GangRequest{{ID: "x"}, {ID: "x", Members: make([]placement.Request, 2), Min: 3},
		{Members: make([]placement.Request, 1)}} {
		if _, err := market.NewGangBuyer(r, cluster.View{}, placement.Default(), b.chance); !fault.Is(err,
			fault.Invalid) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// TestTooLargeMachineIsRefusedWithOneCode: a machine that is larger than the worker is refused with one code, whether it is new, is resized, or is
// one of a gang; one that is too large only now with another.
func TestTooLargeMachineIsRefusedWithOneCode(t *testing.T) {
	now := time.Unix(1e9, 0)
	sized := func(id string, cpu int64) placement.Request {
		return placement.Request{App: "a", Machine: id, Resources: cluster.Resources{CPU: cpu}}
	}
	for want, cpu := range map[fault.Code]int64{fault.CodeNeverFits: 9000, "no_capacity": 3000} {
		s := market.NewSeller(cluster.Record{Worker: "w", State: cluster.Ready, Region: "ams",
			Capacity: cluster.Resources{CPU: 4000, Memory: 4000}})
		for _, id := range []string{"first", "second"} {
			if err := s.Grant(now, sized(id, 1000), "", true); err != nil {
				t.Fatal(err)
			}
		}
		view := cluster.View{Workers: []cluster.Record{s.Record(now)}}
		gang, err := market.NewGangBuyer(market.GangRequest{ID: "g", Min: 2,
			Members: []placement.Request{sized("m", cpu), sized("n", cpu)}, Until: now.Add(-time.Second)}, view,
			placement.Default(), rand.New(rand.NewPCG(1, 1)))
		if err != nil {
			t.Fatal(err)
		}
		out := gang.Step(now, nil)
		for name, err := range map[string]error{
			"new":     s.Grant(now, sized("m", cpu), "", true),
			"resized": s.Resize(now, "first", cluster.Resources{CPU: cpu + 500}),
			"a gang":  out.Err,
		} {
			if fault.CodeOf(err) != want {
				t.Errorf("%s, of %dm: %v", name, cpu, err)
			}
		}
	}
}
