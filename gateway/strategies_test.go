package gateway

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/decisionlog"
)

func (w *memWorker) Hold(_ context.Context, c lifecycle.HoldCommand) (time.Time, error) {
	w.mu.Lock()
	defer w.told("")
	if w.down != nil {
		return time.Time{}, w.down
	}
	return w.sell.Hold(time.Now(), "", c.Request, c.Token, c.TTL)
}

func (w *memWorker) Release(_ context.Context, token string) error {
	w.mu.Lock()
	defer w.told("")
	w.sell.Release(time.Now(), token)
	return w.down
}

// usedAt gives what the ledger will have in use then, and checks that it adds up.
func (w *memWorker) usedAt(t time.Time) cluster.Resources {
	w.mu.Lock()
	defer w.told("") // to look ends holds
	w.sell.Check()
	return w.sell.Record(t).Used
}

func rackWorker(id cluster.WorkerID, rack string) *memWorker {
	w := newMemWorker(id, "local", room)
	rec := w.sell.Record(time.Now())
	rec.Attributes["rack"] = cluster.Text(rack)
	w.sell = market.NewSeller(rec)
	return w
}

func launchBy(strategy string, memory int) string {
	return fmt.Sprintf(`{"scheduling":{"strategy":%q},"config":{"image":"demo:1","guest":{"cpus":1,"memory_mb":%d}}}`,
		strategy, memory)
}

// TestEachStrategyPlacesAndIsExplained: each strategy places a machine, says so, is counted, and its decision can be explained.
func TestEachStrategyPlacesAndIsExplained(t *testing.T) {
	for strategy, reason := range map[string]string{
		broker.Direct: "best score", broker.Race: "the first of those asked to hold room: ",
		broker.Shared:   "planned with 0 others by shared: ",
		broker.Batching: "planned with 0 others by batching: ",
	} {
		s := newShop(t, newMemWorker("w1", "local", room), newMemWorker("w2", "local", room),
			newMemWorker("w3", "local", room)).open()
		var m machine.Machine
		s.want(200, "POST", "/v1/apps/a/machines", launchBy(strategy, 512)).into(t, &m)
		if m.Placement == nil || !strings.HasPrefix(m.Placement.Reason, reason) || len(m.Placement.Candidates) != 3 {
			t.Errorf("%s: placed %+v", strategy, m.Placement)
		}
		used := 0
		for _, w := range s.workers {
			// when the holds of losers have ended at the latest
			used += int(w.usedAt(time.Now().Add(2 * time.Second)).Memory)
		}
		if used != 512 {
			t.Errorf("%s: %d MiB are used for one machine of 512", strategy, used)
		}
		if strategy == broker.Direct {
			continue
		}
		if metrics := s.want(200, "GET", "/metrics", nil).raw; !strings.Contains(metrics,
			fmt.Sprintf(`souk_scheduler_placements_total{outcome="placed",scheduler=%q} 1`, strategy)) {
			t.Errorf("%s is not counted:\n%s", strategy, metrics)
		}
	}
	s := newShop(t).open()
	if e := s.want(400, "POST", "/v1/apps/a/machines", launchBy("guess", 512)).failure(t); !strings.Contains(e.Error,
		"use direct, race, shared, batching or fair-share") {
		t.Error(e.Error)
	}
}

// TestStrategiesHonourAffinityAndSpread: what a launch wants of other machines is known to each strategy: a machine that it must
// be on the worker of, an app that it must not be beside, a spread; and what is recorded can be computed again.
func TestStrategiesHonourAffinityAndSpread(t *testing.T) {
	for _, strategy := range []string{broker.Direct, broker.Race, broker.Shared, broker.Batching, broker.FairShare,
		"gang"} {
		s := logged(t, rackWorker("w1", "a"), rackWorker("w2", "b"), rackWorker("w3", "b"))
		first := s.launch(launchBy(broker.Direct, 512))
		for _, want := range []struct{ scheduling, of string }{
			{`"affinity":[{"machine":"` + first.ID + `"}]`, first.Worker},
			{`"affinity":[{"machine":"` + first.ID + `","anti":true,"within":"rack"}]`, ""},
			{`"spread":[{"attribute":"rack","max_skew":1}]`, ""},
		} {
			config := `"config":{"image":"demo:1","guest":{"cpus":1,"memory_mb":256}}`
			var m machine.Machine
			if strategy == "gang" {
				var g api.Gang
				s.want(200, "POST", "/v1/souk/apps/a/gangs", `{"size":1,"launch":{"scheduling":{`+want.scheduling+`},`+
					config+`}}`).into(t, &g)
				m = *g.Machines[0]
			} else {
				s.want(200, "POST", "/v1/apps/a/machines", `{"scheduling":{"strategy":"`+strategy+`",`+want.scheduling+
					`},`+config+`}`).into(t, &m)
			}
			if want.of != "" && string(m.Worker) != want.of || strings.Contains(want.scheduling, "anti") &&
				m.Worker == cluster.WorkerID(first.Worker) {
				t.Errorf("%s: %s went to %s, and %s is on %s", strategy, want.scheduling, m.Worker, first.ID,
					first.Worker)
			}
		}
		s.verifyLog()
	}
}

