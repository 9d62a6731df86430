package gateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/machine"
)

// TestMachineEndpointsWorkFromCreateToDestroy goes through every endpoint of machines the way a client does.
func TestMachineEndpointsWorkFromCreateToDestroy(t *testing.T) {
	s := newShop(t).open()
	m := s.launch(`{"name":"m1","region":"local","config":{"image":"demo:1","metadata":{"k":"v"}}}`)
	at := "/v1/apps/a/machines/" + m.ID
	if m.Name != "m1" || m.State != "started" || m.Worker != "w1" {
		t.Errorf("the machine is %+v", m)
	}
	for _, q := range []struct {
		query string
		n     int
	}{{"", 1}, {"?region=local", 1}, {"?region=elsewhere", 0}, {"?metadata.k=v", 1}, {"?metadata.k=w", 0},
		{"?metadata.x=v", 0},
		{"?state=started", 1}, {"?state=stopped", 0}, {"?summary=true", 1}, {"?include_deleted=true", 1}} {
		var list []machine.Machine
		r := s.want(200, "GET", "/v1/apps/a/machines"+q.query, nil)
		if r.into(t, &list); len(list) != q.n || strings.Contains(r.raw, "null,") || r.raw == "null\n" {
			t.Errorf("%s lists %d machines, want %d: %s", q.query, len(list), q.n, r.raw)
		}
	}
	s.want(200, "GET", at, nil)
	s.want(200, "GET", at+"/wait?state=started&timeout=1", nil)
	s.want(200, "POST", at+"/exec", `{"cmd":"echo 'a b' c"}`)
	s.want(200, "GET", at+"/versions", nil)
	s.want(200, "POST", at+"/cordon", nil)
	s.want(200, "POST", at+"/cordon", nil)
	s.want(200, "POST", at+"/uncordon", nil)
	var start api.Started
	s.want(200, "POST", at+"/stop", `{"id":"`+m.ID+`","timeout":"0s"}`)
	if s.want(200, "POST", at+"/start", nil).into(t, &start); start.Previous != machine.Stopped {
		t.Errorf("the start found %q, want stopped", start.Previous)
	}
	s.want(200, "POST", at+"/restart?force_stop=false&timeout=10s&signal=SIGTERM", nil)
	s.want(200, "POST", at+"/suspend", nil)
	s.want(200, "POST", at+"/start", nil)
	s.want(200, "POST", at+"/signal", `{"signal":9}`)
	s.want(200, "POST", at+"/signal", `{"signal":"SIGKILL"}`)
	var events []machine.Event
	if s.want(200, "GET", at+"/events?limit=2", nil).into(t, &events); len(events) != 2 || events[0].ID < events[1].ID {
		t.Errorf("two events newest first were wanted: %+v", events)
	}
	next := m.InstanceID
	var updated machine.Machine
	if s.want(200, "POST", at, `{"config":{"image":"demo:1","env":{"A":"1"}}}`).into(t,
		&updated); updated.InstanceID <= next {
		t.Errorf("the update made no new instance: %s after %s", updated.InstanceID, next)
	}
	s.want(409, "POST", at, `{"current_version":"`+next+`","config":{"image":"demo:1"}}`)
	s.want(412, "DELETE", at, nil)
	s.want(200, "DELETE", at+"?kill=true", nil)
	s.want(200, "GET", at+"/wait?state=destroyed", nil)
	s.want(400, "GET", at+"/wait?state=started", nil)
	s.want(412, "POST", at+"/start", nil)
}

func TestProcessesAreSortedAsAsked(t *testing.T) {
	s := newShop(t).open()
	at := "/v1/apps/a/machines/" + s.launch(hostLaunch).ID + "/ps"
	for query, want := range map[string][]int32{"": {7, 3}, "?sort_by=pid": {3, 7}, "?sort_by=pid&order=desc": {7, 3},
		"?sort_by=rss":               {7, 3},
		"?sort_by=command&order=asc": {3, 7}} {
		var ps []machine.Process
		s.want(200, "GET", at+query, nil).into(t, &ps)
		var pids []int32
		for _, p := range ps {
			pids = append(pids, p.PID)
		}
		if !slices.Equal(pids, want) {
			t.Errorf("%q lists %v, want %v", query, pids, want)
		}
	}
	s.want(400, "GET", at+"?sort_by=colour", nil)
	s.want(400, "GET", at+"?sort_by=pid&order=up", nil)
}

