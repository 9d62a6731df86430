package jobs_test

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
)

// submitTo submits a job of n tasks at a member, and has it answered.
func (m *many) submitTo(x *memberModel, n int, more func(*jobs.Spec)) string {
	id := jobs.ID(uint64(len(m.answered) + 1))
	spec := jobs.Spec{App: "app", Command: []string{"true"}, First: 1, Last: n}
	if more != nil {
		more(&spec)
	}
	if err := spec.Settle(); err != nil {
		m.t.Fatal(err)
	}
	if err := x.s.Dispatcher.Submit(m.now, id, spec); err != nil {
		m.t.Fatal(err)
	}
	m.answered[id] = false
	x.commit()
	x.copyJobs(copyArrives)
	x.commit()
	if !m.answered[id] {
		m.t.Fatalf("the submission of job %s is not answered", id)
	}
	return id
}

// heirOf returns the member with the copy of a job.
func (x *memberModel) heirOf(id string) *memberModel {
	j, err := x.s.Dispatcher.Status(x.m.now, id)
	if err != nil || j.Heir == "" {
		x.m.t.Fatalf("job %s has no heir: %+v, %v", id, j, err)
	}
	return x.m.at(j.Heir)
}

// succeeded counts a job's tasks that succeeded, by a member that keeps it; -1: it does not.
func (x *memberModel) succeeded(id string) int {
	j, err := x.s.Dispatcher.Status(x.m.now, id)
	if err != nil {
		return -1
	}
	return j.Succeeded
}

// copied counts a job's tasks that succeeded, by a member that has a copy; -1: it has none.
func (x *memberModel) copied(id string) int {
	j, err := x.s.Copies.Status(x.m.now, x.id, id)
	if err != nil {
		return -1
	}
	return j.Succeeded
}

// TestOldCopyTakesOverNothing: an heir is down for long, so the keeper gives the job another one. The keeper is lost, the
// first heir comes back with its old copy, and leaves the job to the second.
func TestOldCopyTakesOverNothing(t *testing.T) {
	m := newMany(t, 3)
	keeper := m.members[0]
	id := m.submitTo(keeper, 6, nil)
	first := keeper.heirOf(id)
	first.crash()
	for range 6 {
		m.wholeRound()
	}
	second := keeper.heirOf(id)
	had := second.copied(id)
	if second == first || had < 3 {
		t.Fatalf("the second heir is %s, with %d results", second.id, had)
	}
	keeper.lose()
	first.start()
	if n := first.copied(id); n < 0 || n >= had {
		t.Fatalf("the old copy has %d results of %d", n, had)
	}
	for range 8 {
		m.now = m.now.Add(time.Second)
		first.look() // before the second one
		second.look()
	}
	if first.succeeded(id) >= 0 || second.succeeded(id) < had {
		t.Errorf("%d results at the first, %d at the second", first.succeeded(id), second.succeeded(id))
	}
}