// TestConcurrentStrategiesNeverOverGrant: all schedulers at once on a pool that is too small place what there is room for, and no
// more.
func TestConcurrentStrategiesNeverOverGrant(t *testing.T) {
	s := logged(t, newMemWorker("w1", "local", room), newMemWorker("w2", "local", room),
		newMemWorker("w3", "local", room))
	var mu sync.Mutex
	var wg sync.WaitGroup
	codes := map[int]int{}
	for i := range 40 { // 24 of 512 MiB fit
		strategy := []string{broker.Direct, broker.Race, broker.Shared, broker.Batching}[i%4]
		wg.Go(func() {
			r := s.do("POST", "/v1/apps/a/machines", launchBy(strategy, 512))
			mu.Lock()
			codes[r.code]++
			mu.Unlock()
			if r.code != 200 && r.failure(t).Souk.Kind != fault.Exhausted {
				t.Errorf("%s: %s", strategy, r.raw)
			}
		})
	}
	wg.Wait()
	for _, w := range s.workers {
		w.usedAt(time.Now())
	}
	s.verifyLog()
	if codes[200] > 24 || codes[200] < 1 { // a race's losers may keep others out for a moment
		t.Errorf("answers: %v", codes)
	}
}

func TestGangDecisionsAreLoggedPerMember(t *testing.T) {
	s := logged(t, rackWorker("w1", "a"), rackWorker("w2", "b"), rackWorker("w3", "b"))
	body := func(size, least int, same string, wait float64) string {
		return fmt.Sprintf(`{"size":%d,"min":%d,"same":%q,"wait":%v,"launch":{"config":{"image":"demo:1","guest":{"cpus":1,"memory_mb":1024}}}}`, size, least, same, wait)
	}
	var g api.Gang
	s.want(200, "POST", "/v1/souk/apps/a/gangs", body(6, 0, "rack", 0)).into(t, &g)
	if len(g.Machines) != 6 || g.Size != 6 {
		t.Fatalf("%+v", g)
	}
	for rank, m := range g.Machines {
		env := m.Config.Env
		if m.Worker == "w1" || env["RANK"] != fmt.Sprint(rank) || env["WORLD_SIZE"] != "6" ||
			env["MASTER_ADDR"] != "127.0.0.1" ||
			env["MASTER_PORT"] != g.Machines[0].Config.Env["MASTER_PORT"] || env["SOUK_GANG"] != g.Gang ||
			env["SOUK_PEERS_FILE"] != broker.HostFile {
			t.Errorf("rank %d on %s has %v", rank, m.Worker, env)
		}
		f := m.Config.Files[len(m.Config.Files)-1]
		if list, err := base64.StdEncoding.DecodeString(*f.RawValue); err != nil ||
			strings.Count(string(list), "127.0.0.1\n") != 6 {
			t.Errorf("the host file is %q, %v", list, err)
		}
	}
	if e := s.want(422, "POST", "/v1/souk/apps/a/gangs",
		body(7, 0, "rack", 0.05)).failure(t); !strings.Contains(e.Error, "no room for 7 of 7 machines at once") {
		t.Error(e.Error)
	}
	var log api.DecisionPage
	s.want(200, "GET", "/v1/souk/decisions?app=a", "").into(t, &log)
	if len(log.Decisions) != 7 {
		t.Fatalf("%d decisions are in the log, want one of each member and one of the gang that found no room",
			len(log.Decisions))
	}
	for i, d := range log.Decisions {
		placed := i > 0 // the newest is first
		if d.Strategy != "gang" || placed != (d.Outcome == decision.Placed) || placed &&
			(!strings.Contains(d.Reason, "one of a gang of 6") || d.Winner == "w1") ||
			!placed && (d.Pending != decision.WaitingForGang || !strings.Contains(d.Reason, "no room for 7 of 7")) {
			t.Errorf("decision %d: %s by %s: %s (%s) at %q", i, d.Outcome, d.Strategy, d.Reason, d.Pending, d.Winner)
		}
		if placed && (len(d.Holds) != 1 || d.Holds[0].Worker != d.Winner ||
			d.Holds[0].Result != string(market.ResultGranted) || d.Holds[0].Expires.IsZero()) {
			t.Errorf("decision %d held %+v, and is at %s", i, d.Holds, d.Winner)
		}
	}
	if _, err := decisionlog.Scan(s.options.Decisions.Dir(),
		func(l *decision.Line, records *decision.RecordCache) error {
			if wrong := decision.Verify(l.Decision, records.Get, placement.Default()); len(wrong) > 0 {
				t.Error(wrong)
			}
			return nil
		}); err != nil {
		t.Error(err)
	}
	s.want(200, "POST", "/v1/souk/apps/a/gangs", body(7, 4, "", 0)).into(t, &g)
	if len(g.Machines) != 6 { // what is left
		t.Errorf("%d of 4 to 7 machines", len(g.Machines))
	}
	for name, bad := range map[string]string{"size": body(0, 0, "", 0), "min": body(2, 3, "", 0),
		"wait": body(2, 0, "", -1), "same": body(2, 0, "a b", 0),
		"launch": `{"size":2}`, "unknown": `{"size":2,"sise":3}`} {
		if r := s.do("POST", "/v1/souk/apps/a/gangs", bad); r.code != 400 {
			t.Errorf("%s: %d %s", name, r.code, r.raw)
		}
	}
}

