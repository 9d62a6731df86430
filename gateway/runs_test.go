package gateway

import (
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/machine"
)

const jobRelease = `{"groups":[{"name":"web","config":{"image":"demo:1"}},` +
	`{"name":"report","config":{"image":"demo:2"},"cron":{"schedule":"30 2 * * *","zone":"Europe/Berlin"}}]}`

// TestScheduledJobsRunOnDemandOneAtATime: jobs are listed apart from services, and run on request, one at a time.
func TestScheduledJobsRunOnDemandOneAtATime(t *testing.T) {
	s := newShop(t).open()
	s.want(404, "POST", "/v1/souk/apps/a/trigger", `{"group":"report"}`)
	s.want(201, "POST", "/v1/souk/apps/a/releases", jobRelease)
	var r api.Triggered
	s.want(201, "POST", "/v1/souk/apps/a/trigger", `{"group":"report"}`).into(t, &r)
	if !strings.HasPrefix(r.Name, "report-"+r.Machine[:8]) || r.Machine == "" || r.Worker == "" {
		t.Fatalf("%+v", r)
	}
	s.gateway.directory.Fleet.Update(func(e *fleet.Edit) { // as its worker tells of it; that of these tests does not
		e.Machine(fleet.Machine{ID: r.Machine, App: "a", Name: r.Name, Worker: r.Worker, State: machine.Started,
			Replica: &machine.Replica{Group: "report", Spec: "x", Epoch: release.Minute(time.Now()),
				Run: machine.RunTriggered}})
	})
	if e := s.want(409, "POST", "/v1/souk/apps/a/trigger", `{"group":"report"}`).failure(t); e.Souk.Code != "job_runs" {
		t.Error(e)
	}
	for _, group := range []string{"web", ""} {
		e := s.want(404, "POST", "/v1/souk/apps/a/trigger", `{"group":"`+group+`"}`).failure(t)
		if e.Souk.Code != "job_not_found" {
			t.Error(e)
		}
	}
	var got api.ServiceStatus
	s.want(200, "GET", "/v1/souk/apps/a/service", nil).into(t, &got)
	if len(got.Groups) != 1 || len(got.Jobs) != 1 {
		t.Fatalf("%+v", got)
	}
	j := got.Jobs[0]
	if j.Group != "report" || j.Zone != "Europe/Berlin" || j.Overlap != "forbid" || j.Off || len(j.Runs) != 1 ||
		j.Runs[0].Machine != r.Machine || j.Runs[0].Why != machine.RunTriggered {
		t.Errorf("%+v", j)
	}
	s.want(200, "POST", "/v1/souk/apps/a/scale", `{"counts":{"report":0}}`)
	s.want(400, "POST", "/v1/souk/apps/a/scale", `{"counts":{"report":2}}`)
	s.want(200, "GET", "/v1/souk/apps/a/service", nil).into(t, &got)
	if !got.Jobs[0].Off || got.Jobs[0].Next != nil {
		t.Errorf("%+v", got.Jobs)
	}
}

// TestWhyExplainsAJob: whether it runs, may still run, or would have room to run, and that it is off.
func TestWhyExplainsAJob(t *testing.T) {
	s := newShop(t).open() // one worker of 4096 MB
	s.want(201, "POST", "/v1/souk/apps/a/releases", jobRelease)
	why := func() api.JobWhy {
		t.Helper()
		var w api.ServiceWhy
		s.want(200, "GET", "/v1/souk/apps/a/why", nil).into(t, &w)
		if len(w.Jobs) != 1 || w.Jobs[0].Group != "report" {
			t.Fatalf("%+v", w.Jobs)
		}
		return w.Jobs[0]
	}
	is := func(well bool, text, help string) {
		t.Helper()
		if w := why(); w.AsWanted != well || !strings.Contains(w.Why, text) || (help == "") != (len(w.Help) == 0) ||
			help != "" && !strings.Contains(w.Help[0], help) {
			t.Errorf("%+v", w)
		}
	}
	is(true, "it does not run now: there is room at worker w1", "")
	run := func(id string, worker cluster.WorkerID, state machine.State) {
		s.gateway.directory.Fleet.Update(func(e *fleet.Edit) {
			e.Machine(fleet.Machine{ID: id, App: "a", Worker: worker, State: state,
				Replica: &machine.Replica{Group: "report", Spec: "x", Epoch: 1, Run: machine.RunScheduled}})
		})
	}
	run("m1", "w1", machine.Started)
	is(true, "machine m1 of worker w1 runs it", "")
	run("m1", "w1", machine.Stopped)
	is(true, "it does not run now: there is room", "")
	run("m2", "w9", machine.Started)
	is(false, "machine m2 may still run it, and its worker w9 is not heard: others take the place", "")
	run("m2", "w9", machine.Stopped)
	s.launch(`{"config":{"image":"demo:1","guest":{"cpu_kind":"shared","cpus":1,"memory_mb":4000}}}`)
	is(false, "it does not run now: the workers that match are full", "ask for less")
	s.want(200, "POST", "/v1/souk/apps/a/scale", `{"counts":{"report":0}}`)
	is(true, "it is off", "souk scale a report=1")
}

// TestPendingReleaseCommandHoldsJobs: a pending command of a first release keeps its jobs from running, and the status
// says so.
func TestPendingReleaseCommandHoldsJobs(t *testing.T) {
	s := newShop(t).open()
	for body, want := range map[string]string{`,"release_command":[""]}`: "release_command has 1 to 64 words",
		`,"release_command_group":"web"}`:                           "there is none",
		`,"release_command":["x"],"release_command_group":"no"}`:    "release_command_group is no",
		`,"release_command":["x"],"release_command_timeout":"25h"}`: "release_command_timeout"} {
		e := s.want(400, "POST", "/v1/souk/apps/a/releases", strings.TrimSuffix(jobRelease, "}")+body).failure(t)
		if !strings.Contains(e.Error, want) {
			t.Errorf("%s: %s", body, e.Error)
		}
	}
	with := strings.TrimSuffix(jobRelease, "}") + `,"release_command":["migrate"]}`
	var p api.ReleasePlan
	s.want(200, "POST", "/v1/souk/apps/a/plan-release", with).into(t, &p)
	if !p.Command || len(p.Jobs) != 1 || !p.Changes {
		t.Errorf("%+v", p)
	}
	s.want(201, "POST", "/v1/souk/apps/a/releases", with)
	if e := s.want(412, "POST", "/v1/souk/apps/a/trigger", `{"group":"report"}`).failure(t); e.Souk.Code != "command_pending" {
		t.Error(e)
	}
	var got api.ServiceStatus
	s.want(200, "GET", "/v1/souk/apps/a/service", nil).into(t, &got)
	if got.Rollout == nil || got.Rollout.Command != "waiting" {
		t.Errorf("%+v", got.Rollout)
	}
}
