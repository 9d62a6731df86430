package jobs_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/accounts"
	"github.com/soukhq/souk/core/jobs"
)

// ledgerOf adds up accounts.
func ledgerOf(list []accounts.Entry) (s accounts.Sums) {
	for i := range list {
		s.Add(&list[i].Sums, 1)
	}
	return s
}

// TestAccountsCountEachResultOnce: with any order of exits, cancels, crashes and purges, the accounts have each result
// that was ever written to the journal once, and a restart changes none of them.
func TestAccountsCountEachResultOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 2, 3)
		kept := rapid.IntRange(0, 2).Draw(t, "kept")
		w.dispatcher.KeepFinished(kept)
		var want accounts.Sums // of what is in the journal
		written := map[string]bool{}
		flush := func() {
			w.flush()()
			for key, rec := range w.journal {
				if written[key] || rec.Bucket == "account" {
					continue
				}
				written[key] = true
				addRecord(t, &want, rec.Bucket, rec.Value)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"submit": func(t *rapid.T) {
				id := jobs.ID(uint64(len(w.ids) + 1))
				s := jobs.Spec{App: "app", Command: []string{"true"}, Last: rapid.IntRange(0, 4).Draw(t, "last"),
					CPUKind: "performance", CPUs: 1, MemoryMB: 64, Retries: rapid.IntRange(0, 1).Draw(t, "retries"),
					Namespace: rapid.SampledFrom([]string{"", "ml"}).Draw(t, "namespace")}
				if err := w.dispatcher.Submit(w.now, id, settled(t, s)); err != nil {
					t.Fatal(err)
				}
				w.ids = append(w.ids, id)
				flush()
			},
			"cancel": func(t *rapid.T) {
				if len(w.ids) > 0 {
					_ = w.dispatcher.Cancel(w.now, rapid.SampledFrom(w.ids).Draw(t, "job"), "the user wanted it")
				}
			},
			"end": func(t *rapid.T) {
				if all := w.lives(); len(all) > 0 {
					rapid.SampledFrom(all).Draw(t, "life")(rapid.SampledFrom([]int{0, 0, 1, -1, evictedCode}).Draw(t,
						"code"))
				}
			},
			"flush": func(*rapid.T) { flush() },
			"crash": func(*rapid.T) {
				w.crash(3)
				w.dispatcher.KeepFinished(kept)
			},
			"time": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "hours")) * time.Hour)
			},
			"": func(*rapid.T) { w.obey() },
		})
		for range 3 { // the last one only purges
			flush()
			w.obey()
		}
		list := w.dispatcher.Accounts(0)
		got := ledgerOf(list)
		if got.Cancelled < want.Cancelled { // tasks that were cancelled before they ran have no result
			t.Fatalf("%d tasks were cancelled, %d of them with a result", got.Cancelled, want.Cancelled)
		}
		got.Cancelled, got.Waited, got.WaitedUS = want.Cancelled, 0, 0
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("the accounts (+) are not what is in the journal (-): %s", diff)
		}
		w.crash(3)
		if diff := cmp.Diff(list, w.dispatcher.Accounts(0)); diff != "" {
			t.Fatalf("a restart changes the accounts: %s", diff)
		}
	})
}

// addRecord adds what a record of the journal accounts for: a job, or results of tasks with one core and 64 MiB.
func addRecord(t fataler, s *accounts.Sums, bucket string, value []byte) {
	if bucket == "job" {
		s.Jobs++
		return
	}
	var results []jobs.Result
	if err := json.Unmarshal(value, &results); err != nil {
		t.Fatal(err)
	}
	for i := range results {
		r := &results[i]
		s.Attempts++
		took := int64(0)
		if r.Began > 0 {
			took = max(0, r.Ended-r.Began)
		}
		s.CoreUS += took
		s.MiBMS += 64 * (took / 1000)
		s.CPUUS += r.UsedCPU
		switch {
		case r.Retry:
		case r.Dropped:
			s.Cancelled++
		case r.Code == 0 && r.Error == "" && !r.Lost && r.Evicted == "":
			s.Succeeded++
		default:
			s.Failed++
		}
	}
}

// checkAccounts: the accounts of all members together have each task that has ended once.
func (m *many) checkAccounts() {
	var got, want accounts.Sums
	for _, x := range m.members {
		if x.s == nil {
			continue
		}
		s := ledgerOf(x.s.Dispatcher.Accounts(0))
		got.Add(&s, 1)
		for _, j := range x.s.Dispatcher.List(m.now, "") {
			want.Add(&accounts.Sums{Jobs: 1, Succeeded: int64(j.Succeeded), Failed: int64(j.Failed),
				Cancelled: int64(j.Cancelled)}, 1)
		}
	}
	got = accounts.Sums{Jobs: got.Jobs, Succeeded: got.Succeeded, Failed: got.Failed, Cancelled: got.Cancelled}
	if got != want {
		m.t.Fatalf("the accounts of all members have %+v, and their jobs %+v", got, want)
	}
}

// TestAccountsAreByOwnerNamespaceAndDay: an attempt counts on the day on which it ended, for the owner of its job.
func TestAccountsAreByOwnerNamespaceAndDay(t *testing.T) {
	scene(t, 1, 4, func(t *rapid.T, w *world) {
		w.now = time.Date(2026, 11, 21, 23, 0, 0, 0, time.UTC)
		s := jobs.Spec{App: "app", Command: []string{"true"}, CPUKind: "performance", CPUs: 2, MemoryMB: 512,
			Namespace: "ml", Owner: jobs.Owner{By: "ci"}}
		w.submit(1, settled(t, s))
		w.now = w.now.Add(2 * time.Hour)
		w.lives()[0](0)
		w.obey()
		w.flush()()
		list := w.dispatcher.Accounts(0)
		days := make([]string, 0, 2)
		for _, e := range list {
			if e.Owner != "ci" || e.Namespace != "ml" || e.Unix {
				t.Fatalf("an account of another: %+v", e)
			}
			days = append(days, e.Day.String())
		}
		if strings.Join(days, " ") != "2026-11-21 2026-11-22" {
			t.Fatalf("the days are %v", days)
		}
		if a, b := list[0], list[1]; a.Jobs != 1 || a.Waited != 1 || a.Attempts != 0 || b.Succeeded != 1 ||
			b.CoreUS != 2000 || b.MiBMS != 512 || b.WaitedUS != 0 || a.WaitedUS < 2*3600e6 {
			t.Fatalf("the accounts are %+v", list)
		}
		if n := len(w.dispatcher.Accounts(list[1].Day)); n != 1 {
			t.Fatalf("%d accounts are of the second day or later", n)
		}
	})
}
