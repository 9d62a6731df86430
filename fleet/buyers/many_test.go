package buyers

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
)

// TestManyMembersAreSearched: of a thousand members the one that has the job is found, and the memory of places is
// bounded.
func TestManyMembersAreSearched(t *testing.T) {
	m, ids := manyMembers(1000)
	for _, n := range []int{0, 1234, 2999} {
		if j, _, err := m.Status(t.Context(), jobs.ID(uint64(n))); err != nil || j.Member != ids[n/3] {
			t.Errorf("%+v, %v", j, err)
		}
	}
	for i := range maxRemembered + 10 {
		m.known.remember(fmt.Sprint(i), "b")
	}
	if n := len(m.known.at); n != maxRemembered {
		t.Errorf("%d places are remembered", n)
	}
	if at, known := m.known.of(fmt.Sprint(maxRemembered + 9)); !known || at != "b" {
		t.Error("the last one is not remembered")
	}
}

// manyMembers is a market of n others with three jobs each.
func manyMembers(n int) (*market, []cluster.WorkerID) {
	ids := make([]cluster.WorkerID, n)
	for i := range ids {
		ids[i] = cluster.WorkerID(fmt.Sprint("w", i))
	}
	m := newMarket(ids...)
	for i, id := range ids {
		for k := range 3 {
			m.others[id].jobs = append(m.others[id].jobs, aJob(jobs.ID(uint64(3*i+k)), fmt.Sprint("job-", k), i+k))
		}
	}
	return m, ids
}

func BenchmarkListOf1000Members(b *testing.B) {
	m, _ := manyMembers(1000)
	for b.Loop() {
		list, silent, err := m.List(b.Context(), "", true)
		if err != nil || len(list) != 3000 || len(silent) > 0 {
			b.Fatal(len(list), silent, err)
		}
	}
}

func BenchmarkStatusOf1000Members(b *testing.B) {
	m, _ := manyMembers(1000)
	for name, forget := range map[string]bool{"remembered": false, "searched": true} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if forget {
					m.known.forget(jobs.ID(1500))
				}
				if j, _, err := m.Status(b.Context(), jobs.ID(1500)); err != nil || j.Member != "w500" {
					b.Fatal(j, err)
				}
			}
		})
	}
}

// TestRequestsOfACall counts what each question costs in requests to others, of ten.
func TestRequestsOfACall(t *testing.T) {
	m, ids := manyMembers(10)
	count := func(f func()) (n int) {
		for _, o := range m.others {
			o.heard()
		}
		f()
		for _, o := range m.others {
			n += len(o.heard())
		}
		return n
	}
	status := func(ref string) func() {
		return func() {
			if _, _, err := m.Status(t.Context(), ref); err != nil {
				t.Error(err)
			}
		}
	}
	cancelled := func(ref string) func() {
		return func() {
			if _, err := m.Cancel(t.Context(), ref); err != nil {
				t.Error(err)
			}
		}
	}
	id := jobs.ID(7)
	got := map[string]int{"name": count(status("job-1"))}
	m.known = whereabouts{}
	first := count(status(id)) // those after the one that has it may not be asked any more
	got["remembered id"] = count(status(id))
	got["cancel of a remembered id"] = count(cancelled(id))
	got["cancel of a name"] = count(cancelled("job-1"))
	got["list"] = count(func() {
		if _, _, err := m.List(t.Context(), "", false); err != nil {
			t.Error(err)
		}
	})
	want := map[string]int{"name": 10, "remembered id": 1, "cancel of a remembered id": 1, "cancel of a name": 11,
		"list": 10}
	if d := cmp.Diff(want, got); d != "" || first < 1 || first > len(ids) {
		t.Errorf("%s; a new id costs %d", d, first)
	}
}
