package buyers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// aCopy is a copy of the running job that a keeper has.
func aCopy(id, name string, minutes int, keeper cluster.WorkerID, epoch int) jobs.Job {
	j := aJob(id, name, minutes)
	j.Member, j.Epoch = keeper, epoch
	return j
}

// ended is a job as it is at its end.
func ended(j jobs.Job) jobs.Job {
	j.State, j.Succeeded = jobs.Succeeded, 1
	return j
}

const whyCopied = "b, which keeps it, does not answer; c has a copy and takes over when b is given up for dead"

// silentKeeper is a market whose member b keeps job B, named "sweep", and does not answer; c is its heir.
func silentKeeper() *market {
	m := newMarket("b", "c", "d")
	m.others["b"].jobs = []jobs.Job{aJob(idB, "sweep", 2)}
	m.others["b"].down = silence("b")
	m.others["c"].copies = []jobs.Job{aCopy(idB, "sweep", 2, "b", 1)}
	return m
}

func wantCopy(t *testing.T, j jobs.Job, err error) {
	t.Helper()
	if err != nil || j.ID != idB || j.Member != "b" || j.Heir != "c" || j.Why != whyCopied {
		t.Errorf("%+v, %v", j, err)
	}
}

// TestJobOfASilentKeeperIsShownFromItsCopy: by id and by name, whether the keeper is remembered, does not answer or is
// given up for dead.
func TestJobOfASilentKeeperIsShownFromItsCopy(t *testing.T) {
	for name, change := range map[string]func(m *market){
		"not found before": func(*market) {},
		"remembered":       func(m *market) { m.known.remember(idB, "b") },
		"gone":             func(m *market) { m.gone["b"] = time.Now() },
		"gone, remembered": func(m *market) { m.gone["b"] = time.Now(); m.known.remember(idB, "b") },
	} {
		t.Run(name, func(t *testing.T) {
			m, ctx := silentKeeper(), t.Context()
			change(m)
			for _, ref := range []string{idB, "sweep"} {
				j, silent, err := m.Status(ctx, ref)
				if wantCopy(t, j, err); len(silent) > 0 != (ref == "sweep") {
					t.Errorf("%s: %v are silent", ref, silent)
				}
				list, next, err := m.Tasks(ctx, ref, jobs.TaskQuery{From: 7})
				if err != nil || len(list) != 1 || list[0].Index != 7 || next != -1 {
					t.Errorf("%s: %v, %d, %v", ref, list, next, err)
				}
				r, err := m.JobReport(ctx, ref)
				wantCopy(t, r.Job, err)
				if s, err := m.Standing(ctx, ref); err != nil || !slices.Equal(s.Silent, []cluster.WorkerID{"b"}) {
					t.Errorf("%s: it stands %+v, %v", ref, s, err)
				}
				_, err = m.Cancel(ctx, ref)
				wantSilent(t, err, "kept by b", "nothing was changed", "c takes the job over", "ask again in a few")
				_, err = m.SetHold(ctx, ref, true)
				wantSilent(t, err, "kept by b", "nothing was changed", "c takes the job over")
				_, _, err = m.CancelTasks(ctx, ref, nil)
				wantSilent(t, err, "kept by b", "nothing was changed", "c takes the job over")
				err = m.Logs(ctx, ref, 0, machine.LogQuery{}, func(machine.LogLine) error { return nil })
				wantSilent(t, err, "kept by b", "the output of its tasks is there", "c takes the job over")
			}
			if at, known := m.known.of(idB); known && at != "b" {
				t.Errorf("it is remembered at %s", at)
			}
			j, err := m.Submitted(ctx, idB, time.Now())
			wantCopy(t, j, err)
			m.others["b"].down = nil // it is back
			delete(m.gone, "b")
			m.others["c"].heard()
			j, _, err = m.Status(ctx, idB)
			if err != nil || j.Member != "b" || j.Heir != "" || slices.Contains(m.others["c"].heard(), "copy "+idB) {
				t.Errorf("%+v, %v", j, err)
			}
		})
	}
}

// TestCopiesAreNotAskedForWhileTheKeeperAnswers, even if another member is silent, or if there is no such job.
func TestCopiesAreNotAskedForWhileTheKeeperAnswers(t *testing.T) {
	m, ctx := silentKeeper(), t.Context()
	m.own.jobs, m.others["c"].jobs = []jobs.Job{aJob(idA, "", 1)}, []jobs.Job{aJob(idC, "", 3)}
	for _, ref := range []string{idA, idC} {
		if _, _, err := m.Status(ctx, ref); err != nil {
			t.Error(err)
		}
	}
	m.others["b"].down = nil
	if _, _, err := m.Status(ctx, "j0123456789"); !fault.Is(err, fault.NotFound) {
		t.Errorf("got %v", err)
	}
	if _, _, err := m.List(ctx, "", true); err != nil {
		t.Error(err)
	}
	for _, f := range []*fakeBuyer{m.own, m.others["b"], m.others["c"], m.others["d"]} {
		if heard := strings.Join(f.heard(), " "); strings.Contains(heard, "cop") {
			t.Errorf("it was asked for %s", heard)
		}
	}
}

