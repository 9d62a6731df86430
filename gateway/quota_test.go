package gateway

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker/known"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/buyers"
	"github.com/soukhq/souk/machine"
)

// TestNamespaceInUseCannotBeDeleted: an app is in the default one until it is put into another that is there; one that is in use stays.
func TestNamespaceInUseCannotBeDeleted(t *testing.T) {
	s := newShop(t).open()
	s.want(201, "POST", "/v1/souk/namespaces", `{"name":"ml"}`)
	s.want(409, "POST", "/v1/souk/namespaces", `{"name":"ml"}`)
	s.want(409, "POST", "/v1/souk/namespaces", `{"name":"default"}`)
	s.want(400, "POST", "/v1/souk/namespaces", `{"name":"M L"}`)
	if r := s.want(200, "GET", "/v1/souk/apps/a/namespace", nil); r.raw != `{"namespace":"default"}`+"\n" {
		t.Error(r.raw)
	}
	s.want(404, "PUT", "/v1/souk/apps/a/namespace", `{"namespace":"nobody"}`)
	s.want(404, "PUT", "/v1/souk/apps/b/namespace", `{"namespace":"ml"}`)
	s.want(200, "PUT", "/v1/souk/apps/a/namespace", `{"namespace":"ml"}`)
	if e := s.want(412, "DELETE", "/v1/souk/namespaces/ml", nil).failure(t); !strings.Contains(e.Error,
		"app a is in namespace ml") {
		t.Error(e.Error)
	}
	var list api.NamespaceList
	s.want(200, "GET", "/v1/souk/namespaces", nil).into(t, &list)
	if len(list.Namespaces) != 2 || list.Namespaces[1].Name != "ml" || list.Namespaces[1].Apps[0] != "a" ||
		list.Namespaces[1].Balance != nil {
		t.Errorf("%+v", list)
	}
	s.want(200, "PUT", "/v1/souk/apps/a/namespace", `{"namespace":"default"}`)
	s.want(200, "DELETE", "/v1/souk/namespaces/ml", nil)
	s.want(404, "DELETE", "/v1/souk/namespaces/ml", nil)
	s.want(400, "DELETE", "/v1/souk/namespaces/default", nil)
	s.want(404, "PUT", "/v1/souk/namespaces/ml/quota", `{"budget":null}`)
	s.want(400, "PUT", "/v1/souk/namespaces/default/quota", `{"budget":{"credits_per_hour":10,"burst":1,"lend":true}}`)
	s.want(400, "PUT", "/v1/souk/namespaces/default/quota", `{"budget":null,"weight":-1}`)
	s.want(400, "PUT", "/v1/souk/price", `{"per_hour":{"cpu":-1},"bands":{}}`)
	var p quota.Price
	s.want(200, "PUT", "/v1/souk/price", `{"per_hour":{"cpu":3},"bands":{"batch":0.5}}`).into(t, &p)
	if p.PerHour["cpu"] != 3 || s.catalog.Namespaces.Price().Bands[machine.BandBatch] != 0.5 {
		t.Errorf("%+v", p)
	}
}

const paidLaunch = `{"config":{"image":"demo:1","guest":{"cpu_kind":"performance","cpus":1,"memory_mb":2048}},"scheduling":{"band":"service","lent":true}}`