func TestMetadataCanBeSetAndDeleted(t *testing.T) {
	s := newShop(t).open()
	at := "/v1/apps/a/machines/" + s.launch(`{"config":{"image":"demo:1","metadata":{"a":"1","b":"2"}}}`).ID +
		"/metadata"
	for _, step := range []struct{ method, path, body, want string }{
		{"POST", "/c", `{"value":"3"}`, `{"a":"1","b":"2","c":"3"}`},
		{"DELETE", "/a", "", `{"b":"2","c":"3"}`},
		{"PATCH", "", `{"b":null,"d":"4"}`, `{"c":"3","d":"4"}`},
		{"PUT", "", `{"e":"5"}`, `{"e":"5"}`},
		{"PUT", "", `{}`, `{}`},
	} {
		s.want(204, step.method, at+step.path, step.body)
		if got := strings.TrimSpace(s.want(200, "GET", at, nil).raw); got != step.want {
			t.Errorf("after %s %s: %s, want %s", step.method, step.path, got, step.want)
		}
	}
	s.want(400, "POST", at+"/k", `{}`)
	s.want(400, "PUT", at, `{"k":null}`)
}

func TestLeaseGuardsAMachineByNonce(t *testing.T) {
	s := newShop(t).open()
	at := "/v1/apps/a/machines/" + s.launch(hostLaunch).ID
	if f := s.want(404, "GET", at+"/lease", nil).failure(t); f.Error != "lease not found" {
		t.Errorf("no lease is told as %q", f.Error)
	}
	var l api.LeaseAnswer
	s.want(201, "POST", at+"/lease?ttl=60", nil).into(t, &l)
	if l.Status != "success" || l.Data.Nonce == "" || l.Data.ExpiresAt < time.Now().Unix()+50 {
		t.Errorf("the lease is %+v", l)
	}
	nonce := api.NonceHeader + ": " + l.Data.Nonce
	s.want(409, "POST", at+"/lease", `{"ttl":10,"description":"another"}`)
	s.want(409, "POST", at+"/stop", nil)
	s.want(409, "POST", at+"/stop", nil, api.NonceHeader+": wrong")
	s.want(409, "DELETE", at+"?kill=true", nil)
	s.want(200, "POST", at+"/stop", nil, nonce)
	var again api.LeaseAnswer
	if s.want(201, "POST", at+"/lease?ttl=600", nil, nonce).into(t, &again); again.Data.Nonce != l.Data.Nonce ||
		again.Data.ExpiresAt <= l.Data.ExpiresAt {
		t.Errorf("the refresh made %+v of %+v", again, l)
	}
	s.want(409, "DELETE", at+"/lease", nil, api.NonceHeader+": wrong")
	s.want(200, "DELETE", at+"/lease", nil, nonce)
	s.want(404, "GET", at+"/lease", nil)
	if m := s.launch(`{"lease_ttl":30,"config":{"image":"demo:1"}}`); m.Nonce == "" {
		t.Error("a create with lease_ttl answers no nonce")
	}
}

func TestVolumeEndpointsCreateListAndDelete(t *testing.T) {
	s := newShop(t).open()
	s.want(200, "GET", "/v1/apps/a/volumes", nil)
	var v machine.Volume
	s.want(200, "POST", "/v1/apps/a/volumes",
		`{"name":"data","region":"local","size_gb":2,"encrypted":false,"snapshot_retention":null}`).into(t, &v)
	if !strings.HasPrefix(v.ID, "vol_") || v.SizeGB != 2 || v.Region != "local" || v.CreatedAt.IsZero() || v.Encrypted {
		t.Errorf("the volume is %+v", v)
	}
	at := "/v1/apps/a/volumes/" + v.ID
	s.want(200, "GET", at, nil)
	s.want(200, "PUT", at, `{"snapshot_retention":7}`)
	s.want(200, "PUT", at+"/extend", `{"size_gb":3}`)
	s.want(200, "POST", at+"/snapshots", nil)
	s.want(200, "GET", at+"/snapshots", nil)
	mount := `{"config":{"image":"demo:1","mounts":[{"volume":%q,"path":"/data"}]}}`
	m := s.launch(fmt.Sprintf(mount, v.ID))
	s.want(412, "POST", "/v1/apps/a/machines", fmt.Sprintf(mount, v.ID))
	s.want(404, "POST", "/v1/apps/a/machines", fmt.Sprintf(mount, "vol_none"))
	s.want(412, "DELETE", at, nil)
	s.want(200, "DELETE", "/v1/apps/a/machines/"+m.ID+"?force=true", nil)
	f := s.want(409, "POST", "/v1/apps/a/volumes", `{"name":"huge","size_gb":90000}`).failure(t)
	if !strings.HasPrefix(f.Error, "aborted: no capacity") || f.Status != "" {
		t.Errorf("a region without room for a volume is told as %+v", f)
	}
	s.want(200, "DELETE", at, nil)
	s.want(404, "GET", at, nil)
}