// TestStaleCopyDoesNotCount: a smaller epoch loses, and so does a copy whose keeper answers.
func TestStaleCopyDoesNotCount(t *testing.T) {
	m, ctx := silentKeeper(), t.Context()
	stale := aCopy(idB, "sweep", 2, "b", 0)
	stale.Succeeded = 9
	m.own.copies, m.others["d"].copies = []jobs.Job{stale}, []jobs.Job{stale}
	j, _, err := m.Status(ctx, idB)
	wantCopy(t, j, err)
	list, _, err := m.List(ctx, "", false)
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	wantCopy(t, list[0], err)

	m.others["c"].copies[0].Member = "d" // which has taken it over, and answers that it has it no more
	_, _, err = m.Status(ctx, idB)
	wantSilent(t, err, "b could not be asked")
	m.others["d"].jobs = []jobs.Job{aJob(idB, "sweep", 2)}
	if j, _, err = m.Status(ctx, "sweep"); err != nil || j.Member != "d" || j.Heir != "" {
		t.Errorf("%+v, %v", j, err)
	}
	if list, _, err = m.List(ctx, "", true); err != nil || len(list) != 1 || list[0].Member != "d" {
		t.Errorf("%v, %v", list, err)
	}
	m.own.jobs, m.others["d"].jobs = m.others["d"].jobs, nil
	m.others["c"].copies[0].Member = "b" // it has not yet heard that this member took it over
	if j, _, err = m.Status(ctx, "sweep"); err != nil || j.Member != "a" || j.Heir != "" {
		t.Errorf("%+v, %v", j, err)
	}
	m.own.jobs, m.own.copies, m.others["d"].copies = nil, nil, nil
	for _, wrong := range []jobs.Job{aCopy(idB, "sweep", 2, "", 1), aCopy(idC, "another", 2, "b", 1)} {
		m.others["c"].answers = wrong // which does not say who keeps it, and which was not asked for
		_, _, err = m.Status(ctx, idB)
		wantSilent(t, err, "b could not be asked")
	}
}

// TestNewestJobOfANameIsMeantAmongCopies, too: a copy counts if it is newer than what those that answer keep.
func TestNewestJobOfANameIsMeantAmongCopies(t *testing.T) {
	m, ctx := silentKeeper(), t.Context()
	m.own.jobs = []jobs.Job{aJob(idA, "sweep", 1)}
	m.others["d"].copies = []jobs.Job{aCopy(idC, "sweep", 0, "b", 7)}
	j, silent, err := m.Status(ctx, "sweep")
	if wantCopy(t, j, err); len(silent) != 1 {
		t.Errorf("%v are silent", silent)
	}
	m.own.jobs[0].Submitted = m.own.jobs[0].Submitted.Add(time.Hour)
	if j, silent, err = m.Status(ctx, "sweep"); err != nil || j.ID != idA || len(silent) != 1 {
		t.Errorf("%+v, %v, %v", j, silent, err)
	}
	m.own.jobs[0].Spec.Name = idB // a job whose id is the name comes first
	j, _, err = m.Status(ctx, idB)
	wantCopy(t, j, err)
}

