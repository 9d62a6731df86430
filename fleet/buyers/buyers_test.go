package buyers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/machine"
)

// market is the buyers of member a, which is asked, and of others.
type market struct {
	*Jobs
	own    *fakeBuyer
	others map[cluster.WorkerID]*fakeBuyer
	gone   map[cluster.WorkerID]time.Time // members that are not heard of, and since when
	called map[cluster.WorkerID]bool      // whether a member answered last
	mu     sync.Mutex
}

func newMarket(others ...cluster.WorkerID) *market {
	m := &market{own: &fakeBuyer{}, others: map[cluster.WorkerID]*fakeBuyer{}, gone: map[cluster.WorkerID]time.Time{},
		called: map[cluster.WorkerID]bool{}}
	for _, id := range others {
		m.others[id] = &fakeBuyer{}
	}
	other := func(id cluster.WorkerID) (Other, bool) {
		f := m.others[id]
		return Other{ID: id, Buyer: f, Gone: func() (time.Time, error) {
			if since, is := m.gone[id]; is {
				return since, silence(id)
			}
			return time.Time{}, nil
		}}, f != nil
	}
	m.Jobs = New(Options{Own: fakeOwn{m.own}, Self: "a", Other: other, Others: func() (all []Other) {
		for _, id := range others {
			if o, known := other(id); known {
				all = append(all, o)
			}
		}
		return all
	}, Called: func(id cluster.WorkerID, answered bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.called[id] = answered
	}})
	return m
}

// aJob is a job that was submitted some minutes after noon.
func aJob(id, name string, minutes int) jobs.Job {
	return jobs.Job{ID: id, State: jobs.Running, Spec: jobs.Spec{App: "app", Name: name},
		Submitted: time.Date(2026, 11, 28, 12, minutes, 0, 0, time.UTC)}
}

const (
	idA = "j000000000a"
	idB = "j000000000b"
	idC = "j000000000c"
)

func wantSilent(t *testing.T, err error, says ...string) {
	t.Helper()
	if !fault.Is(err, fault.Unavailable) || fault.CodeOf(err) != fault.CodeJobMember {
		t.Fatalf("got %v", err)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%v does not say %q", err, s)
		}
	}
}

// TestEveryCallReachesTheMemberThatKeepsTheJob: by id and by name, of the own member and another, whose id each answer
// carries; the second time another member is asked once.
func TestEveryCallReachesTheMemberThatKeepsTheJob(t *testing.T) {
	m, ctx := newMarket("b", "c"), t.Context()
	m.own.jobs = []jobs.Job{aJob(idA, "near", 1)}
	m.others["b"].jobs = []jobs.Job{aJob(idB, "far", 2)}
	calls := map[string]func(ref string) (jobs.Job, error){
		"status": func(ref string) (jobs.Job, error) { j, _, err := m.Status(ctx, ref); return j, err },
		"cancel": func(ref string) (jobs.Job, error) { return m.Cancel(ctx, ref) },
		"requeue": func(ref string) (jobs.Job, error) {
			j, n, err := m.Requeue(ctx, ref, nil)
			if n != 1 {
				t.Errorf("%d tasks were requeued", n)
			}
			return j, err
		},
		"hold": func(ref string) (jobs.Job, error) { return m.SetHold(ctx, ref, true) },
		"cancel tasks": func(ref string) (jobs.Job, error) {
			j, done, err := m.CancelTasks(ctx, ref, nil)
			if done.Tasks != 1 {
				t.Errorf("%d tasks were cancelled", done.Tasks)
			}
			return j, err
		},
		"wait":   func(ref string) (jobs.Job, error) { return m.Wait(ctx, ref, 0, time.Second) },
		"report": func(ref string) (jobs.Job, error) { r, err := m.JobReport(ctx, ref); return r.Job, err },
		"standing": func(ref string) (jobs.Job, error) {
			s, err := m.Standing(ctx, ref)
			if err == nil && s.Scheduler != "sparrow" {
				t.Errorf("got %+v", s)
			}
			return jobs.Job{}, err
		},
		"tasks": func(ref string) (jobs.Job, error) {
			out, next, err := m.Tasks(ctx, ref, jobs.TaskQuery{From: 7})
			if len(out) != 1 || out[0].Index != 7 || next != -1 {
				t.Errorf("got %v, %d", out, next)
			}
			return jobs.Job{}, err
		},
		"logs": func(ref string) (jobs.Job, error) {
			lines := 0
			err := m.Logs(ctx, ref, 0, machine.LogQuery{}, func(machine.LogLine) error { lines++; return nil })
			if lines != 1 {
				t.Errorf("%d lines", lines)
			}
			return jobs.Job{}, err
		},
		"output": func(ref string) (jobs.Job, error) {
			lines := 0
			err := m.TaskOutput(ctx, ref, jobs.OutputQuery{}, func(jobs.TaskLine) error { lines++; return nil })
			if lines != 1 {
				t.Errorf("%d lines", lines)
			}
			return jobs.Job{}, err
		},
	}
	for name, call := range calls {
		for _, x := range []struct {
			ref, id string
			at      cluster.WorkerID
			buyer   *fakeBuyer
		}{{idA, idA, "a", m.own}, {"near", idA, "a", m.own}, {idB, idB, "b", m.others["b"]},
			{"far", idB, "b", m.others["b"]}} {
			m.known = whereabouts{}
			for range 2 {
				x.buyer.heard()
				j, err := call(x.ref)
				if err != nil || j.ID != "" && (j.ID != x.id || j.Member != x.at) {
					t.Errorf("%s %s: %+v, %v", name, x.ref, j, err)
				}
				heard := x.buyer.heard()
				if last := heard[len(heard)-1]; last != name+" "+x.id && last != name+" "+x.ref {
					t.Errorf("%s %s asks for %v", name, x.ref, heard)
				}
			}
			m.others["b"].heard()
			m.others["c"].heard()
			if _, err := call(x.ref); err != nil {
				t.Error(err)
			}
			b, c := m.others["b"].heard(), m.others["c"].heard()
			if x.ref == idA && len(b)+len(c) > 0 || x.ref == idB && (len(b) != 1 || len(c) > 0) {
				t.Errorf("%s %s the second time asks b for %v, c for %v", name, x.ref, b, c)
			}
		}
	}
}

