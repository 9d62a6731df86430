package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/machine"
)

// mounting is a release of one group that mounts what mount says.
func mounting(mount string) string {
	return fmt.Sprintf(`{"groups":[{"name":"db","config":{"image":"demo:1","guest":{"cpu_kind":"shared","cpus":1,`+
		`"memory_mb":2048},"mounts":[{%s}]}}]}`, mount)
}

// TestReleaseVolumesAreFoundOrMadeOnce: a name means the app's volume of that name; one that is not there and has a size is made,
// where the group's machine has room, once.
func TestReleaseVolumesAreFoundOrMadeOnce(t *testing.T) {
	full, free := newMemWorker("w1", "local", room), newMemWorker("w2", "local", room)
	s := newShop(t, full, free).open()
	s.want(200, "POST", "/v1/apps/a/machines", `{"config":{"image":"demo:1","guest":{"cpu_kind":"shared","cpus":1,`+
		`"memory_mb":3072}},"scheduling":{"require":[{"attribute":"worker","op":"==","values":["w1"]}]}}`)
	sized := mounting(`"volume":"data","path":"/d","size_gb":2`)
	var p api.ReleasePlan
	s.want(200, "POST", "/v1/souk/apps/a/plan-release", sized).into(t, &p)
	if p.Fits != api.FitsNow || len(p.Volumes) != 1 || p.Volumes[0].Name != "data" || p.Volumes[0].SizeGB != 2 ||
		p.Groups[0].Replicas[0].To != "w2" {
		t.Fatalf("%+v", p)
	}
	if p := s.want(200, "POST", "/v1/souk/apps/a/hold-release", sized); strings.Contains(p.raw, `"held"`) {
		t.Errorf("room is held that the volume takes first: %s", p.raw)
	}
	volumes := func() (list []machine.Volume) {
		s.want(200, "GET", "/v1/apps/a/volumes", nil).into(t, &list)
		return list
	}
	if left := volumes(); len(left) > 0 {
		t.Fatalf("a plan made %+v", left)
	}
	s.want(404, "POST", "/v1/souk/apps/a/releases", mounting(`"volume":"data","path":"/d"`))
	s.want(400, "POST", "/v1/souk/apps/a/releases", mounting(`"volume":"Da ta","path":"/d","size_gb":2`))
	s.want(409, "POST", "/v1/souk/apps/a/releases", `{"parent":"old",`+sized[1:])
	if left := volumes(); len(left) > 0 {
		t.Fatalf("releases that were refused made %+v", left)
	}
	var made api.ReleaseMade
	s.want(201, "POST", "/v1/souk/apps/a/releases", sized).into(t, &made)
	there := volumes()
	if len(there) != 1 || len(made.Volumes) != 1 || made.Volumes[0].ID != there[0].ID || there[0].Worker != "w2" ||
		there[0].SizeGB != 2 {
		t.Fatalf("%+v, %+v", made, there)
	}
	mounts := func(release string) machine.Mount {
		var r api.Release
		s.want(200, "GET", "/v1/souk/apps/a/releases/"+release, nil).into(t, &r)
		return r.Groups[0].Config.Mounts[0]
	}
	want := machine.Mount{Volume: there[0].ID, Name: "data", Path: "/d"}
	for _, again := range []string{sized, mounting(`"volume":"data","path":"/d"`)} {
		var next api.ReleaseMade
		s.want(201, "POST", "/v1/souk/apps/a/releases", again).into(t, &next)
		if len(next.Volumes) > 0 || mounts(next.Release) != want || mounts(made.Release) != want ||
			len(volumes()) != 1 {
			t.Errorf("%s: %+v", again, next)
		}
	}
	larger := s.want(412, "POST", "/v1/souk/apps/a/plan-release", mounting(`"volume":"data","path":"/d","size_gb":3`))
	if !strings.Contains(larger.raw, "souk volumes extend data 3 --app a") {
		t.Error(larger.raw)
	}
	s.want(200, "POST", "/v1/apps/a/volumes", `{"name":"data","size_gb":1}`)
	var next api.ReleaseMade // of two of the name the group's own
	s.want(201, "POST", "/v1/souk/apps/a/releases", sized).into(t, &next)
	if mounts(next.Release) != want {
		t.Errorf("another volume of the name was taken: %+v", next)
	}
	other := strings.Replace(sized, `"db"`, `"cache"`, 1)
	s.want(409, "POST", "/v1/souk/apps/a/plan-release", other)
	s.want(409, "POST", "/v1/souk/apps/a/releases", mounting(`"volume":"huge","path":"/d","size_gb":90000`))
}
