package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
)

// webOf is a release of one group web.
func webOf(image string, memory, replicas int, update string) string {
	return fmt.Sprintf(`{"groups":[{"name":"web","replicas":%d,"config":{"image":%q,"guest":{"cpu_kind":"shared",`+
		`"cpus":1,"memory_mb":%d}},"update":{%s}}]}`, replicas, image, memory, update)
}

// TestPlanOfAReleaseTellsChangesAndRoom says what a release would do, where its machines would go, whether there is room, and what would fit.
func TestPlanOfAReleaseTellsChangesAndRoom(t *testing.T) {
	s := newShop(t).open() // one worker of 4096 MB
	s.want(201, "POST", "/v1/souk/apps/a/releases", webOf("demo:1", 1024, 2, ""))
	var first api.ReleasePlan
	s.want(200, "POST", "/v1/souk/apps/a/plan-release", webOf("demo:1", 1024, 2, "")).into(t, &first)
	if first.Fits != api.FitsNow || !first.Changes || len(first.Groups) != 1 || first.Groups[0].First != 2 ||
		first.Groups[0].Replicas[1].To != "w1" {
		t.Fatalf("%+v", first)
	}
	service, _ := s.catalog.Services.Service("a")
	for i := range 2 {
		m := s.launch(`{"config":{"image":"demo:1","guest":{"cpu_kind":"shared","cpus":1,"memory_mb":1024}}}`)
		known, _ := s.gateway.directory.Fleet.Snapshot().Machine(m.ID)
		next := *known
		spec := service.Release.Spec(service.Release.Group("web"), 0)
		next.Replica = &machine.Replica{Group: "web", Index: i, Spec: spec}
		next.Ready = true
		s.gateway.directory.Fleet.Update(func(e *fleet.Edit) { e.Machine(next) })
	}
	for _, tt := range []struct {
		name, body, want, why string
	}{
		{"nothing", webOf("demo:1", 1024, 2, ""), "now false keep keep 0/0 help[]", ""},
		{"an image", webOf("demo:2", 1024, 2, ""), "now true update update 1/1 help[]", ""},
		{"more", webOf("demo:1", 1024, 4, ""), "now true keep keep create create 2/2 help[]", ""},
		{"fewer", webOf("demo:1", 1024, 1, ""), "now true keep destroy 0/0 help[]", ""},
		{"too many", webOf("demo:1", 1024, 6, ""), "later true keep keep create create create create 2/4 " +
			"help[web: replicas = 4]", "2 of the 4 machines that group web makes first have room: "},
		{"beside", webOf("demo:2", 3000, 2, ""), `later true update update 0/1 help[web: update.order = "stop-first"]`,
			"memory"},
		{"surge", webOf("demo:2", 1800, 2, `"max_surge":"2"`),
			`later true update update 1/2 help[web: update.max_surge = "1"]`, "memory"},
		{"blue and green", webOf("demo:2", 1800, 2, `"strategy":"bluegreen"`),
			`later true update update 1/2 help[web: update.strategy = "rolling", update.order = "stop-first"]`, "memory"},
		{"stop first", webOf("demo:2", 3000, 2, `"order":"stop-first"`), "now true update update 1/1 help[]", ""},
		{"no help", webOf("demo:2", 4000, 2, ""), "later true update update 0/1 help[]", "memory"},
		{"never", webOf("demo:2", 5000, 2, ""), "never true update update 0/1 help[]", "larger than any worker"},
	} {
		var p api.ReleasePlan
		s.want(200, "POST", "/v1/souk/apps/a/plan-release", tt.body).into(t, &p)
		g := p.Groups[0]
		words := []string{fmt.Sprint(p.Fits, " ", p.Changes)}
		for _, r := range g.Replicas {
			words = append(words, string(r.Does))
		}
		var sets []string
		for _, h := range p.Help {
			sets = append(sets, h.Group+": "+h.Set)
		}
		got := fmt.Sprintf("%s %d/%d help%v", strings.Join(words, " "), g.Placed, g.First, sets)
		if got != tt.want || !strings.Contains(p.Why, tt.why) || (p.Why == "") != (p.Fits == api.FitsNow) {
			t.Errorf("%s:\n got %s: %s\nwant %s: %s", tt.name, got, p.Why, tt.want, tt.why)
		}
		if p.Fits != api.FitsNow && len(g.Failing) == 0 {
			t.Errorf("%s: no clause is told", tt.name)
		}
	}
	if h, _ := s.catalog.Services.Service("a"); h.Head.Number != 1 {
		t.Errorf("plans wrote head %d", h.Head.Number)
	}
	s.want(200, "POST", "/v1/souk/apps/new/plan-release", webOf("demo:1", 64, 1, ""))
	if _, err := s.catalog.Apps.App("new"); err == nil {
		t.Error("a plan made an app")
	}
	s.want(400, "POST", "/v1/souk/apps/a/plan-release", `{"groups":[]}`)
	s.want(409, "POST", "/v1/souk/apps/a/plan-release", `{"parent":"old",`+webOf("demo:1", 64, 1, "")[1:])
}