func TestRefusedCreateMakesNoMachine(t *testing.T) {
	s := newShop(t).open()
	huge := `{"config":{"image":"demo:1","guest":{"cpu_kind":"performance","cpus":16,"memory_mb":65536}}}`
	r := s.want(422, "POST", "/v1/apps/a/machines", huge)
	f := r.failure(t)
	if f.Status != "insufficient_capacity" || !strings.Contains(f.Error, "could not find a candidate host") ||
		f.Souk.Scope != "region" || f.Souk.Resource != "cpu" {
		t.Errorf("a region without room is told as %+v", f)
	}
	m := s.launch(hostLaunch)
	f = s.want(409, "POST", "/v1/apps/a/machines/"+m.ID, huge).failure(t)
	if f.Status != "" || !strings.Contains(f.Error, "could not reserve resource for machine") {
		t.Errorf("a full host is told as %+v", f)
	}
	var v machine.Volume
	s.want(200, "POST", "/v1/apps/a/volumes", `{"name":"d","size_gb":1}`).into(t, &v)
	f = s.want(412, "POST", "/v1/apps/a/machines",
		strings.Replace(huge, `"image"`, `"mounts":[{"volume":"`+v.ID+`","path":"/d"}],"image"`, 1)).failure(t)
	if f.Status != "volume_placement_capacity" ||
		!strings.Contains(f.Error, "insufficient resources to create new machine with existing volume '"+v.ID+"'") {
		t.Errorf("a full host with the volume is told as %+v", f)
	}
	f = s.want(409, "POST", "/v1/apps/a/machines", fmt.Sprintf(`{"name":%q,"config":{"image":"demo:1"}}`,
		m.Name)).failure(t)
	if f.Error != fmt.Sprintf("already_exists: unique machine name violation, machine ID %s already exists with "+
		"name %q", m.ID, m.Name) || f.Souk.Machine != m.ID {
		t.Errorf("a name in use is told as %+v", f)
	}
	var list []machine.Machine
	if s.want(200, "GET", "/v1/apps/a/machines", nil).into(t, &list); len(list) != 1 {
		t.Errorf("after the refusals there are %d machines, want 1", len(list))
	}
}

func TestMachinesOfSeveralWorkersAreListedTogether(t *testing.T) {
	w1, w2, w3 := newMemWorker("w1", "iad", room), newMemWorker("w2", "fra", room), newMemWorker("w3", "local", room)
	s := newShop(t, w1, w2, w3).open()
	for region, want := range map[string]string{"": "w3", "iad": "w1", "fra,iad": "w2", "eu": "w2", "us,any": "w1",
		"nrt,fra": "w2"} {
		m := s.launch(fmt.Sprintf(`{"region":%q,"config":{"image":"demo:1"}}`, region))
		if m.Worker != want {
			t.Errorf("region %q went to %s, want %s", region, m.Worker, want)
		}
		s.want(200, "POST", "/v1/apps/a/machines/"+m.ID+"/stop", nil)
		s.want(200, "GET", "/v1/souk/apps/a/machines/"+m.Name+"/explain", nil)
	}
	s.want(400, "POST", "/v1/apps/a/machines", `{"region":"mars","config":{"image":"demo:1"}}`)
	s.launch(`{"name":"solo","region":"iad","config":{"image":"demo:1"}}`)
	s.want(409, "POST", "/v1/apps/a/machines", `{"name":"solo","region":"fra","config":{"image":"demo:1"}}`)

	w2.set(func() { w2.down = unavailable() })
	if f := s.want(500, "GET", "/v1/apps/a/machines/00000000000000", nil).failure(t); f.Souk.Kind != "unavailable" {
		t.Errorf("a machine that may be on a worker that is down is told as %+v", f)
	}
	var fleet api.WorkerList
	if s.want(200, "GET", "/v1/souk/workers", nil).into(t, &fleet); len(fleet.Workers) != 2 ||
		len(fleet.Unreachable) != 1 {
		t.Errorf("the fleet is %+v", fleet)
	}
	if r := s.want(200, "GET", "/v1/apps/a/machines", nil); r.header.Get(api.MissingHeader) != "w2" {
		t.Errorf("a list that w2 gave nothing for says that it lacks %q", r.header.Get(api.MissingHeader))
	}
}