// TestWholeCopyComesInPieces, and counts with the last one only: until then the copy of before stands.
func TestWholeCopyComesInPieces(t *testing.T) {
	const tasks = 20_000
	c := jobs.NewCopies()
	var groups [][]jobs.Result
	for i := 0; i < tasks; i += 1000 {
		var g []jobs.Result
		for k := range 1000 {
			g = append(g, jobs.Result{Index: i + k, Attempt: 1, Worker: "w", Ended: 1})
		}
		groups = append(groups, g)
	}
	head := []byte(fmt.Sprintf(`{"spec":{"app":"app","command":["true"],"last":%d},`, tasks-1) +
		`"submitted":"2026-11-21T00:00:00Z","epoch":1}`)
	part := func(piece int, more bool, g [][]jobs.Result) jobs.CopyState {
		x := &jobs.Copy{Job: "j0000000001", Epoch: 1, Sum: 7, Version: 20, Piece: piece, More: more, Groups: g}
		if !more {
			x.Head = head
		}
		return c.Take(epoch, "a", x).State
	}
	status := func() jobs.Job {
		j, _ := c.Status(epoch, "b", "j0000000001")
		return j
	}
	for i, want := range []jobs.CopyState{jobs.CopyKept, jobs.CopyKept, jobs.CopyKept} {
		if got := part(i+1, i < 2, groups[i*5:i*5+5]); got != want {
			t.Fatalf("piece %d: %s", i+1, got)
		}
	}
	if j := status(); j.Succeeded != 15_000 || j.Member != "a" || j.Heir != "b" {
		t.Fatalf("%+v", j)
	}
	if got := part(1, true, groups[:10]); got != jobs.CopyKept || status().Succeeded != 15_000 {
		t.Errorf("the first piece of the next copy: %s, %d", got, status().Succeeded)
	}
	if got := part(3, false, groups[10:]); got != jobs.CopyMissing || status().Succeeded != 15_000 {
		t.Errorf("a piece that does not follow: %s, %d", got, status().Succeeded)
	}
	if got := part(1, true, groups[:10]); got != jobs.CopyKept {
		t.Errorf("from the start again: %s", got)
	}
	if got := part(2, false, groups[10:]); got != jobs.CopyKept || status().Succeeded != tasks {
		t.Errorf("the last piece: %s, %d", got, status().Succeeded)
	}
	back := jobs.NewCopies()
	live := map[string]bool{}
	for _, r := range c.Flush() {
		if live[r.Bucket+r.Key] = r.Value != nil; r.Value != nil {
			if err := back.Restore(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := back.Resume(); err != nil {
		t.Fatal(err)
	}
	if j, err := back.Status(epoch, "b", "j0000000001"); err != nil || j.Succeeded != tasks {
		t.Errorf("from the journal: %+v, %v", j, err)
	}
}

// TestAdditionToAnotherCopyIsRefused: what does not follow what is there makes the keeper send everything.
func TestAdditionToAnotherCopyIsRefused(t *testing.T) {
	head := []byte(`{"spec":{"app":"app","command":["true"],"last":9},"submitted":"2026-11-21T00:00:00Z","epoch":1}`)
	group := func(index int) [][]jobs.Result { return [][]jobs.Result{{{Index: index, Attempt: 1, Ended: 1}}} }
	whole := jobs.Copy{Job: "j0000000001", Epoch: 1, Sum: 7, Version: 1, Piece: 1, Head: head, Groups: group(0)}
	for what, x := range map[string]struct {
		from cluster.WorkerID
		part jobs.Copy
		want jobs.CopyState
	}{
		"the next group":            {"a", jobs.Copy{Version: 2, Groups: group(1)}, jobs.CopyKept},
		"the same group":            {"a", jobs.Copy{Version: 1, Groups: group(0)}, jobs.CopyKept},
		"a group too far":           {"a", jobs.Copy{Version: 3, Groups: group(2)}, jobs.CopyMissing},
		"another head":              {"a", jobs.Copy{Sum: 8, Version: 2, Groups: group(1)}, jobs.CopyMissing},
		"no head":                   {"a", jobs.Copy{Sum: 8, Version: 1, Head: []byte(`[]`)}, jobs.CopyMissing},
		"a probe":                   {"a", jobs.Copy{Version: 1, Probe: true}, jobs.CopyKept},
		"a probe of more":           {"a", jobs.Copy{Version: 2, Probe: true}, jobs.CopyMissing},
		"another member":            {"c", jobs.Copy{Version: 2, Groups: group(1)}, jobs.CopyMissing},
		"a member of a lower claim": {"Z", jobs.Copy{Version: 2, Groups: group(1)}, jobs.CopyRivaled},
		"a whole one that is none":  {"a", jobs.Copy{Version: 1, Piece: 1, Head: []byte(`{}`)}, jobs.CopyRefused},
	} {
		c := jobs.NewCopies()
		first := whole
		if a := c.Take(epoch, "a", &first); a.State != jobs.CopyKept {
			t.Fatalf("the whole copy: %+v", a)
		}
		x.part.Job, x.part.Epoch, x.part.Sum = "j0000000001", 1, cmp.Or(x.part.Sum, 7)
		if a := c.Take(epoch, x.from, &x.part); a.State != x.want {
			t.Errorf("%s: %+v", what, a)
		}
		if j, err := c.Status(epoch, "b", "j0000000001"); err != nil || j.Succeeded < 1 {
			t.Errorf("%s: the copy of before is %+v, %v", what, j, err)
		}
	}
}

// TestRetriesCountOverATakeOver: an attempt that failed before it is one of the job's retries after it.
func TestRetriesCountOverATakeOver(t *testing.T) {
	m := newMany(t, 2)
	keeper := m.members[0]
	id := m.submitTo(keeper, 1, func(s *jobs.Spec) { s.Retries = 2 })
	heir := keeper.heirOf(id)
	fail := func() {
		for range 3 {
			m.now = m.now.Add(time.Second)
			for _, x := range m.members {
				if x.s != nil {
					x.look()
				}
				for _, y := range m.members {
					x.report(y)
				}
			}
		}
		for _, x := range m.members {
			if !x.lost {
				x.endOne(0, 1)
			}
			for _, y := range m.members {
				y.report(x)
			}
			if x.s != nil {
				x.commit()
				x.copyJobs(copyArrives)
				x.commit()
			}
		}
	}
	fail()
	fail()
	if j, _ := heir.s.Copies.Status(m.now, heir.id, id); j.Retried != 2 {
		t.Fatalf("the copy: %+v", j)
	}
	keeper.lose()
	for range 5 {
		fail()
	}
	if j, err := heir.s.Dispatcher.Status(m.now, id); err != nil || j.State != jobs.Failed || j.Retried != 2 {
		t.Errorf("%+v, %v", j, err)
	}
	before := heir.s.Dispatcher.Accounts(0)
	if s := ledgerOf(before); s.Attempts != 3 || s.Failed != 1 || s.Jobs != 1 || s.CoreUS == 0 {
		t.Errorf("the accounts of who took it over: %+v", before)
	}
	heir.crash()
	heir.start()
	if diff := gocmp.Diff(before, heir.s.Dispatcher.Accounts(0)); diff != "" {
		t.Errorf("a restart changes the accounts: %s", diff)
	}
}

// TestPurgedJobIsAccountedOnce: a keeper purges a job, and its heir does not hear of that and takes the job over. It drops
// the job when it hears of it.
func TestPurgedJobIsAccountedOnce(t *testing.T) {
	m := newMany(t, 2)
	keeper := m.members[0]
	id := m.submitTo(keeper, 1, nil)
	heir := keeper.heirOf(id)
	for range 10 {
		m.wholeRound()
	}
	keeper.s.Dispatcher.KeepFinished(0)
	keeper.commit()
	keeper.copyJobs(copyIsLost)
	m.setLink(keeper.place, heir.place, true)
	for range 10 {
		m.wholeRound()
	}
	if j, err := heir.s.Dispatcher.Status(m.now, id); err != nil || j.State != jobs.Succeeded {
		t.Fatalf("at its heir: %+v, %v", j, err)
	}
	m.setLink(keeper.place, heir.place, false)
	keeper.s.Dispatcher.ProbeHeir(heir.id) // as the buyer does when it hears the member again
	for range 10 {
		m.wholeRound()
	}
	all := ledgerOf(keeper.s.Dispatcher.Accounts(0))
	other := ledgerOf(heir.s.Dispatcher.Accounts(0))
	if all.Add(&other, 1); all.Jobs != 1 || all.Succeeded != 1 || all.Attempts != 1 {
		t.Errorf("the accounts of both have %+v", all)
	}
}

// TestOldDiskLosesNoResult: a keeper comes back with its disk of a while ago, and its heir, which has more, takes over.
func TestOldDiskLosesNoResult(t *testing.T) {
	for what, before := range map[string]bool{"from before the job": true, "from the middle of the job": false} {
		t.Run(what, func(t *testing.T) {
			m := newMany(t, 3)
			keeper := m.members[0]
			keeper.keepDisk()
			id := m.submitTo(keeper, 9, nil)
			m.wholeRound()
			if !before {
				keeper.keepDisk()
			}
			m.wholeRound()
			m.wholeRound()
			heir := keeper.heirOf(id)
			had := heir.copied(id)
			keeper.restoreDisk()
			for range 70 { // copies are confirmed once a minute
				m.now = m.now.Add(time.Second)
				for _, x := range m.members {
					x.look()
					x.copyJobs(copyArrives)
					x.commit()
				}
			}
			if had < 3 || heir.succeeded(id) < had || keeper.succeeded(id) >= 0 {
				t.Errorf("%d results before, %d at the heir, %d at the keeper", had, heir.succeeded(id),
					keeper.succeeded(id))
			}
		})
	}
}
