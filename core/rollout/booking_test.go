package rollout

import (
	"fmt"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

func releaseOf(image string, counts map[string]int) *release.Release {
	r := &release.Release{Schema: release.Schema, At: time.Unix(1e9, 0).UTC()}
	for _, name := range []string{"a", "b", "web"} {
		if n, there := counts[name]; there {
			r.Groups = append(r.Groups, release.Group{Name: name, Replicas: n, Config: &machine.Config{Image: image}})
		}
	}
	return r
}

func next(t *testing.T, h *release.Head, c release.Change, r, before *release.Release) *release.Head {
	t.Helper()
	n, err := h.Next(c, r, before, release.Progress{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func termOf(n uint64, member cluster.WorkerID) cluster.Term {
	return cluster.Term{Number: n, Member: member}
}

// TestHeldRoomBelongsToOneDeploy: what is held for a release is in the head that deploys it and in no later one, its machines are
// asked for there first, and only while it is held.
func TestHeldRoomBelongsToOneDeploy(t *testing.T) {
	morning := time.Unix(1e9, 0).UTC()
	r := &release.Release{Schema: release.Schema, At: morning, Groups: []release.Group{{Name: "web", Replicas: 2,
		Config: &machine.Config{Image: "demo:1"}}}}
	booking := &release.Booking{Token: "t", Until: morning.Add(time.Minute), At: map[string]cluster.WorkerID{
		"web/1": "w2"}}
	var none *release.Head
	h, err := none.Next(release.Change{Release: r.ID(), Why: release.WhyDeploy, At: morning, Booking: booking}, r,
		nil, release.Progress{})
	if err != nil {
		t.Fatal(err)
	}
	made := func(now time.Time) (out []string) {
		s, want := NewSteward(cluster.Term{}), &Want{App: "a", Head: h, Release: r}
		s.Begin(cluster.Term{Number: s.Step(now, want, nil).Term, Member: "w1"})
		for _, o := range s.Step(now, want, nil).Orders {
			out = append(out, fmt.Sprint(o.Slot(), " ", o.Booked, " ", o.Token))
		}
		return out
	}
	if got := fmt.Sprint(made(morning)); got != "[web/0   web/1 w2 t/web/1]" {
		t.Error(got)
	}
	if got := fmt.Sprint(made(morning.Add(time.Minute))); got != "[web/0   web/1  ]" {
		t.Error(got)
	}
	next, err := h.Next(release.Change{Why: release.WhyScale, Counts: map[string]int{"web": 3}, At: morning}, r, r,
		release.Progress{})
	if err != nil || next.Booking != nil {
		t.Errorf("%+v, %v", next, err)
	}
	booking.Token = ""
	if _, err := none.Next(release.Change{Release: r.ID(), Why: release.WhyDeploy, At: morning, Booking: booking}, r,
		nil,
		release.Progress{}); err == nil {
		t.Error("room without a token was kept")
	}
}