// TestOwnCopyIsUsed, also of a job that has ended, which has no reason to wait.
func TestOwnCopyIsUsed(t *testing.T) {
	m, ctx := silentKeeper(), t.Context()
	m.own.copies, m.others["c"].copies = []jobs.Job{ended(aCopy(idB, "sweep", 2, "b", 1))}, nil
	for range 2 {
		j, _, err := m.Status(ctx, idB)
		if err != nil || j.Member != "b" || j.Heir != "a" || j.State != jobs.Succeeded || j.Why != "" {
			t.Errorf("%+v, %v", j, err)
		}
	}
	if list, _, err := m.Tasks(ctx, idB, jobs.TaskQuery{}); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	list, silent, err := m.List(ctx, "", true)
	if err != nil || len(list) != 1 || list[0].Heir != "a" || len(silent) != 1 || silent[0].Worker != "b" {
		t.Errorf("%v, %v, %v", list, silent, err)
	}
	if list, _, err = m.List(ctx, "", false); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// TestListHasCopiesOfSilentMembersOnly: in order, of the app, each once, and the members stay named as silent.
func TestListHasCopiesOfSilentMembersOnly(t *testing.T) {
	m := silentKeeper()
	m.own.jobs = []jobs.Job{aJob(idA, "", 3)}
	foreign := aCopy("j0000000001", "", 0, "b", 0)
	foreign.Spec.App = "another"
	m.others["d"].copies = []jobs.Job{aCopy(idA, "", 3, "b", 9), aCopy(idC, "", 1, "b", 0), foreign,
		aCopy("j0000000002", "", 0, "c", 0)}
	list, silent, err := m.List(t.Context(), "app", true)
	var got []string
	for _, j := range list {
		got = append(got, string(j.Member)+":"+string(j.Heir)+":"+j.ID)
	}
	if want := "b:d:" + idC + " b:c:" + idB + " a::" + idA; err != nil || strings.Join(got, " ") != want ||
		len(silent) != 1 || silent[0].Worker != "b" {
		t.Errorf("%v, %v, %v; want %s", got, silent, err, want)
	}
	if heard := m.others["c"].heard(); !slices.Contains(heard, "copies [b]") {
		t.Errorf("c was asked for %v", heard)
	}
	m.others["d"].down = silence("d")
	if list, silent, err = m.List(t.Context(), "app", true); err != nil || len(list) != 2 || len(silent) != 2 {
		t.Errorf("%v, %v, %v", list, silent, err)
	}
}

// TestWithoutACopyTheSilentMemberIsNamed, as if there were no heirs, whatever the holders answer.
func TestWithoutACopyTheSilentMemberIsNamed(t *testing.T) {
	m, ctx := silentKeeper(), t.Context()
	m.others["c"].down = silence("c")
	_, _, err := m.Status(ctx, idB)
	wantSilent(t, err, "no member that answers keeps", "b, c could not be asked")
	m.known.remember(idB, "b")
	_, _, err = m.Status(ctx, idB)
	wantSilent(t, err, "is kept by b, which does not answer")
	_, err = m.Submitted(ctx, idB, time.Now())
	wantSilent(t, err, "may have been submitted already to b")
	m.others["c"].down, m.others["c"].copies = nil, nil
	_, err = m.Wait(ctx, idB, 0, time.Second)
	wantSilent(t, err, "is kept by b, which does not answer")
	if j, err := m.Submitted(ctx, idC, time.Now()); err == nil {
		t.Errorf("there is a job %+v", j)
	}
}

// TestChangeAtAKeeperWhoseAnswerIsLost may have been made.
func TestChangeAtAKeeperWhoseAnswerIsLost(t *testing.T) {
	m := silentKeeper()
	m.known.remember(idB, "b")
	m.others["b"].down = fault.New(fault.Unavailable, fault.CodeLost, "the connection broke")
	_, err := m.Cancel(t.Context(), idB)
	wantSilent(t, err, "kept by b", "whether it was changed is not known", "c takes the job over")
}

// TestTasksOfACopyThatIsGone: its holder has just taken the job over, or has died, too.
func TestTasksOfACopyThatIsGone(t *testing.T) {
	m := silentKeeper()
	for _, err := range []error{fault.New(fault.NotFound, fault.CodeJobNotFound, "no copy of it"), silence("c")} {
		m.others["c"].ends = err
		_, _, err := m.Tasks(t.Context(), idB, jobs.TaskQuery{})
		wantSilent(t, err, "is kept by b, which does not answer")
	}
	m.others["c"].ends = fault.New(fault.Internal, fault.CodePanic, "it failed")
	if _, _, err := m.Tasks(t.Context(), idB, jobs.TaskQuery{}); !fault.Is(err, fault.Internal) {
		t.Errorf("got %v", err)
	}
}

// TestCopyOfAKeeperThatHasLeft: one that is remembered, does not answer, and is not among the members any more.
func TestCopyOfAKeeperThatHasLeft(t *testing.T) {
	m := newMarket("c", "d")
	m.others["b"], m.others["c"].copies = &fakeBuyer{down: silence("b")}, silentKeeper().others["c"].copies
	m.known.remember(idB, "b")
	j, silent, err := m.Status(t.Context(), idB)
	if wantCopy(t, j, err); len(silent) > 0 {
		t.Errorf("%v are silent", silent)
	}
}

// TestSilentKeeperAndHolderAreBounded: a keeper that answers nothing within its 2 s costs no more than them, another
// silent member less than a second more, and a holder that is slow is not waited for.
func TestSilentKeeperAndHolderAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := silentKeeper()
		m.others["b"].slow = 2 * time.Second // and then silent, as by the wire
		m.known.remember(idB, "b")
		took := func(f func(ctx context.Context)) time.Duration {
			begin := time.Now()
			f(t.Context())
			return time.Since(begin)
		}
		shown := func(ctx context.Context) {
			j, _, err := m.Status(ctx, idB)
			wantCopy(t, j, err)
		}
		if d := took(shown); d != 2*time.Second {
			t.Errorf("it took %v", d)
		}
		m.others["d"].slow = time.Hour
		if d := took(shown); d != 2*time.Second+lostFindTime {
			t.Errorf("it took %v", d)
		}
		m.others["c"].slow = time.Hour
		if d := took(func(ctx context.Context) {
			_, _, err := m.Status(ctx, idB)
			wantSilent(t, err, "is kept by b")
		}); d != 2*time.Second+lostFindTime {
			t.Errorf("it took %v", d)
		}
		m.others["c"].slow, m.others["d"].slow = 0, 0
		m.own.slow, m.known = 900*time.Millisecond, whereabouts{} // twice: its jobs, then its copies
		if d := took(shown); d > 4*time.Second {
			t.Errorf("it took %v", d)
		}
		m.own.slow = 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := m.Status(ctx, idB); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// TestWaitAtACopy: a job of which only a copy is found is waited for at the heir, until its limit, its end, more tasks
// have ended, its keeper is back, or the heir has taken it over.
func TestWaitAtACopy(t *testing.T) {
	change := func(m *market, f func()) {
		for _, x := range m.others {
			x.mu.Lock()
			defer x.mu.Unlock()
		}
		f()
	}
	for name, x := range map[string]struct {
		after  func(m *market) // a second
		took   time.Duration
		member cluster.WorkerID
		heir   cluster.WorkerID
	}{
		"the limit": {func(*market) {}, time.Minute + time.Millisecond, "b", "c"},
		"its end": {func(m *market) { m.others["c"].copies[0] = ended(m.others["c"].copies[0]) },
			1500 * time.Millisecond, "b", "c"},
		"a task's end": {func(m *market) { m.others["c"].copies[0].Failed = 1 }, 1500 * time.Millisecond, "b", "c"},
		"the keeper is back": {func(m *market) {
			m.others["b"].down, m.others["b"].jobs[0] = nil, ended(m.others["b"].jobs[0])
		}, 1500 * time.Millisecond, "b", ""},
		"it is taken over": {func(m *market) {
			m.others["c"].jobs, m.others["c"].copies = []jobs.Job{ended(aJob(idB, "sweep", 2))}, nil
		}, 1500 * time.Millisecond, "c", ""},
		"another has taken it over": {func(m *market) {
			m.others["c"].copies[0].Member, m.others["d"].jobs = "d", []jobs.Job{ended(aJob(idB, "sweep", 2))}
		}, 1500 * time.Millisecond, "d", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := silentKeeper()
				time.AfterFunc(time.Second+time.Millisecond, func() { change(m, func() { x.after(m) }) })
				begin := time.Now()
				j, err := m.Wait(t.Context(), "sweep", 0, time.Minute+time.Millisecond)
				if took := time.Since(begin); err != nil || j.ID != idB || j.Member != x.member || j.Heir != x.heir ||
					took != x.took {
					t.Errorf("after %v %+v, %v", took, j, err)
				}
			})
		})
	}
	m := silentKeeper()
	m.others["c"].copies[0] = ended(m.others["c"].copies[0])
	if j, err := m.Wait(t.Context(), idB, 9, time.Hour); err != nil || j.State != jobs.Succeeded {
		t.Errorf("%+v, %v", j, err)
	}
	synctest.Test(t, func(t *testing.T) { // the caller goes once it waits
		ctx, cancel := context.WithCancel(t.Context())
		m := silentKeeper()
		time.AfterFunc(time.Millisecond, cancel)
		if j, err := m.Wait(ctx, idB, 9, time.Hour); err != nil || j.ID != idB {
			t.Errorf("%+v, %v", j, err)
		}
	})
}

// TestCostOfACopy counts what a wait at a copy costs in requests to others: two each time that it looks.
func TestCostOfACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := silentKeeper()
		if _, err := m.Wait(t.Context(), idB, 0, 10*time.Second); err != nil {
			t.Error(err)
		}
		b, c, d := len(m.others["b"].heard()), len(m.others["c"].heard()), len(m.others["d"].heard())
		if b != 1+20 || c != 2+20 || d != 2 {
			t.Errorf("%d, %d and %d calls", b, c, d)
		}
	})
}
