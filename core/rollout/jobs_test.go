package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// jobs is a service of one job, of which nothing is lost.
type jobs struct {
	*world
	t *testing.T
}

func newJobs(t *testing.T, c release.Cron) *jobs {
	w := newWorld(map[string]int{})
	w.now = time.Date(2026, 3, 2, 12, 0, 30, 0, time.UTC)
	j := &jobs{w, t}
	j.deployJob(c)
	j.at("12:01:00")
	return j
}

func (j *jobs) deployJob(c release.Cron) {
	r := &release.Release{Schema: release.Schema, At: j.now, Groups: []release.Group{{Name: "job", Replicas: 1,
		Cron:   &c,
		Config: &machine.Config{Image: "i"}}}}
	if err := r.Check(); err != nil {
		j.t.Fatal(err)
	}
	j.follow(release.Change{Release: r.ID(), Why: release.WhyDeploy}, r)
}

// at has the steward look at a time of the day, and returns what it ordered, as "make 12:05, hold 12:00".
func (j *jobs) at(clock string) string {
	j.t.Helper()
	at, err := time.Parse(time.TimeOnly, clock)
	if err != nil {
		j.t.Fatal(err)
	}
	j.now = time.Date(2026, 3, 2, at.Hour(), at.Minute(), at.Second(), 0, time.UTC)
	var out []string
	for range 5 {
		n := j.step(j.t)
		for _, o := range n.Orders {
			out = append(out, fmt.Sprintf("%s %s", o.Verb, o.Replica.At().Format("15:04")))
		}
		for len(j.under) > 0 {
			j.end(0, carried, workers[0])
		}
		if len(n.Orders) == 0 {
			break
		}
	}
	return strings.Join(out, ", ")
}

// finish has all runs end.
func (j *jobs) finish(code int) {
	for _, m := range j.machines {
		if m.Run != "" && !m.Over() {
			m.State, m.Ready, m.Died, m.Exit = machine.Stopped, false, true, &code
		}
	}
}

func (j *jobs) wants(clock, want string) {
	j.t.Helper()
	if got := j.at(clock); got != want {
		j.t.Fatalf("at %s: %q; want %q; %+v", clock, got, want, j.want.Runs)
	}
}

func (j *jobs) skipped(want string) {
	j.t.Helper()
	if got := j.want.Runs["job"].Skipped; (want == "") != (got == "") || !strings.Contains(got, want) {
		j.t.Fatalf("%q; want %q", got, want)
	}
}

func TestOverlapPolicyDecidesConcurrentRuns(t *testing.T) {
	for overlap, want := range map[release.Overlap]string{release.Forbid: "", release.AllowBoth: "make 12:10",
		release.ReplaceThat: "hold 12:05, make 12:10"} {
		t.Run(string(overlap), func(t *testing.T) {
			j := newJobs(t, release.Cron{Schedule: "*/5 * * * *", Overlap: overlap})
			j.wants("12:04:59", "")
			j.wants("12:05:00", "make 12:05")
			j.wants("12:05:01", "")
			j.wants("12:10:00", want)
			if overlap == release.Forbid {
				j.skipped("was still running (overlap = forbid)")
			} else {
				j.skipped("")
			}
			j.finish(0)
			j.wants("12:12:00", "")
			j.wants("12:15:00", "make 12:15")
			j.skipped("")
		})
	}
}

func TestMissedRunsStartOnlyTheNewest(t *testing.T) {
	j := newJobs(t, release.Cron{Schedule: "*/5 * * * *"})
	j.wants("12:22:00", "make 12:20") // of four the newest
	j.finish(1)
	j.wants("12:22:01", "")
	j = newJobs(t, release.Cron{Schedule: "0 * * * *"})
	j.wants("13:10:00", "make 13:00")
	j = newJobs(t, release.Cron{Schedule: "0 * * * *"})
	j.wants("13:10:01", "")
	j.skipped("what was due at 2026-03-02T13:00:00Z could not be started within 10m0s")
	j.wants("14:00:00", "make 14:00")
	j.skipped("")
}

