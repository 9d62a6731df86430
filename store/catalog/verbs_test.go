package catalog

import (
	"slices"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
)

// TestRolloutVerbsWriteOneHead: each writes a head that all have, and none where nothing changes; what was undone is listed so.
func TestRolloutVerbsWriteOneHead(t *testing.T) {
	x := withApp(t, "shop")
	if _, _, err := x.Services.Rollback("shop", "", "ann", nil, morning); fault.CodeOf(err) != "no_service" {
		t.Fatal(err)
	}
	progress := func(p release.Progress) {
		t.Helper()
		s, _ := x.Services.Service("shop")
		p.Rollout, p.Release, p.At = s.Head.Rollout, s.Head.Release, morning
		if err := x.Services.SetTenure("shop", release.Tenure{Term: cluster.Term{Number: 1, Member: "m"},
			Notes: release.Notes{Progress: p}}); err != nil {
			t.Fatal(err)
		}
	}
	one := x.deploy(t, "shop", "1")
	progress(release.Progress{State: release.Done})
	if _, err := x.Services.Scale("shop", map[string]int{"web": 5}, "ann", nil, morning); err != nil {
		t.Fatal(err)
	}
	two := x.deploy(t, "shop", "2")
	h, err := x.Services.Pause("shop", "bob", nil, morning)
	if err != nil || !h.Paused || h.By != "bob" || h.Why != release.WhyPause {
		t.Fatalf("%+v, %v", h, err)
	}
	before := len(x.journal.all)
	if same, err := x.Services.Pause("shop", "bob", nil, morning); err != nil || same != h ||
		len(x.journal.all) != before {
		t.Fatalf("a second pause wrote %+v, %v", same, err)
	}
	stale := two.ID()
	if _, err := x.Services.Resume("shop", "bob", &stale, morning); fault.CodeOf(err) != "head_moved" {
		t.Fatal(err)
	}
	if h, err = x.Services.Resume("shop", "bob", nil, morning); err != nil || h.Paused || h.Release != two.Release {
		t.Fatalf("%+v, %v", h, err)
	}
	if _, err := x.Services.Promote("shop", 0, false, "bob", nil, morning); fault.CodeOf(err) != "no_canary" {
		t.Fatal(err)
	}
	progress(release.Progress{State: release.Done, Undo: true, Why: "it dies"})
	s, _ := x.Services.Service("shop")
	if r, _ := s.InForce(); r == nil || r.ID() != one.Release {
		t.Fatalf("in force is %+v", r)
	}
	list, err := x.Services.Releases("shop")
	if err != nil || list[0].State != ReleaseCurrent || list[0].Release != one.Release ||
		list[1].State != ReleaseUndone || list[1].Release != two.Release || list[1].Failed != "it dies" {
		t.Fatalf("%+v, %v", list, err)
	}
	if _, _, err := x.Services.Rollback("shop", "", "bob", nil, morning); fault.CodeOf(err) != "no_earlier_release" {
		t.Fatal(err)
	}
	h, _, err = x.Services.Rollback("shop", one.Release, "bob", nil, morning)
	if err != nil || h.Release != one.Release || h.Why != release.WhyBack || h.Counts["web"] != 5 {
		t.Fatalf("%+v, %v", h, err)
	}
	if list, err := x.Services.Releases("shop"); err != nil || list[0].Head != h.ID() ||
		list[0].State != ReleaseCurrent ||
		list[1].State != ReleaseUndone || list[1].Failed != "it dies" { // which stays
		t.Fatalf("%+v, %v", list, err)
	}
}

// TestWantedImagesCoverCurrentAndUndoReleases: the images of the current release and of the undo target are wanted,
// also without machines.
func TestWantedImagesCoverCurrentAndUndoReleases(t *testing.T) {
	x := withApp(t, "shop")
	for i, image := range []string{"a:1", "a:2", "a:3"} {
		r := wantedRelease(image, 3)
		r.Groups[0].Config.Image = image
		if _, err := x.Services.Deploy("shop", r, "ann", nil, nil, morning); err != nil {
			t.Fatal(err)
		}
		s, _ := x.Services.Service("shop")
		term := cluster.Term{Number: uint64(i + 1), Member: "m"}
		done := release.Progress{Rollout: s.Head.Rollout, Release: s.Head.Release, State: release.Done, At: morning}
		if err := x.Services.SetTenure("shop", release.Tenure{Term: term,
			Notes: release.Notes{Progress: done}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := x.Services.Scale("shop", map[string]int{"web": 0}, "ann", nil, morning); err != nil {
		t.Fatal(err)
	}
	if got := x.Services.WantedImages(); !slices.Equal(got, []string{"a:2", "a:3"}) {
		t.Errorf("%q", got)
	}
}