// TestRefusedGangMemberUndoesTheGang: a worker that refuses a grant after it has held room leaves nothing of the gang anywhere.
func TestRefusedGangMemberUndoesTheGang(t *testing.T) {
	w1, w2 := newMemWorker("w1", "local", room), newMemWorker("w2", "local", room)
	s := newShop(t, w1, w2).open()
	w2.before = func(lifecycle.Grant) error {
		return fault.New(fault.Precondition, "image", "the image cannot be had here")
	}
	r := s.do("POST", "/v1/souk/apps/a/gangs",
		`{"size":2,"launch":{"config":{"image":"demo:1","guest":{"cpus":2,"memory_mb":4096}}}}`)
	// More tries would end alike, and no room is missing: the answer is the worker's.
	if f := r.failure(t); r.code != 412 || f.Error != "the image cannot be had here" || f.Souk.Code != "image" {
		t.Errorf("%d %s", r.code, r.raw)
	}
	for _, w := range s.workers {
		if used := w.usedAt(time.Now()); !used.IsZero() {
			t.Errorf("%s has %v in use", w.id, used)
		}
		for _, m := range w.rows {
			if m.State != machine.Destroyed {
				t.Errorf("machine %s is %s", m.ID, m.State)
			}
		}
	}
}

// TestExternalSchedulerUsesTheMarketAPI: what a scheduler outside of souk may ask.
func TestExternalSchedulerUsesTheMarketAPI(t *testing.T) {
	s := newShop(t, newMemWorker("w1", "local", room), newMemWorker("w2", "local", room)).open()
	bid := func(extra string, memory int) string {
		return fmt.Sprintf(`{"app":"a","launch":{"config":{"image":"demo:1","guest":{"cpus":2,"memory_mb":%d}}%s}`,
			memory, extra)
	}
	if r := s.want(200, "POST", "/v1/souk/workers/w2/quote", bid("}", 512)); !strings.Contains(r.raw, `"fits":true`) {
		t.Error(r.raw)
	}
	var h api.Held
	s.want(200, "POST", "/v1/souk/workers/w2/holds", bid(`},"ttl":5`, 4096)).into(t, &h)
	if e := s.want(409, "POST", "/v1/souk/workers/w2/holds",
		bid(`},"ttl":5`, 512)).failure(t); len(e.Souk.Clauses) != 1 || e.Souk.Clauses[0].Code != "memory" {
		t.Errorf("%+v", e)
	}
	var m machine.Machine
	s.want(200, "POST", "/v1/souk/workers/w2/machines",
		bid(fmt.Sprintf(`,"id":%q},"hold":%q,"reason":"it is blue"`, h.Machine, h.Hold), 4096)).into(t, &m)
	if m.ID != h.Machine || m.Worker != "w2" || m.Placement.Reason != "it is blue" {
		t.Errorf("%+v", m)
	}
	s.want(200, "POST", "/v1/souk/workers/w1/holds", bid(`},"ttl":5,"hold":"mine"`, 4096))
	s.want(200, "DELETE", "/v1/souk/workers/w1/holds/mine", nil)
	s.want(200, "POST", "/v1/souk/workers/w1/machines", bid("}", 4096))
	s.want(404, "POST", "/v1/souk/workers/w/quote", bid("}", 512))
	s.want(404, "POST", "/v1/souk/workers/w1/quote", strings.Replace(bid("}", 512), `"a"`, `"nobody"`, 1))
	s.want(400, "POST", "/v1/souk/workers/w1/holds", bid(`},"ttl":1e9`, 512))
	s.want(400, "POST", "/v1/souk/workers/w1/machines", `{"app":"a"}`)
	if r := s.send("POST", "/v1/souk/workers/w1/quote", bid("}", 512)); r.code != 401 {
		t.Errorf("without a token: %d", r.code)
	}
}