// TestFailedRunReportsWhyUntilMade: a run that cannot be made shows the reason while it is retried, and none once it
// is made.
func TestFailedRunReportsWhyUntilMade(t *testing.T) {
	j := newJobs(t, release.Cron{Schedule: "*/5 * * * *"})
	j.at("12:05:00")
	j.finish(0)
	for i := range 3 {
		j.now = time.Date(2026, 3, 2, 12, 10, 20*i, 0, time.UTC)
		if n := j.step(t); len(n.Orders) != 1 || n.Orders[0].Verb != Make {
			t.Fatalf("try %d: %+v", i, n)
		}
		j.end(0, refused, workers[0])
		j.step(t)
		j.skipped("what is due at 2026-03-02T12:10:00Z could not be started yet, and is tried again: no")
	}
	j.wants("12:11:30", "make 12:10")
	j.skipped("")
}

// TestNewJobRunsNoPastTimes: a job counts from its release, or from when it is turned on; a job with a new schedule
// starts again.
func TestNewJobRunsNoPastTimes(t *testing.T) {
	j := newJobs(t, release.Cron{Schedule: "0 12 * * *"}) // it was deployed at 12:00:30
	j.wants("12:05:00", "")
	j.deployJob(release.Cron{Schedule: "4 12 * * *"})
	j.wants("12:05:01", "")
	j.deployJob(release.Cron{Schedule: "*/5 * * * *"})
	j.wants("12:05:30", "")
	j.scale("job", 0)
	j.wants("12:06:00", "")
	j.wants("12:10:00", "")
	j.now = j.now.Add(time.Minute)
	j.scale("job", 1)
	j.wants("12:11:30", "")
	j.wants("12:15:00", "make 12:15")
	j.deployJob(release.Cron{Schedule: "*/5 * * * *", Zone: "Europe/Berlin"})
	j.wants("12:16:00", "")
}

// TestNewestRunsAreKept: the newest runs of a job are kept; the machine of a job that the release drops ends by itself
// and is then removed.
func TestNewestRunsAreKept(t *testing.T) {
	two := 2
	j := newJobs(t, release.Cron{Schedule: "*/5 * * * *", Keep: &two})
	for _, x := range []struct{ at, removes string }{{"12:05", ""}, {"12:10", ""}, {"12:15", "remove 12:05"},
		{"12:20", "remove 12:10"}} {
		j.wants(x.at+":00", "make "+x.at)
		j.wants(x.at+":01", "")
		j.finish(0)
		j.wants(x.at+":02", x.removes)
	}
	j.wants("12:25:00", "make 12:25")
	j.deploy("two", map[string]int{"web": 1})
	if got := j.at("12:26:00"); !strings.Contains(got, "remove 12:20") || strings.Contains(got, "12:25") {
		t.Fatal(got)
	}
	j.finish(0)
	if got := j.at("12:27:00"); !strings.Contains(got, "remove 12:25") {
		t.Fatal(got)
	}
}