// TestQuotaRefusesBeforeAskingAWorker: what a namespace cannot pay for is refused with what was wanted and had, in credits, before a
// worker is asked; the free band and namespaces without a budget are not. A worker that cannot be heard is not
// forgotten.
func TestQuotaRefusesBeforeAskingAWorker(t *testing.T) {
	w := newMemWorker("w1", "local", room.Scale(4, 1))
	s := newShop(t, w).open()
	var last lifecycle.Grant
	w.before = func(g lifecycle.Grant) error { last = g; return nil }
	s.want(200, "POST", "/v1/apps/a/machines", paidLaunch)
	if last.Launch.Scheduling.Lent || last.Request.Scheduling.Lent || last.Request.Namespace != quota.Default {
		t.Error("whether a machine is lent to is not for the client to say")
	}
	s.want(200, "PUT", "/v1/souk/namespaces/default/quota", `{"budget":{"credits_per_hour":2,"burst":2,"lend":false}}`)
	s.want(200, "POST", "/v1/apps/a/machines", paidLaunch)
	w.set(func() {
		w.sell.SetSpending(map[string]cluster.Spending{"default": {Spent: 9, Owed: 2.3, At: time.Now()}})
	})
	asked := w.grants
	r := s.want(403, "POST", "/v1/apps/a/machines", paidLaunch)
	e := r.failure(t)
	if e.Souk.Code != "quota" || e.Souk.Scope != fault.ScopeQuota || e.Souk.Pending != decision.Quota ||
		w.grants != asked ||
		!strings.Contains(e.Error, "over the allowed quota: wanted 0.138 credits of namespace default, had 0.053") ||
		!strings.Contains(e.Error, "enough in ") || r.header.Get("Retry-After") == "" {
		t.Errorf("%s, retry after %q, asked %d times", r.raw, r.header.Get("Retry-After"), w.grants-asked)
	}
	var plan api.Plan
	s.want(200, "POST", "/v1/souk/apps/a/plan", paidLaunch).into(t, &plan)
	if plan.Verdict != decision.NotNow || plan.Pending != decision.Quota {
		t.Errorf("%+v", plan)
	}
	gang := `{"size":3,"launch":{"config":{"image":"demo:1","guest":{"cpus":1,"memory_mb":2048}}}}`
	if e := s.want(403, "POST", "/v1/souk/apps/a/gangs", gang).failure(t); e.Souk.Code != "quota" {
		t.Errorf("%+v", e)
	}
	var info api.Namespace
	s.want(200, "GET", "/v1/souk/namespaces/default/quota", nil).into(t, &info)
	if info.Spent != 9 || *info.Balance < -0.31 || *info.Balance > -0.29 || info.Workers[0].Worker != "w1" {
		t.Errorf("%+v", info)
	}
	s.want(200, "POST", "/v1/apps/a/machines", strings.Replace(paidLaunch, `"service"`, `"free"`, 1))
	w.set(func() { w.down = unavailable() })
	if a := s.accounts().Of(s.catalog.Namespaces.AllNamespaces()[0]); a.Owed < 2.29 {
		t.Errorf("%+v", a)
	}
	if b := s.accounts().Limits("w2"); b.Budgets["default"].PerHour != 2 || b.Others["default"].Owed < 2.29 ||
		len(s.accounts().Limits("w1").Others) != 0 {
		t.Errorf("%+v", b)
	}
}

// TestQuotaRefusesAStartAtTheWorker: a worker that knows of the quota refuses a start with the code and the words that the Machines API
// has for a tenant over its quota, and the decision is recorded.
func TestQuotaRefusesAStartAtTheWorker(t *testing.T) {
	w := newMemWorker("w1", "local", room)
	s := logged(t, w)
	m := s.launch(guest("web", 512))
	s.want(200, "POST", "/v1/apps/a/machines/"+m.ID+"/stop", nil)
	w.sell.Funding(func(time.Time, string, *placement.Request) *placement.Funds {
		return &placement.Funds{Namespace: "default", Wanted: 2, Had: 1, Wait: time.Minute}
	})
	r := s.want(403, "POST", "/v1/apps/a/machines/"+m.ID+"/start", nil)
	e := r.failure(t)
	if e.Souk.Code != "quota" || e.Souk.Scope != fault.ScopeQuota || e.Souk.Pending != decision.Quota ||
		e.Souk.Decision == "" || r.header.Get("Retry-After") != "60" {
		t.Errorf("%s", r.raw)
	}
}