// TestNewestJobOfANameIsMeant, whichever member keeps it; a job whose id is the name comes first.
func TestNewestJobOfANameIsMeant(t *testing.T) {
	m, ctx := newMarket("b", "c"), t.Context()
	m.own.jobs = []jobs.Job{aJob(idA, "sweep", 2)}
	m.others["b"].jobs = []jobs.Job{aJob(idB, "sweep", 3)}
	m.others["c"].jobs = []jobs.Job{aJob(idC, "sweep", 1)}
	want := func(ref, id string) {
		t.Helper()
		if j, silent, err := m.Status(ctx, ref); err != nil || j.ID != id || len(silent) > 0 {
			t.Errorf("%s is %+v, %v, %v; want %s", ref, j, silent, err, id)
		}
	}
	want("sweep", idB)
	m.others["c"].jobs[0].Submitted = m.others["b"].jobs[0].Submitted
	want("sweep", idC) // of the same time: the larger id
	m.own.jobs[0].Submitted = m.own.jobs[0].Submitted.Add(time.Hour)
	want("sweep", idA)
	m.own.jobs[0].Spec.Name = idC
	want(idC, idC)
}

// TestRememberedPlaceMayBeWrong: a job that has gone to another member is found there.
func TestRememberedPlaceMayBeWrong(t *testing.T) {
	m, ctx := newMarket("b", "c"), t.Context()
	b, c := m.others["b"], m.others["c"]
	b.jobs = []jobs.Job{aJob(idB, "", 1)}
	at := func() cluster.WorkerID {
		t.Helper()
		j, _, err := m.Status(ctx, idB)
		if err != nil {
			t.Fatal(err)
		}
		return j.Member
	}
	if at() != "b" || at() != "b" {
		t.Error("it is not at b")
	}
	c.jobs, b.jobs = b.jobs, nil
	if at() != "c" {
		t.Error("it is not at c")
	}
	c.heard()
	if b.heard(); at() != "c" || len(b.heard()) > 0 || len(c.heard()) != 1 {
		t.Error("it is not remembered at c")
	}
	b.jobs, c.down = c.jobs, silence("c") // c has died, and b took the job over
	if j, err := m.Cancel(ctx, idB); err != nil || j.Member != "b" {
		t.Errorf("%+v, %v", j, err)
	}
	m.own.jobs, b.jobs = b.jobs, nil
	if at() != "a" {
		t.Error("it is not here")
	}
	delete(m.others, "b") // a member that is removed
	m.own.jobs = nil
	_, _, err := m.Status(ctx, idB)
	wantSilent(t, err, "c could not be asked")
}

