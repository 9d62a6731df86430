package gateway

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/image"
)

// tags is a registry of which images mean what.
type tags struct {
	mu    sync.Mutex
	means map[string]string
	asked int
}

func (x *tags) Resolve(_ context.Context, name string) (image.Resolved, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asked++
	digest, there := x.means[name]
	if !there {
		return image.Resolved{}, fault.New(fault.NotFound, "image_unknown", "nobody has it")
	}
	return image.Resolved{Digest: "sha256:" + strings.Repeat(digest, 64), Here: digest == "e"}, nil
}

func (x *tags) Known(name string) (image.Resolved, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	digest := x.means[name]
	return image.Resolved{Digest: "sha256:" + strings.Repeat("e", 64), Here: true}, digest == "e"
}

// TestReleaseImagesArePinnedToDigests: a release stores the digest of each tag; a plan shows a moved tag, a rollback
// returns to the former digest, and an unknown tag is refused.
func TestReleaseImagesArePinnedToDigests(t *testing.T) {
	s := newShop(t).open()
	x := &tags{means: map[string]string{"demo:1": "a", "demo:2": "b"}}
	s.with(func(o *Options) { o.Images = x })
	const release = `{"groups":[{"name":"web","config":{"image":"demo:1"}},{"name":"api","config":{"image":"demo:1"}},` +
		`{"name":"job","config":{"image":"demo:2"}},{"name":"own","config":{"image":"souk/host","init":{"exec":["/b"]}}}]}`
	var made api.ReleaseMade
	s.want(201, "POST", "/v1/souk/apps/a/releases", release).into(t, &made)
	images := func() (out []string) {
		service, _ := s.catalog.Services.Service("a")
		for _, g := range service.Release.Groups {
			out = append(out, machine.ShortImage(g.Config.Image))
		}
		return out
	}
	first := "demo:1@aaaaaaaaaaaa demo:1@aaaaaaaaaaaa demo:2@bbbbbbbbbbbb souk/host"
	if got := strings.Join(images(), " "); got != first || x.asked != 2 || len(made.ImagesHere) > 0 {
		t.Fatal(got, x.asked, made)
	}
	service, _ := s.catalog.Services.Service("a")
	m := s.launch(`{"config":{"image":"demo:1"}}`)
	known, _ := s.gateway.directory.Fleet.Snapshot().Machine(m.ID)
	next := *known
	next.Replica = &machine.Replica{Group: "web", Spec: service.Release.Spec(service.Release.Group("web"), 0)}
	next.Ready = true
	s.gateway.directory.Fleet.Update(func(e *fleet.Edit) { e.Machine(next) })
	x.means["demo:1"] = "c"
	var p api.ReleasePlan
	s.want(200, "POST", "/v1/souk/apps/a/plan-release", release).into(t, &p)
	if r := p.Groups[0].Replicas[0]; r.Why == "" || r.Does != "update" {
		t.Fatalf("%+v", p.Groups[0])
	}
	s.want(201, "POST", "/v1/souk/apps/a/releases", release)
	if got := images()[0]; got != "demo:1@cccccccccccc" {
		t.Fatal(got)
	}
	s.want(200, "POST", "/v1/souk/apps/a/rollback", `{"release":"`+made.Release+`"}`)
	if got := strings.Join(images(), " "); got != first {
		t.Fatal(got)
	}
	head := func() uint64 { service, _ := s.catalog.Services.Service("a"); return service.Head.Number }
	before := head()
	for _, path := range []string{"releases", "plan-release"} {
		gone := strings.ReplaceAll(release, "demo:2", "ghcr.io/me/gone:1")
		e := s.want(422, "POST", "/v1/souk/apps/a/"+path, gone).failure(t)
		if e.Souk.Code != "image_unknown" || !strings.Contains(e.Error, "group job has the image ghcr.io/me/gone:1") {
			t.Error(e)
		}
	}
	if head() != before {
		t.Error("a refused release is written")
	}
	x.means["demo:2"] = "e"
	s.want(201, "POST", "/v1/souk/apps/a/releases", release).into(t, &made)
	if len(made.ImagesHere) != 1 || made.ImagesHere[0] != "demo:2" {
		t.Errorf("%+v", made)
	}
}

// TestViewerPlanContactsNoRegistry: a plan of a token that may only read takes the images that are here, asks nobody for
// others, and cannot have room held.
func TestViewerPlanContactsNoRegistry(t *testing.T) {
	s := newShop(t).open()
	x := &tags{means: map[string]string{"demo:1": "e", "demo:2": "b"}}
	s.with(func(o *Options) { o.Images, o.Tokens = x, roleTokens{} })
	ask := func(path, image, role string) reply {
		return s.send("POST", "/v1/souk/apps/a/"+path, `{"groups":[{"name":"web","config":{"image":"`+image+`"}}]}`,
			"Authorization: Bearer "+role)
	}
	if r := ask("plan-release", "demo:1", "viewer"); r.code != 200 || x.asked != 0 {
		t.Error(r.code, r.raw, x.asked)
	}
	if r := ask("plan-release", "demo:2", "viewer"); r.code != 403 || x.asked != 0 ||
		!strings.Contains(r.raw, "name the image with its digest") {
		t.Error(r.code, r.raw, x.asked)
	}
	if r := ask("hold-release", "demo:1", "viewer"); r.code != 403 {
		t.Error(r.code, r.raw)
	}
	if r := ask("plan-release", "demo:2", "operator"); r.code != 200 || x.asked != 1 {
		t.Error(r.code, r.raw, x.asked)
	}
	var p api.ReleasePlan
	r := ask("hold-release", "demo:1", "operator")
	if r.into(t, &p); r.code != 200 || p.Held == nil || len(p.Held.At) != 1 {
		t.Error(r.code, r.raw)
	}
}