// TestPlanCountsQuotaEvictionsAndVolumes: what a namespace cannot pay for has no room, machines of lower rank are counted
// that would be evicted, and a release with a volume that is not there never fits.
func TestPlanCountsQuotaEvictionsAndVolumes(t *testing.T) {
	w := newMemWorker("w1", "local", room) // 4096 MB
	s := newShop(t, w).open()
	plan := func(body string) (p api.ReleasePlan) {
		t.Helper()
		s.want(200, "POST", "/v1/souk/apps/a/plan-release", body).into(t, &p)
		return p
	}
	p := plan(strings.Replace(webOf("demo:1", 512, 1, ""), `"guest"`,
		`"mounts":[{"volume":"vol_none","path":"/d"}],"guest"`, 1))
	if p.Fits != api.FitsNever || !strings.Contains(p.Why, "this app has no volume vol_none; create it first") {
		t.Errorf("%+v", p)
	}
	s.want(200, "POST", "/v1/apps/a/machines", `{"config":{"image":"demo:1","guest":{"cpu_kind":"shared","cpus":1,`+
		`"memory_mb":3584}},"scheduling":{"band":"batch"}}`)
	ranked := func(band string) string {
		return strings.Replace(webOf("demo:1", 1024, 1, ""), `"config"`, `"scheduling":{"band":"`+band+`"},"config"`, 1)
	}
	if p := plan(ranked("batch")); p.Fits != api.FitsLater {
		t.Errorf("%+v", p)
	}
	if p := plan(ranked("service")); p.Fits != api.FitsNow || p.Groups[0].Evicts != 1 || p.Credits != 0 {
		t.Errorf("%+v", p)
	}
	unranked := plan(webOf("demo:1", 1024, 1, ""))
	if unranked.Fits != api.FitsLater || len(unranked.Help) != 1 || unranked.Help[0].Set != `scheduling.band = "service"` {
		t.Errorf("the band that helps is not told: %+v", unranked)
	}
	s.want(200, "PUT", "/v1/souk/namespaces/default/quota", `{"budget":{"credits_per_hour":2,"burst":2,"lend":false}}`)
	if p := plan(ranked("service")); p.Fits != api.FitsNow || p.Credits <= 0 {
		t.Errorf("%+v", p)
	}
	w.set(func() {
		w.sell.SetSpending(map[string]cluster.Spending{"default": {Spent: 9, Owed: 3, At: time.Now()}})
	})
	if p := plan(ranked("service")); p.Fits != api.FitsLater || !strings.Contains(p.Why, "quota") {
		t.Errorf("%+v", p)
	}
}

