package rollout

import (
	"fmt"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// TestWorkerIsSuspectedOnlyByFaultsOfSeveralServices: a worker is suspected where several services fare badly there and well elsewhere, and few at once are.
func TestWorkerIsSuspectedOnlyByFaultsOfSeveralServices(t *testing.T) {
	now := time.Unix(1e9, 0)
	well := func(at cluster.WorkerID) release.Standing {
		return release.Standing{Worker: at, State: machine.Started, Ready: true}
	}
	dies := func(at cluster.WorkerID) release.Standing {
		return release.Standing{Worker: at, State: machine.Stopped, Loops: true, Updated: now.Add(-time.Minute)}
	}
	another := map[cluster.WorkerID]bool{"w9": true}
	long := dies("w1")
	long.Updated = now.Add(-time.Hour)
	for _, tt := range []struct {
		name     string
		each     []release.Standing // of each of some services
		services int
		workers  int
		cordoned map[cluster.WorkerID]bool
		want     string
	}{
		{"three services", []release.Standing{dies("w1"), well("w2")}, 3, 10, nil, "w1"},
		{"two services", []release.Standing{dies("w1"), well("w2")}, 2, 10, nil, ""},
		{"nine workers: a tenth is none", []release.Standing{dies("w1"), well("w2")}, 3, 9, nil, ""},
		{"one is cordoned already", []release.Standing{dies("w1"), well("w2")}, 3, 19, another, ""},
		{"one is, of twenty", []release.Standing{dies("w1"), well("w2")}, 3, 20, another, "w1"},
		{"it is cordoned", []release.Standing{dies("w1"), well("w2")}, 3, 20, map[cluster.WorkerID]bool{"w1": true},
			""},
		{"they do well nowhere", []release.Standing{dies("w1")}, 5, 20, nil, ""},
		{"they die elsewhere, too", []release.Standing{dies("w1"), dies("w2"), well("w3")}, 5, 20, nil, ""},
		{"others of theirs do well there", []release.Standing{dies("w1"), well("w1"), well("w2")}, 5, 20, nil, ""},
		{"that was long ago", []release.Standing{long, well("w2")}, 5, 20, nil, ""},
	} {
		all, got := map[string][]release.Standing{}, ""
		for i := range tt.services {
			all[fmt.Sprint("app", i)] = tt.each
		}
		for _, s := range Suspects(now, all, tt.workers, tt.cordoned) {
			got += string(s.Worker)
			if s.Why == "" {
				t.Error(tt.name, "no reason")
			}
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	at := func(id string) cluster.WorkerID { return cluster.WorkerID(id[:1]) }
	if Blamed([]release.Held{{Machine: "a1"}, {Machine: "a2"}}, at) || !Blamed([]release.Held{{Machine: "a1"},
		{Machine: "b1"}}, at) {
		t.Error("a release is blamed for what dies at two workers")
	}
}
