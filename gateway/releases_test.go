package gateway

import (
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/services/releases"
)

const webRelease = `{"groups":[{"name":"web","replicas":2,"config":{"image":"demo:1"}},` +
	`{"name":"job","config":{"image":"demo:2"}}],"note":"first"}`

// TestReleasesAreMadeListedAndScaled makes releases, lists them, scales, and reads one by the beginning of its id.
func TestReleasesAreMadeListedAndScaled(t *testing.T) {
	s := newShop(t).open()
	for path, code := range map[string]fault.Code{"/v1/souk/apps/a/releases": "no_service",
		"/v1/souk/apps/a/service": "no_service", "/v1/souk/apps/nobody/service": "app_not_found"} {
		if r := s.want(404, "GET", path, nil); r.failure(t).Souk.Code != code {
			t.Error(path, r.raw)
		}
	}
	var made api.ReleaseMade
	s.want(201, "POST", "/v1/souk/apps/a/releases", webRelease).into(t, &made)
	if made.Head.Number != 1 || made.Head.Release != made.Release || made.Head.By != "own" {
		t.Fatalf("%+v", made)
	}
	var r api.Release
	s.want(200, "GET", "/v1/souk/apps/a/releases/"+made.Release[:6], nil).into(t, &r)
	if r.ID != made.Release || r.State != "current" || len(r.Groups) != 2 || *r.Groups[1].Replicas != 1 ||
		r.Groups[0].Config.Guest == nil {
		t.Errorf("%+v", r)
	}
	s.want(400, "GET", "/v1/souk/apps/a/releases/abcde", nil) // too few, and no number
	s.want(404, "GET", "/v1/souk/apps/a/releases/0123456789", nil)
	var h api.Head
	s.want(200, "POST", "/v1/souk/apps/a/scale", `{"counts":{"web":3}}`).into(t, &h)
	if h.Number != 2 || h.Counts["web"] != 3 || h.Parent != made.Head.ID {
		t.Errorf("%+v", h)
	}
	s.want(200, "POST", "/v1/souk/apps/a/scale", `{"counts":{"web":3}}`).into(t, &h)
	if h.Number != 2 {
		t.Errorf("the same counts made number %d", h.Number)
	}
	moved := strings.Replace(webRelease, `"note"`, `"parent":"`+made.Head.ID+`","note"`, 1)
	if e := s.want(409, "POST", "/v1/souk/apps/a/releases", moved).failure(t); e.Souk.Code != "head_moved" {
		t.Error(e)
	}
	var list api.ReleaseList
	s.want(200, "GET", "/v1/souk/apps/a/releases", nil).into(t, &list)
	if len(list.Releases) != 2 || list.Releases[0].Groups[0].Wanted != 3 || list.Releases[1].Groups[0].Wanted != 2 ||
		list.Releases[1].Note != "first" {
		t.Errorf("%+v", list)
	}
	s.want(200, "POST", "/v1/souk/apps/a/restart", nil).into(t, &h)
	if h.Why != "restart" {
		t.Errorf("%+v", h)
	}
}