// TestReleaseCommandRunsBeforeTheRollout: the release command runs before any change, and its exit decides about the
// rollout.
func TestReleaseCommandRunsBeforeTheRollout(t *testing.T) {
	begin := func(t *testing.T) *jobs {
		w := newWorld(map[string]int{"web": 2})
		w.settle(t)
		j := &jobs{w, t}
		j.command("two")
		j.rounds(3)
		if m := j.running(); m == nil || m.Release != w.want.Release.ID() || len(w.machines) != 3 {
			t.Fatalf("%v", w.standing())
		}
		return j
	}
	t.Run("done", func(t *testing.T) {
		j := begin(t)
		j.finish(0)
		j.settle(t)
		if p := j.want.Progress; p.State != release.Done || p.Undo || p.Command != release.CommandDone ||
			j.kept() != 2 {
			t.Fatalf("%+v, %v", p, j.standing())
		}
		j.scale("web", 3)
		j.restart()
		j.settle(t)
		if j.running() != nil || j.want.Head.Command || j.kept() != 3 {
			t.Fatalf("it runs again: %v", j.standing())
		}
	})
	t.Run("failed", func(t *testing.T) {
		j := begin(t)
		before := fmt.Sprint(j.want.Before.ID())
		j.finish(3)
		j.settle(t)
		p := j.want.Progress
		if p.State != release.Done || !p.Undo || !strings.Contains(p.Why, "exit code 3") || len(p.Failed) != 1 {
			t.Fatalf("%+v", p)
		}
		for _, m := range j.machines {
			if m.Run == "" && m.Release != before {
				t.Fatalf("%+v", m)
			}
		}
		j.follow(release.Change{Resume: true, Why: release.WhyResume}, nil)
		j.rounds(3)
		if m := j.running(); m == nil || len(j.machines) != 3 {
			t.Fatalf("a resume does not try it again: %v", j.standing())
		}
	})
	t.Run("it takes too long", func(t *testing.T) {
		j := begin(t)
		j.now = j.now.Add((&release.Command{}).EndsWithin())
		j.rounds(3)
		p := j.want.Progress
		if !p.Undo || !strings.Contains(p.Why, "it did not end within 5m0s") || j.running() != nil {
			t.Fatalf("%+v, %v", p, j.standing())
		}
	})
	t.Run("it cannot be started", func(t *testing.T) {
		w := newWorld(map[string]int{"web": 2})
		w.settle(t)
		j := &jobs{w, t}
		j.command("two")
		j.step(t)
		o := j.under[0]
		j.under = nil
		o.by.Done(j.now, &o.Order, fault.New(fault.Invalid, machine.CodeLaunchFailed, "no such program"))
		j.rounds(2)
		if p := j.want.Progress; !p.Undo || !strings.Contains(p.Why, "no such program") {
			t.Fatalf("%+v", p)
		}
	})
	t.Run("of a first release", func(t *testing.T) {
		j := &jobs{newWorld(nil), t}
		j.want = Want{}
		j.command("one")
		j.rounds(3)
		j.finish(1)
		j.rounds(3)
		if p := j.want.Progress; p.State != release.Paused || p.Undo || j.kept() != 0 {
			t.Fatalf("%+v, %v", p, j.standing())
		}
	})
	t.Run("a machine that lacks meanwhile is as before", func(t *testing.T) {
		j := begin(t)
		for id, m := range j.machines {
			if m.Run == "" {
				delete(j.machines, id)
				break
			}
		}
		j.rounds(3)
		if j.kept() != 2 {
			t.Fatalf("%v", j.standing())
		}
		for _, m := range j.machines {
			if m.Run == "" && m.Release != j.want.Before.ID() {
				t.Fatalf("%+v", m)
			}
		}
	})
	t.Run("another deploy", func(t *testing.T) {
		j := begin(t)
		first := j.running().ID
		j.command("three")
		j.rounds(5)
		if m := j.running(); m == nil || m.ID == first || j.machines[first] != nil {
			t.Fatalf("%v", j.standing())
		}
	})
	t.Run("a rollback", func(t *testing.T) {
		j := begin(t)
		j.finish(0)
		j.settle(t)
		two := j.want.Head.Release
		j.command("three")
		j.rounds(3)
		j.finish(0)
		j.settle(t)
		j.follow(release.Change{Release: two, Why: release.WhyBack}, j.releases[two])
		j.settle(t)
		if j.running() != nil || j.want.Head.Command || j.kept() != 2 {
			t.Fatalf("%v", j.standing())
		}
	})
}

// command deploys a release with a command.
func (j *jobs) command(image string) {
	r := &release.Release{Schema: release.Schema, Groups: []release.Group{{Name: "web", Replicas: 2,
		Config: &machine.Config{Image: image}}},
		Command: &release.Command{Exec: []string{"migrate"}}}
	if err := r.Check(); err != nil {
		j.t.Fatal(err)
	}
	j.follow(release.Change{Release: r.ID(), Why: release.WhyDeploy}, r)
}

// rounds has the steward look, and all that it orders carried out.
func (j *jobs) rounds(n int) {
	for range n {
		j.step(j.t)
		for len(j.under) > 0 {
			j.end(0, carried, workers[0])
		}
		for _, m := range j.machines {
			m.Ready = m.State == machine.Started
		}
		j.now = j.now.Add(time.Second)
	}
}

// running returns the command that runs; nil: none.
func (j *jobs) running() *release.Standing {
	for _, m := range j.machines {
		if m.Run == machine.RunCommand && !m.Over() {
			return m
		}
	}
	return nil
}

// kept counts the machines that are kept up.
func (j *jobs) kept() (n int) {
	for _, m := range j.machines {
		if m.Run == "" {
			n++
		}
	}
	return n
}
