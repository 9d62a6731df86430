package jobs_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/jobs"
)

// TestJobsHaveOneKeeperAfterAll: members crash, are lost for good, come back with an old disk and are cut from each other, and messages between them are
// lost, in any order. Once all is well again, each job that was answered is kept by one member, each of its tasks has one
// result. It is the one that was recorded first, unless members were cut from each other, or those with the newest copies
// were down all at once.
func TestJobsHaveOneKeeperAfterAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 4).Draw(t, "members")
		m := newMany(t, n)
		cuts := rapid.Bool().Draw(t, "cuts")
		place := rapid.IntRange(0, n-1)
		lost := false
		up := func() *memberModel {
			x := m.members[place.Draw(t, "member")]
			if x.s == nil {
				t.Skip("it is down")
			}
			return x
		}
		t.Repeat(map[string]func(*rapid.T){
			"submit": func(t *rapid.T) {
				x := up()
				id := jobs.ID(uint64(len(m.answered) + 1))
				last := rapid.IntRange(1, 6).Draw(t, "n")
				spec := jobs.Spec{App: "app", Command: []string{"true"}, First: 1, Last: last, Retries: 1}
				if err := spec.Settle(); err != nil {
					t.Fatal(err)
				}
				if err := x.s.Dispatcher.Submit(m.now, id, spec); err != nil {
					t.Fatal(err)
				}
				m.answered[id] = false
				x.settle()
			},
			"cancel": func(t *rapid.T) {
				x := up()
				list := x.s.Dispatcher.List(m.now, "")
				if rapid.IntRange(0, 4).Draw(t, "really") == 0 && len(list) > 0 {
					_ = x.s.Dispatcher.Cancel(m.now, list[0].ID, "it was cancelled")
					x.settle()
				}
			},
			"report": func(t *rapid.T) { up().report(m.members[place.Draw(t, "worker")]) },
			"end": func(t *rapid.T) {
				if x := m.members[place.Draw(t, "worker")]; !x.lost {
					codes := rapid.SampledFrom([]int{0, 0, 0, 1, -1})
					x.endOne(rapid.IntRange(0, 2).Draw(t, "which"), codes.Draw(t, "code"))
				}
			},
			"commit": func(*rapid.T) { up().commit() },
			"work":   func(*rapid.T) { m.workWithoutCopies() },
			"work2":  func(*rapid.T) { m.workWithoutCopies() },
			"copy":   func(t *rapid.T) { up().copyJobs(rapid.IntRange(0, copyFates-1).Draw(t, "fate")) },
			"copy2":  func(*rapid.T) { up().copyJobs(copyArrives) },
			"look":   func(*rapid.T) { up().look() },
			"round":  func(*rapid.T) { m.wholeRound() },
			"crash":  func(*rapid.T) { up().crash() },
			"restart": func(*rapid.T) {
				if x := m.members[place.Draw(t, "member")]; x.s == nil && !x.lost {
					x.start()
				}
			},
			"lose": func(t *rapid.T) {
				if x := up(); !lost && rapid.Bool().Draw(t, "really") {
					lost = true
					x.lose()
				}
			},
			"keep disk": func(*rapid.T) { up().keepDisk() },
			"old disk": func(t *rapid.T) {
				if x := up(); !lost && x.old[0] != nil {
					lost = true
					x.restoreDisk()
				}
			},
			"cut": func(t *rapid.T) {
				if a, b := place.Draw(t, "a"), place.Draw(t, "b"); cuts && a != b {
					m.setLink(a, b, rapid.Bool().Draw(t, "cut"))
				}
			},
			"wait": func(t *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.IntRange(1, 5000).Draw(t, "ms")) * time.Millisecond)
			},
		})
		m.mend()
		m.checkEnd()
	})
}

// mend makes all well again, and lets the tasks end.
func (m *many) mend() {
	for k := range m.cut {
		m.cut[k] = false
	}
	for _, x := range m.members {
		if x.s == nil && !x.lost {
			x.start()
		}
	}
	for range 200 {
		m.wholeRound()
	}
}

func (m *many) checkEnd() {
	m.checkAccounts()
	for id, answered := range m.answered {
		kept := 0
		var at *memberModel
		var j jobs.Job
		for _, x := range m.members {
			if x.s == nil {
				continue
			}
			if s, err := x.s.Dispatcher.Status(m.now, id); err == nil {
				kept, at, j = kept+1, x, s
			}
		}
		switch {
		case kept > 1:
			m.t.Fatalf("job %s is kept by %d members", id, kept)
		case kept == 0 && (!answered || m.alone[id]):
			continue
		case kept == 0:
			m.t.Fatalf("job %s, which was answered, is kept by none", id)
		}
		if !j.State.Final() || j.Done() != j.Tasks {
			m.t.Fatalf("job %s at %s has not ended: %+v", id, at.id, j)
		}
		list, _, err := at.s.Dispatcher.Tasks(m.now, id, jobs.TaskQuery{Limit: 100})
		if err != nil {
			m.t.Fatal(err)
		}
		for _, x := range list {
			l, was := m.recorded[fmt.Sprint(id, "/", x.Index)]
			if !was || m.cuts || m.alone[id] || m.stale[id] || j.Why != "" {
				continue
			}
			r, _, _, err := at.s.Dispatcher.Output(id, x.Index)
			if err != nil || r == nil || r.Attempt != l.Attempt {
				m.t.Fatalf("task %d of job %s was recorded as attempt %d, and is %+v: %v", x.Index, id, l.Attempt, r,
					err)
			}
		}
	}
}