// TestInvalidReleaseNamesItsGroup: what cannot be honoured is refused before anything changes, and names its group.
func TestInvalidReleaseNamesItsGroup(t *testing.T) {
	s := newShop(t).open()
	for body, want := range map[string]string{
		`{"groups":[]}`: "1 to 64 groups",
		`{"groups":[{"name":"web","config":{"image":""}}]}`:                                  "group web: config.image is missing",
		`{"groups":[{"name":"web"}]}`:                                                        "group web: config is missing",
		`{"groups":[{"name":"web","replicas":2000,"config":{"image":"demo:1"}}]}`:            "0 to 1000",
		`{"groups":[{"name":"W","config":{"image":"demo:1"}}]}`:                              "cannot name a group",
		`{"groups":[{"name":"web","config":{"image":"demo:1","auto_destroy":true}}]}`:        "auto_destroy",
		`{"groups":[{"name":"web","config":{"image":"demo:1"},"scheduling":{"band":"x"}}]}`:  "group web: scheduling",
		`{"groups":[{"name":"web","config":{"image":"demo:1","colour":"red"}}]}`:             "colour",
		`{"groups":[{"name":"web","replicas":2,"single":true,"config":{"image":"demo:1"}}]}`: "single",
		`{"group":[]}`: "group",
	} {
		if e := s.want(400, "POST", "/v1/souk/apps/a/releases", body).failure(t); !strings.Contains(e.Error, want) {
			t.Errorf("%s: %s", body, e.Error)
		}
	}
	s.want(404, "POST", "/v1/souk/apps/nobody/releases", webRelease)
	s.want(404, "POST", "/v1/souk/apps/a/scale", `{"counts":{"web":1}}`)
	s.want(404, "POST", "/v1/souk/apps/a/restart", nil)
	s.want(201, "POST", "/v1/souk/apps/a/releases", webRelease)
	for body, code := range map[string]int{`{"counts":{}}`: 400, `{"counts":{"web":-1}}`: 400,
		`{"counts":{"db":1}}`: 404, `{"counts":{"web":1},"parent":""}`: 409} {
		s.want(code, "POST", "/v1/souk/apps/a/scale", body)
	}
	if all, err := s.catalog.Services.Releases("a"); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestServiceStatusCountsReplicasPerGroup: the status has, per group, the wanted, present and ready replicas, each
// with its machine, and the steward.
func TestServiceStatusCountsReplicasPerGroup(t *testing.T) {
	s := newShop(t).open()
	s.with(func(o *Options) {
		o.Stewards = func() []cluster.WorkerID { return []cluster.WorkerID{"m1", "m2", "m3"} }
	})
	var made api.ReleaseMade
	s.want(201, "POST", "/v1/souk/apps/a/releases", webRelease).into(t, &made)
	tenure := release.Tenure{Term: cluster.Term{Number: 4, Member: "m2"}, Busy: true}
	if err := s.catalog.Services.SetTenure("a", tenure); err != nil {
		t.Fatal(err)
	}
	var out api.ServiceStatus
	s.want(200, "GET", "/v1/souk/apps/a/service", nil).into(t, &out)
	if len(out.Groups) != 2 || out.Groups[0].Wanted != 2 || out.Groups[0].There != 0 || len(out.Groups[0].Slots) != 2 ||
		out.Steward != (api.ServiceSteward{Member: "m2", Term: 4, By: "m2", Busy: true}) {
		t.Fatalf("%+v", out)
	}
	var ids []string
	for range 3 {
		ids = append(ids, s.launch(`{"config":{"image":"demo:1"}}`).ID)
	}
	service, _ := s.catalog.Services.Service("a")
	spec := service.Release.Spec(service.Release.Group("web"), 0)
	replicas := map[string]*machine.Replica{ids[0]: {Group: "web", Index: 0, Spec: spec},
		ids[1]: {Group: "web", Index: 0, Spec: "another"}, ids[2]: {Group: "gone", Index: 0, Spec: "another"}}
	known := s.gateway.directory.Fleet
	for id, r := range replicas {
		m, _ := known.Snapshot().Machine(id)
		next := *m
		next.Replica = r
		next.Ready = next.Ready && id != ids[1]
		known.Update(func(e *fleet.Edit) { e.Machine(next) })
	}
	service.Tenure.Held = []release.Held{{Machine: ids[0], Why: "it dies"}, {Machine: ids[1], Why: "it dies"}}
	got := (&releases.Releases{Directory: s.options.Directory}).Groups(&service)
	if len(got) != 3 || got[0].Name != "web" || got[0].There != 1 || got[0].Ready != 1 || len(got[0].Slots) != 3 ||
		got[1].Name != "job" || got[1].There != 0 || got[2].Name != "gone" || got[2].Wanted != 0 {
		t.Fatalf("%+v", got)
	}
	web := got[0].Slots
	if web[0].Machine != ids[0] || web[0].Held != "" || web[1].Held != "it dies; it is tried again now" ||
		web[0].Extra || !web[1].Extra || !web[1].Old || web[2].Machine != "" ||
		web[2].Index != 1 || !got[2].Slots[0].Extra {
		t.Errorf("%+v", got)
	}
}

// TestStatusNamesTheSilentWorkerAwaited: the status of a replica without a machine names the silent worker that it
// waits for.
func TestStatusNamesTheSilentWorkerAwaited(t *testing.T) {
	s := newShop(t).open()
	s.want(201, "POST", "/v1/souk/apps/a/releases", `{"groups":[
		{"name":"db","single":true,"config":{"image":"demo:1"}},{"name":"web","config":{"image":"demo:1"}}]}`)
	s.gateway.directory.Fleet.Update(func(e *fleet.Edit) {
		e.Member(fleet.Member{ID: "gone", State: cluster.MemberDead})
	})
	var out api.ServiceStatus
	s.want(200, "GET", "/v1/souk/apps/a/service", nil).into(t, &out)
	waits, free := out.Groups[0].Slots[0].Waits, out.Groups[1].Slots[0].Waits
	if free != "" || waits != "no machine is made for db/0 while worker gone is not heard, as it may have one; if it "+
		"never comes back, remove it: souk node rm gone" {
		t.Errorf("%q, %q", waits, free)
	}
}

// TestRolloutVerbsWorkOverHTTP: the verbs of a rollout over HTTP, and what the status tells meanwhile: once the rollout is undone it
// counts machines of the release that is in force.
func TestRolloutVerbsWorkOverHTTP(t *testing.T) {
	s := newShop(t).open()
	for _, verb := range []string{"rollback", "pause", "resume", "promote"} {
		if e := s.want(404, "POST", "/v1/souk/apps/a/"+verb, nil).failure(t); e.Souk.Code != "no_service" {
			t.Error(verb, e)
		}
	}
	var one, two api.ReleaseMade
	s.want(201, "POST", "/v1/souk/apps/a/releases", webRelease).into(t, &one)
	progress := func(p release.Progress) {
		t.Helper()
		service, _ := s.catalog.Services.Service("a")
		p.Rollout, p.Release, p.At = service.Head.Rollout, service.Head.Release, time.Now()
		tenure := release.Tenure{Term: cluster.Term{Number: 4, Member: "m2"}, Notes: release.Notes{Progress: p}}
		if err := s.catalog.Services.SetTenure("a", tenure); err != nil {
			t.Fatal(err)
		}
	}
	progress(release.Progress{State: release.Done})
	canary := strings.Replace(webRelease, `"replicas":2`, `"replicas":4,"update":{"strategy":"canary"}`, 1)
	s.want(201, "POST", "/v1/souk/apps/a/releases", canary).into(t, &two)
	state := func(want release.Rolled) (out api.ServiceStatus) {
		t.Helper()
		s.want(200, "GET", "/v1/souk/apps/a/service", nil).into(t, &out)
		if out.Rollout == nil || out.Rollout.State != want || out.Rollout.Before != one.Release {
			t.Errorf("%+v, want %s", out.Rollout, want)
		}
		return out
	}
	if r := state(release.RolledRunning).Rollout; r.Steps != 1 || r.Step != 0 || r.Number != 2 {
		t.Errorf("%+v", r)
	}
	var h, same api.Head
	s.want(200, "POST", "/v1/souk/apps/a/pause", nil).into(t, &h)
	s.want(200, "POST", "/v1/souk/apps/a/pause", nil).into(t, &same)
	if !h.Paused || h.Why != "pause" || same.ID != h.ID {
		t.Errorf("%+v, then %+v", h, same)
	}
	if r := state(release.RolledPaused).Rollout; !r.Asked || r.By != "own" {
		t.Errorf("%+v", r)
	}
	s.want(409, "POST", "/v1/souk/apps/a/resume", `{"parent":"`+one.Head.ID+`"}`)
	s.want(200, "POST", "/v1/souk/apps/a/resume", nil)
	s.want(400, "POST", "/v1/souk/apps/a/promote", `{"steps":2}`)
	s.want(400, "POST", "/v1/souk/apps/a/promote", `{"step":1}`)
	if s.want(200, "POST", "/v1/souk/apps/a/promote", `{"all":true}`).into(t, &h); h.Promoted != 1 {
		t.Errorf("%+v", h)
	}
	progress(release.Progress{State: release.Done, Undo: true, Why: "web/0 died",
		Failed: []release.Failure{{Group: "web", Why: "it died"}}})
	out := state(release.RolledUndone)
	if out.Groups[0].Wanted != 2 || out.Rollout.Why != "web/0 died" || len(out.Rollout.Failed) != 1 {
		t.Errorf("%+v", out)
	}
	for _, verb := range []string{"rollback", "pause", "promote"} {
		s.want(412, "POST", "/v1/souk/apps/a/"+verb, nil)
	}
	s.want(404, "POST", "/v1/souk/apps/a/rollback", `{"release":"0123456789"}`)
	s.want(200, "POST", "/v1/souk/apps/a/rollback", `{"release":"`+one.Release[:6]+`"}`).into(t, &h)
	if h.Release != one.Release || h.Why != "rollback" {
		t.Errorf("%+v", h)
	}
}

// TestReleaseIsFoundByNumberOrID: what "souk releases" shows as NUMBER names a release, as its id does.
func TestReleaseIsFoundByNumberOrID(t *testing.T) {
	s := newShop(t).open()
	var first, second api.ReleaseMade
	s.want(201, "POST", "/v1/souk/apps/a/releases", webOf("demo:1", 64, 1, "")).into(t, &first)
	s.want(201, "POST", "/v1/souk/apps/a/releases", webOf("demo:2", 64, 1, "")).into(t, &second)
	for ref, id := range map[string]string{"1": first.Release, "2": second.Release, first.Release[:7]: first.Release} {
		var r api.Release
		s.want(200, "GET", "/v1/souk/apps/a/releases/"+ref, nil).into(t, &r)
		if r.ID != id {
			t.Errorf("%s is %s, want %s", ref, r.ID, id)
		}
	}
	s.want(404, "GET", "/v1/souk/apps/a/releases/3", nil)
	s.want(400, "GET", "/v1/souk/apps/a/releases/x", nil)
	s.want(200, "POST", "/v1/souk/apps/a/rollback", `{"release":"1"}`)
	if now, _ := s.catalog.Services.Service("a"); now.Head.Release != first.Release {
		t.Errorf("%s is wanted", now.Head.Release)
	}
}