// TestSilentMemberIsNamed: where a member cannot be asked nobody is told that there is no such job, and lists say whose
// jobs they lack.
func TestSilentMemberIsNamed(t *testing.T) {
	m, ctx := newMarket("b", "c"), t.Context()
	m.own.jobs = []jobs.Job{aJob(idA, "sweep", 1)}
	m.others["b"].jobs = []jobs.Job{aJob(idB, "", 2)}
	m.others["c"].jobs = []jobs.Job{aJob(idC, "sweep", 3)}
	if _, _, err := m.Status(ctx, "j0123456789"); fault.CodeOf(err) != fault.CodeJobNotFound {
		t.Errorf("got %v", err)
	}
	for name, change := range map[string]func(){
		"does not answer": func() { m.others["c"].down = silence("c") },
		"denies":          func() { m.others["c"].down = fault.New(fault.Denied, fault.CodeRole, "no gateway") },
		"fails":           func() { m.others["c"].down = fault.New(fault.Internal, fault.CodePanic, "it failed") },
		"is gone":         func() { m.gone["c"] = time.Now() },
	} {
		t.Run(name, func(t *testing.T) {
			m.others["c"].down = nil
			clear(m.gone)
			change()
			m.known = whereabouts{}
			_, _, err := m.Status(ctx, idC)
			wantSilent(t, err, "no member that answers keeps", idC, "c could not be asked")
			if j, silent, err := m.Status(ctx, idB); err != nil || j.Member != "b" || len(silent) > 0 {
				t.Errorf("a job of b: %+v, %v, %v", j, silent, err)
			}
			// an older one of the name is told of, and not changed
			j, silent, err := m.Status(ctx, "sweep")
			if err != nil || j.ID != idA || len(silent) != 1 || silent[0].Worker != "c" {
				t.Errorf("a name: %+v, %v, %v", j, silent, err)
			}
			_, err = m.Cancel(ctx, "sweep")
			wantSilent(t, err, "nothing was changed", "c could not be asked")
			_, _, err = m.CancelTasks(ctx, "sweep", nil)
			wantSilent(t, err, "nothing was changed")
			list, silent, err := m.List(ctx, "", true)
			if err != nil || len(list) != 2 || len(silent) != 1 || silent[0].Worker != "c" {
				t.Errorf("got %v, %v, %v", list, silent, err)
			}
			m.known.remember(idC, "c")
			if name == "is gone" || name == "does not answer" {
				_, _, err = m.Status(ctx, idC)
				wantSilent(t, err, idC, "is kept by c, which does not answer")
			}
		})
	}
	if n := slices.Index(m.others["c"].heard(), "status "+idC); n < 0 {
		t.Error("c was not asked")
	}
	m.gone["c"] = time.Now()
	if _, _, err := m.Status(ctx, idC); len(m.others["c"].heard()) > 0 {
		t.Errorf("a member that is not heard of was called: %v", err)
	}
}

// TestListMergesAllMembersOldestFirst: each job with its member, of the app alone, whatever the others answer.
func TestListMergesAllMembersOldestFirst(t *testing.T) {
	m := newMarket("b", "c", "d")
	ended, foreign := aJob("j0000000001", "", 4), aJob("j0000000002", "", 5)
	ended.State, foreign.Spec.App = jobs.Succeeded, "another"
	m.own.jobs = []jobs.Job{aJob(idA, "", 2), ended}
	m.others["b"].jobs = []jobs.Job{aJob(idB, "", 1), ended, foreign}
	m.others["c"].jobs = []jobs.Job{aJob(idC, "", 3)}
	m.others["d"].down = fault.New(fault.Unimplemented, jobs.CodeJobs, "d keeps no jobs")
	for _, x := range []struct {
		app   string
		ended bool
		want  string
	}{
		{"app", false, "b:j000000000b a:j000000000a c:j000000000c"},
		{"app", true, "b:j000000000b a:j000000000a c:j000000000c a:j0000000001 b:j0000000001"},
		{"another", true, "b:j0000000002"},
		{"none", true, ""},
	} {
		list, silent, err := m.List(t.Context(), x.app, x.ended)
		var got []string
		for _, j := range list {
			got = append(got, string(j.Member)+":"+j.ID)
		}
		if err != nil || len(silent) > 0 || strings.Join(got, " ") != x.want {
			t.Errorf("%s, ended %v: %v, %v, %v", x.app, x.ended, got, silent, err)
		}
	}
}