// TestJobsAndVolumesCarryTheirNamespace: the gateway sets the namespace of jobs and volumes and the eviction budget of
// an app; a worker's quota refusal has the API's code, and no other worker is asked.
func TestJobsAndVolumesCarryTheirNamespace(t *testing.T) {
	w1, w2 := newMemWorker("w1", "local", room), newMemWorker("w2", "local", room)
	s := newShop(t, w1, w2).open()
	s.with(func(o *Options) { o.Jobs = buyers.New(buyers.Options{Own: newDeskJobs()}) })
	s.want(201, "POST", "/v1/souk/namespaces", `{"name":"ml"}`)
	s.want(200, "PUT", "/v1/souk/apps/a/namespace", `{"namespace":"ml"}`)
	s.want(200, "PUT", "/v1/souk/apps/a/eviction-budget", `{"eviction_budget":{"max":3,"window":"1m0s"}}`)
	var j jobs.Job
	s.want(201, "POST", "/v1/souk/jobs", `{"app":"a","command":["true"],"namespace":"mine","band":"free"}`).into(t, &j)
	if sc := j.Spec.Scheduling(); j.Spec.Namespace != "ml" || sc.Band != machine.BandFree || sc.Budget().Max != 3 {
		t.Errorf("%+v", j.Spec)
	}
	j = jobs.Job{}
	s.want(201, "POST", "/v1/souk/jobs", `{"app":"nowhere","command":["true"]}`).into(t, &j)
	if sc := j.Spec.Scheduling(); j.Spec.Namespace != quota.Default || sc.Band != machine.BandBatch {
		t.Errorf("%+v", j.Spec)
	}
	if e := s.want(400, "POST", "/v1/souk/jobs",
		`{"app":"a","command":["true"],"band":"gold"}`).failure(t); !strings.Contains(e.Error, "band") {
		t.Error(e.Error)
	}
	asked := 0
	for _, w := range s.workers {
		w.sell.Funding(func(_ time.Time, _ string, r *placement.Request) *placement.Funds {
			if asked++; r.Namespace != "ml" {
				t.Errorf("the worker hears of %q", r.Namespace)
			}
			return &placement.Funds{Namespace: r.Namespace, Wanted: 2, Had: 1, Wait: time.Minute}
		})
	}
	e := s.want(403, "POST", "/v1/apps/a/volumes", `{"name":"data","region":"local","size_gb":1}`).failure(t)
	if e.Souk.Code != "quota" || e.Souk.Scope != fault.ScopeQuota || asked != 1 {
		t.Errorf("%+v, asked %d times", e, asked)
	}
}

// TestQuotaLendsIdleRoomWithoutEvicting: where a budget lends, a machine beyond it runs on idle room, is marked as
// lent to, and evicts no other.
func TestQuotaLendsIdleRoomWithoutEvicting(t *testing.T) {
	w := newMemWorker("w1", "local", room)
	s := newShop(t, w).open()
	s.want(200, "PUT", "/v1/souk/namespaces/default/quota", `{"budget":{"credits_per_hour":0,"burst":0,"lend":true}}`)
	var last lifecycle.Grant
	w.before = func(g lifecycle.Grant) error { last = g; return nil }
	s.want(200, "POST", "/v1/apps/a/machines", paidLaunch)
	if sc := last.Launch.Scheduling; sc == nil || !sc.Lent || sc.Rank() != machine.LentRank || sc.MayPreempt() ||
		!last.Request.Scheduling.Lent || last.Evict ||
		!strings.HasSuffix(last.Placement.Reason,
			"lent, for namespace default cannot pay for it now: it is the first to be evicted") {
		t.Errorf("%+v, %q", sc, last.Placement.Reason)
	}
	huge := strings.Replace(paidLaunch, `2048`, `32768`, 1)
	if r := s.do("POST", "/v1/apps/a/machines", strings.Replace(huge, `"cpus":1`, `"cpus":16`, 1)); r.code != 422 ||
		!strings.Contains(r.raw,
			"namespace default cannot pay for it now (souk quota show default), so it may only have room that is "+
				"idle") {
		t.Errorf("%d %s", r.code, r.raw)
	}
}

// TestFairShareServesTheLeastShareFirst: of requests that come at once, those of the namespace with the least share go first; the strategy
// places as the others do.
func TestFairShareServesTheLeastShareFirst(t *testing.T) {
	s := newShop(t, newMemWorker("w1", "local", room)).open()
	c := s.catalog
	if err := errors.Join(c.Namespaces.CreateNamespace("ml"), c.Namespaces.CreateNamespace("web"),
		c.Namespaces.SetQuota("web", nil, 2, nil)); err != nil {
		t.Fatal(err)
	}
	if w := s.accounts().Shares(); len(w) != 3 || w["web"].Weight != 2 {
		// broker.TestFairOrderServesTheLeastShareFirst goes by them
		t.Errorf("%v", w)
	}
	s.want(200, "POST", "/v1/apps/a/machines", `{"config":{"image":"demo:1"},"scheduling":{"strategy":"fair-share"}}`)
	s.want(400, "POST", "/v1/apps/a/machines", `{"config":{"image":"demo:1"},"scheduling":{"strategy":"fair"}}`)
}

// accounts tell how the namespaces stand.
func (s *shop) accounts() known.Accounts {
	return known.Accounts{Catalog: s.catalog.Namespaces, Fleet: s.options.Directory.Fleet}
}