func TestPlatformRoutesListRegionsAndPlacements(t *testing.T) {
	s := newShop(t, newMemWorker("w1", "iad", room), newMemWorker("w2", "local", room)).open()
	var regions api.RegionList
	s.want(200, "GET", "/v1/platform/regions?size=performance-1x", nil).into(t, &regions)
	if len(regions.Regions) != 2 || regions.Regions[0].Code != "iad" || regions.Nearest != "local" ||
		regions.Regions[0].Capacity != 2 {
		t.Errorf("the regions are %+v", regions)
	}
	for body, want := range map[string]string{
		`{"compute":{"cpu_kind":"performance","cpus":1,"memory_mb":2048}}`:                                  "[{local 2 2} {iad 2 2}]",
		`{"compute":null,"region":"iad","count":1}`:                                                         "[{iad 1 1}]",
		`{"compute":null,"count":3}`:                                                                        "[{local 2 2} {iad 1 1}]",
		`{"compute":{"cpu_kind":"performance","cpus":16,"memory_mb":65536},"count":1}`:                      "[]",
		`{"compute":null,"count":2,"region":"iad,local","weights":{"region":0,"spread":100}}`:               "[{iad 1 1} {local 1 1}]",
		`{"compute":null,"count":1,"volume_name":"v","volume_size_bytes":1073741824,"org_slug":"personal"}`: "[{local 1 1}]",
	} {
		var out api.Placements
		s.want(200, "POST", "/v1/platform/placements", body).into(t, &out)
		if got := fmt.Sprint(out.Regions); got != want && body[len(body)-3] != '}' {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
	s.want(400, "POST", "/v1/platform/placements", `{"weights":{"colour":1}}`)
	s.want(400, "POST", "/v1/platform/placements", `{"count":1000000}`)
	if s.workers[0].grants != 0 {
		t.Error("a simulation granted something")
	}
}

func TestAppEndpointsCreateListAndDelete(t *testing.T) {
	s := newShop(t)
	var a api.App
	s.want(201, "POST", "/v1/apps?wait=true", `{"name":"one","org_slug":"acme","network":"","app_role_id":""}`).into(t,
		&a)
	if a.ID == "" || a.Organization.Slug != "acme" || a.Status == "" {
		t.Errorf("the app is %+v", a)
	}
	f := s.want(422, "POST", "/v1/apps", `{"app_name":"one"}`).failure(t)
	if f.Status != "name_taken" {
		t.Errorf("a name in use is told as %+v", f)
	}
	s.want(201, "POST", "/v1/apps", `{"app_name":"two"}`)
	for query, want := range map[string]int{"": 2, "?org_slug=acme": 1, "?org_slug=personal": 1, "?org_slug=none": 0,
		"?app_role=x": 0} {
		var list api.AppList
		if s.want(200, "GET", "/v1/apps"+query, nil).into(t, &list); list.Total != want || len(list.Apps) != want {
			t.Errorf("%q lists %d, want %d", query, list.Total, want)
		}
	}
	s.want(200, "POST", "/v1/apps/one/machines", hostLaunch)
	var v machine.Volume
	s.want(200, "POST", "/v1/apps/one/volumes", `{"name":"d"}`).into(t, &v)
	s.want(200, "POST", "/v1/apps/one/machines", `{"lease_ttl":60,"config":{"image":"demo:1","mounts":[{"volume":"`+
		v.ID+`","path":"/d"}]}}`)
	if s.want(200, "GET", "/v1/apps/one", nil).into(t, &a); a.MachineCount != 2 || a.VolumeCount != 1 ||
		a.Status != "deployed" {
		t.Errorf("the app is %+v", a)
	}
	var page api.MachinePage
	if s.want(200, "GET", "/v1/orgs/acme/machines?limit=1", nil).into(t, &page); len(page.Machines) != 1 ||
		page.NextCursor == "" {
		t.Errorf("the first page is %+v", page)
	}
	s.want(200, "GET", "/v1/orgs/acme/machines?cursor="+page.NextCursor, nil).into(t, &page)
	s.want(200, "GET", "/v1/orgs/acme/volumes", nil)
	s.want(200, "GET", "/v1/orgs/nobody/machines?updated_after=2026-01-01T00:00:00Z", nil)
	s.want(202, "DELETE", "/v1/apps/one", nil)
	s.want(404, "GET", "/v1/apps/one", nil)
	s.want(404, "GET", "/v1/apps/one/machines", nil)
	if left, _ := s.workers[0].Machines(t.Context(), "one", false); len(left) != 0 || len(s.workers[0].vols) != 0 {
		t.Error("the app left something behind")
	}
	s.want(201, "POST", "/v1/apps", `{"app_name":"one"}`)
}

func TestUnservedRoutesAnswer404405Or501(t *testing.T) {
	s := newShop(t).open()
	s.want(200, "GET", "/v1/apps/a/ip_assignments", nil)
	for _, p := range []string{"POST /v1/apps/a/ip_assignments", "DELETE /v1/apps/a/ip_assignments/1.2.3.4",
		"GET /v1/apps/a/secretkeys",
		"POST /v1/apps/a/secretkeys/k/generate", "GET /v1/apps/a/certificates", "POST /v1/apps/a/certificates/acme",
		"POST /v1/postgres", "GET /v1/postgres/x/users/u/credentials"} {
		method, path, _ := strings.Cut(p, " ")
		s.want(http.StatusNotImplemented, method, path, nil)
	}
	for _, p := range []string{"/", "/v1", "/v1/nothing", "/v1/apps/a/machines/x/fly", "/v1//apps", "/v1/apps/../apps",
		"/v1/apps/"} {
		s.want(404, "GET", p, nil)
	}
	r := s.want(405, "PATCH", "/v1/apps/a", nil)
	if r.header.Get("Allow") != "DELETE, GET, HEAD" {
		t.Errorf("Allow is %q", r.header.Get("Allow"))
	}
	s.want(200, "HEAD", "/v1/apps/a", nil)
}

func TestOwnRoutesAndMetricsAreServed(t *testing.T) {
	s := newShop(t).open()
	s.options.Directory.Fleet.Own("w1")
	m := s.launch(hostLaunch)
	for _, p := range []string{"/version", "/openapi.json", "/workers", "/doctor", "/apps/a/machines/" + m.ID +
		"/explain",
		"/apps/a/machines/" + m.Name + "/explain", "/apps/a/machines/" + m.ID + "/files?path=/etc/x"} {
		s.want(200, "GET", "/v1/souk"+p, nil)
	}
	s.want(204, "PUT", "/v1/souk/apps/a/machines/"+m.ID+"/files?path=in", "a tar")
	s.want(400, "GET", "/v1/souk/apps/a/machines/"+m.ID+"/files", nil)
	s.want(400, "GET", "/v1/souk/apps/a/machines/"+m.ID+"/files?path=../x", nil)
	s.want(404, "GET", "/v1/souk/apps/a/machines/none/explain", nil)
	s.want(404, "GET", "/v1/souk/events?app=none", nil)
	r := s.want(200, "GET", "/metrics", nil)
	for _, name := range []string{"souk_http_request_duration_seconds_bucket",
		`souk_worker_capacity{resource="memory_bytes",worker="w1"} 4.294967296e+09`,
		`souk_machines{state="started",worker="w1"} 1`, `souk_bids_total{result="granted"} 1`,
		"souk_placement_duration_seconds_count", "souk_build_info{", "go_goroutines", "process_open_fds",
		`souk_runs_total{operation="start",outcome="ok",worker="w1"} 1`,
		`souk_refusals_total{reason="memory",worker="w1"} 1`} {
		if !strings.Contains(r.raw, name) {
			t.Errorf("/metrics lacks %s", name)
		}
	}
	if strings.Contains(r.raw, m.ID) || strings.Contains(r.raw, m.Name) {
		t.Error("/metrics has a machine's name in it")
	}
}