// TestSubmittedFindsTheJobOfARepeatedID at any member, and refuses where a silent member may keep it.
func TestSubmittedFindsTheJobOfARepeatedID(t *testing.T) {
	m, ctx := newMarket("b", "c"), t.Context()
	m.others["b"].jobs = []jobs.Job{aJob(idB, idC, 1)} // and its name is an id
	if j, err := m.Submitted(ctx, idB, time.Time{}); err != nil || j.ID != idB || j.Member != "b" {
		t.Errorf("%+v, %v", j, err)
	}
	for _, id := range []string{idA, idC} {
		if _, err := m.Submitted(ctx, id, time.Time{}); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v", id, err)
		}
	}
	now := time.Now()
	for _, x := range []struct {
		name        string
		gone, drawn time.Time
		refused     bool
	}{
		{"heard of, and does not answer", time.Time{}, time.Time{}, true},
		{"the same, of an old id", time.Time{}, now.Add(-time.Hour), true},
		{"died just now", now, time.Time{}, true},
		{"died before the id was drawn", now.Add(-time.Second), now, false},
		{"died after the id was drawn", now.Add(-time.Minute), now.Add(-time.Hour), true},
		{"died long ago", now.Add(-2 * find.PatienceUnheard), time.Time{}, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			m.others["c"].down = silence("c")
			clear(m.gone)
			if !x.gone.IsZero() {
				m.gone["c"] = x.gone
			}
			_, err := m.Submitted(ctx, idA, x.drawn)
			if !x.refused {
				if !fault.Is(err, fault.NotFound) {
					t.Errorf("got %v", err)
				}
				return
			}
			wantSilent(t, err, idA, "may have been submitted already to c")
		})
	}
	if j, err := m.Submitted(ctx, idB, now); err != nil || j.Member != "b" {
		t.Errorf("what b keeps: %+v, %v", j, err)
	}
	if j, err := m.Submit(ctx, idA, jobs.Spec{}); err != nil || j.ID != idA || j.Member != "a" {
		t.Errorf("%+v, %v", j, err)
	}
}

// TestBrokenStreamIsNotBegunAnew: a member that breaks off in the middle of the output is not asked again, nor another.
func TestBrokenStreamIsNotBegunAnew(t *testing.T) {
	m := newMarket("b", "c")
	b := m.others["b"]
	b.jobs, b.breaks = []jobs.Job{aJob(idB, "", 1)}, silence("b")
	for range 2 { // found, then remembered
		lines := 0
		err := m.Logs(t.Context(), idB, 0, machine.LogQuery{}, func(machine.LogLine) error { lines++; return nil })
		if !fault.Is(err, fault.Unavailable) || lines != 1 {
			t.Errorf("%d lines, %v", lines, err)
		}
		lines = 0
		err = m.TaskOutput(t.Context(), idB, jobs.OutputQuery{}, func(jobs.TaskLine) error { lines++; return nil })
		if !fault.Is(err, fault.Unavailable) || lines != 1 {
			t.Errorf("%d lines of all tasks, %v", lines, err)
		}
	}
	_, err := m.Wait(t.Context(), idB, 0, time.Second)
	wantSilent(t, err, "is kept by b")
	m.known = whereabouts{}
	for range 2 { // one that is busy says so itself: found, then remembered
		b.breaks = fault.New(fault.Unavailable, fault.CodeBusy, "as many waits as it takes at once")
		if _, err := m.Wait(t.Context(), idB, 0, time.Second); fault.CodeOf(err) != fault.CodeBusy {
			t.Errorf("got %v", err)
		}
	}
	b.breaks = fault.New(fault.Invalid, fault.CodeJob, "no")
	if _, err := m.Wait(t.Context(), idB, 0, time.Second); !fault.Is(err, fault.Invalid) {
		t.Errorf("got %v", err)
	}
}

// TestSearchIsBounded: a job is found as soon as one member has it, and who does not answer at all is not waited for
// beyond the bound, nor taken for silent by a search that has ended.
func TestSearchIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMarket("b", "c")
		m.others["b"].jobs = []jobs.Job{aJob(idB, "far", 1)}
		m.others["c"].slow = time.Hour
		begin := time.Now()
		if j, _, err := m.Status(t.Context(), idB); err != nil || j.Member != "b" || time.Since(begin) > 0 {
			t.Errorf("%+v, %v after %v", j, err, time.Since(begin))
		}
		if _, noted := m.called["c"]; noted {
			t.Error("c is taken for silent")
		}
		_, _, err := m.Status(t.Context(), idC)
		if wantSilent(t, err, "c could not be asked"); time.Since(begin) != findTime {
			t.Errorf("it took %v", time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := m.Status(ctx, idC); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}