// TestPlanWithEvictionsCanBeHeld: what a plan has room for, by evicting or once others of the release are gone, is not refused when
// the room is to be held: only room that is free beside all of that is.
func TestPlanWithEvictionsCanBeHeld(t *testing.T) {
	w := newMemWorker("w1", "local", room) // 4096 MB
	s := newShop(t, w).open()
	for range 4 {
		m := s.launch(`{"config":{"image":"demo:1","guest":{"cpu_kind":"shared","cpus":1,"memory_mb":1024}},` +
			`"scheduling":{"band":"free"}}`)
		w.set(func() {
			w.sell.Describe(m.ID, market.Tenant{Rank: machine.Scheduling{Band: machine.BandFree}.Rank(),
				Budget: machine.EvictionBudget{Max: 3}})
		})
	}
	hold := func(body string) (p api.ReleasePlan) {
		t.Helper()
		s.want(200, "POST", "/v1/souk/apps/a/hold-release", body).into(t, &p)
		return p
	}
	ranked := func(memory, replicas int) string {
		return strings.Replace(webOf("demo:1", memory, replicas, ""), `"config"`,
			`"scheduling":{"band":"service"},"config"`, 1)
	}
	for _, tt := range []struct{ memory, replicas, evicts int }{{512, 2, 1}, {1024, 2, 2}, {1024, 3, 3}, {1536, 2, 3}} {
		p := hold(ranked(tt.memory, tt.replicas))
		if p.Fits != api.FitsNow || p.Groups[0].Evicts != tt.evicts || p.Held != nil {
			t.Errorf("%+v: %s, evicts %d, held %v: %s", tt, p.Fits, p.Groups[0].Evicts, p.Held, p.Why)
		}
	}
	// no budget lets the worker evict the fourth, whatever its summary of lower ranks says
	if p := hold(ranked(4096, 1)); p.Fits == api.FitsNow {
		t.Errorf("%+v", p)
	}
}

// TestHoldReplansAfterAStaleRefusal: a worker that has filled up unknown to the fleet does not fail a release that
// another worker has room for.
func TestHoldReplansAfterAStaleRefusal(t *testing.T) {
	small := room
	small.Memory = 1024
	first, second := newMemWorker("w1", "local", small), newMemWorker("w2", "local", small)
	s := newShop(t, first, second).open()
	var p api.ReleasePlan
	s.want(200, "POST", "/v1/souk/apps/a/plan-release", webOf("demo:1", 1024, 1, "")).into(t, &p)
	full := first
	if p.Groups[0].Replicas[0].To == "w2" {
		full = second
	}
	full.mu.Lock() // and it tells nobody
	err := full.sell.Grant(time.Now(), placement.Request{App: "b", Machine: "m",
		Resources: cluster.Resources{Memory: 1024}}, "", true)
	full.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	s.want(200, "POST", "/v1/souk/apps/a/hold-release", webOf("demo:1", 1024, 1, "")).into(t, &p)
	if p.Fits != api.FitsNow || p.Held == nil || p.Held.At["web/0"] == full.id {
		t.Errorf("%+v", p)
	}
	var none api.ReleasePlan
	s.want(200, "POST", "/v1/souk/apps/a/hold-release", webOf("demo:1", 1024, 2, "")).into(t, &none)
	if none.Fits != api.FitsLater || none.Held != nil {
		t.Errorf("%+v", none)
	}
}

// TestPlanCountsCommandsAndJobs: a release's command must have room now, as it runs before all else; a job must be able to
// have some when it is due. Neither takes room from the machines that are kept up.
func TestPlanCountsCommandsAndJobs(t *testing.T) {
	s := newShop(t).open() // one worker of 4096 MB
	s.launch(`{"config":{"image":"demo:1","guest":{"cpu_kind":"shared","cpus":1,"memory_mb":1024}}}`)
	command := func(memory, replicas int) string {
		return strings.Replace(webOf("demo:1", memory, replicas, ""), `{`, `{"release_command":["migrate"],`, 1)
	}
	job := func(memory int) string {
		return strings.Replace(webOf("demo:1", memory, 1, ""), `"update":{}`, `"cron":{"schedule":"0 3 * * *"}`, 1)
	}
	for _, tt := range []struct {
		name, body string
		fits       api.Fit
		why        string
	}{
		{"a command", command(1024, 0), api.FitsNow, ""},
		{"a command that has room before its machines are there", command(1536, 2), api.FitsNow, ""},
		{"a command that has none", command(3500, 0), api.FitsLater, "the release command has no room: "},
		{"one that never has", command(5000, 0), api.FitsNever, "the release command has no room: "},
		{"a job", job(1024), api.FitsNow, ""},
		{"a job that may have room when it is due", job(3500), api.FitsNow, ""},
		{"one that never has", job(5000), api.FitsNever, "a run of web has no room: "},
	} {
		var p api.ReleasePlan
		s.want(200, "POST", "/v1/souk/apps/a/plan-release", tt.body).into(t, &p)
		if p.Fits != tt.fits || !strings.HasPrefix(p.Why, tt.why) || (p.Why == "") != (tt.why == "") {
			t.Errorf("%s: %s, %q", tt.name, p.Fits, p.Why)
		}
	}
}
