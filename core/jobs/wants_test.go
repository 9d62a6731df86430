package jobs_test

import (
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/jobs"
)

// conditions reads conditions.
func conditions(t *testing.T, texts ...string) (out []cluster.Requirement) {
	t.Helper()
	for _, text := range texts {
		q, err := cluster.ParseRequirement(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, q)
	}
	return out
}

// bids reports workers with their disks to a dispatcher, and returns which of them get bids for a job.
func bids(t *testing.T, spec jobs.Spec, after time.Duration, disks map[cluster.WorkerID]string) (out string,
	j jobs.Job) {
	t.Helper()
	d := jobs.NewDispatcher(auction.DefaultRules(8))
	if err := d.Submit(epoch, jobs.ID(1), spec); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	d.Saved(epoch)
	d.Open(epoch)
	got := map[cluster.WorkerID]bool{}
	for _, at := range []time.Time{epoch, epoch.Add(after)} {
		for _, id := range []cluster.WorkerID{"w1", "w2"} {
			if disks[id] == "" {
				continue
			}
			rec := twoCPUs(id)
			rec.Attributes = cluster.Attributes{"disk": cluster.Text(disks[id])}
			d.Report(at, jobs.Report{Worker: id, Record: rec, Full: true, Free: 4})
			at = at.Add(100 * time.Millisecond)
		}
		for _, o := range d.Take().Orders {
			if o.Bulletin != nil {
				got[o.Worker] = len(o.Bulletin.Bids) > 0
			}
		}
	}
	for _, id := range []cluster.WorkerID{"w1", "w2"} {
		if got[id] {
			out += string(id) + " "
		}
	}
	j, err := d.Status(epoch.Add(time.Hour), jobs.ID(1))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out), j
}

// TestTasksAreBidWhereTheirConditionsAreMet: always with those that are required, and at first with those that are
// preferred, if some worker meets them.
func TestTasksAreBidWhereTheirConditionsAreMet(t *testing.T) {
	mixed := map[cluster.WorkerID]string{"w1": "ssd", "w2": "hdd"}
	slow := map[cluster.WorkerID]string{"w1": "hdd", "w2": "hdd"}
	ssd := conditions(t, "disk == ssd")
	require, prefer := jobs.Wants{Require: ssd}, jobs.Wants{Prefer: ssd}
	for _, c := range []struct {
		what  string
		wants jobs.Wants
		after time.Duration
		disks map[cluster.WorkerID]string
		want  string
	}{
		{"no condition", jobs.Wants{}, time.Second, mixed, "w1 w2"},
		{"required", require, time.Hour, mixed, "w1"},
		{"required of none", require, time.Hour, slow, ""},
		{"preferred", prefer, time.Second, mixed, "w1"},
		{"preferred, and waited for", prefer, 3 * time.Second, mixed, "w1 w2"},
		{"preferred of none", prefer, time.Second, slow, "w1 w2"},
		{"both", jobs.Wants{Require: conditions(t, "disk"), Prefer: conditions(t, "disk == hdd", "disk != x")},
			time.Second, mixed, "w2"},
	} {
		spec := settled(t, jobs.Spec{Last: 40, Wants: c.wants})
		got, j := bids(t, spec, c.after, c.disks)
		if got != c.want {
			t.Errorf("%s: bids at %q, want %q", c.what, got, c.want)
		}
		if c.want == "" && !strings.Contains(j.Why, "disk == ssd") {
			t.Errorf("%s: %s", c.what, j.Why)
		}
	}
}

// TestConditionsOfTasksAreBounded: and checked before anything changes.
func TestConditionsOfTasksAreBounded(t *testing.T) {
	long := conditions(t, "a in "+strings.Repeat(strings.Repeat("x", 100)+",", 11)+"x")
	for what, w := range map[string]jobs.Wants{
		"at most 16":         {Require: make([]cluster.Requirement, 17)},
		"at most 1024 bytes": {Require: long},
		"at most 1024":       {Prefer: long},
		"attribute":          {Require: []cluster.Requirement{{Op: cluster.Exists}}},
	} {
		s := jobs.Spec{App: "app", Command: []string{"x"}, Wants: w}
		if err := s.Settle(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
	}
	s := jobs.Spec{App: "app", Command: []string{"x"}, Wants: jobs.Wants{Require: conditions(t, "a", "b == 3")}}
	if err := s.Settle(); err != nil {
		t.Fatal(err)
	}
	if r := s.Request(); len(r.Scheduling.Require) != 2 {
		t.Errorf("the judge reads %v", r.Scheduling.Require)
	}
}

// TestSlotsOfferWhereRequirementsAreMet: and none for a requirement that this build cannot read.
func TestSlotsOfferWhereRequirementsAreMet(t *testing.T) {
	s := jobs.NewSlots(8, auction.DefaultRules(8))
	for require, want := range map[string]int{"": 1, "disk == ssd": 1, "disk == ssd\nzone": 0, "disk == hdd": 0,
		"disk like s*": 0} {
		b := bidAt(1, 100, 1)
		b.Bids[0].Shape.Require = require
		s.Hear("a", b)
		rec := cluster.Record{Worker: "w", State: cluster.Ready, Capacity: cluster.Resources{CPU: 8000, Memory: 4096},
			Attributes: cluster.Attributes{"disk": cluster.Text("ssd")}}
		offers := s.Offers(epoch, rec)["a"]
		if len(offers) != want || want == 1 && offers[0].Shape.Require != require {
			t.Errorf("%q: %v", require, offers)
		}
		s.Leave("a")
	}
}
