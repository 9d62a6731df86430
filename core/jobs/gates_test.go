package jobs_test

import (
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

// TestOutcomesThatAnotherMemberTells: dependencies on a job of another member, by what that member tells of it.
func TestOutcomesThatAnotherMemberTells(t *testing.T) {
	const far = "j00000000ff"
	indices, _, err := jobs.ParseArray("1-3")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		kind  jobs.DependencyKind
		told  []jobs.Outcome
		state string // "waiting" or "cancelled" tasks, or "ready" to be given out
	}{
		"nothing":               {jobs.AfterOK, nil, "3 waiting"},
		"runs":                  {jobs.AfterOK, []jobs.Outcome{{}}, "3 waiting"},
		"has succeeded":         {jobs.AfterOK, []jobs.Outcome{{Ended: true, Succeeded: true}}, "3 ready"},
		"has failed":            {jobs.AfterOK, []jobs.Outcome{{Ended: true}}, "3 cancelled"},
		"has failed as wanted":  {jobs.AfterFail, []jobs.Outcome{{Ended: true}}, "3 ready"},
		"has succeeded in vain": {jobs.AfterFail, []jobs.Outcome{{Ended: true, Succeeded: true}}, "3 cancelled"},
		"has ended":             {jobs.AfterAny, []jobs.Outcome{{Ended: true}}, "3 ready"},
		"is not known":          {jobs.AfterAny, []jobs.Outcome{{Why: "nobody knows it"}}, "3 cancelled"},
		"a task has succeeded": {jobs.AfterCorr, []jobs.Outcome{{HasDone: true, Done: jobs.Indices{{First: 2,
			Last: 2}}}}, "1 ready"},
		"all tasks have":        {jobs.AfterCorr, []jobs.Outcome{{Ended: true, Succeeded: true}}, "3 ready"},
		"was asked for another": {jobs.AfterCorr, []jobs.Outcome{{Ended: true}}, "3 waiting"},
		"one task, and has failed": {jobs.AfterCorr, []jobs.Outcome{{HasDone: true, Ended: true,
			Done: jobs.Indices{{First: 1, Last: 1}}}}, "1 ready"},
		"first runs": {jobs.AfterAny, []jobs.Outcome{{}, {Ended: true}}, "3 ready"},
	} {
		t.Run(name, func(t *testing.T) {
			d := jobs.NewDispatcher(auction.DefaultRules(8))
			d.Open(epoch)
			if err := d.Submit(epoch, jobs.ID(1), settled(t, jobs.Spec{First: 1, Last: 3,
				Ordering: jobs.Ordering{After: []jobs.Dependency{{Kind: c.kind, Job: far}}}})); err != nil {
				t.Fatal(err)
			}
			save(t, d)
			if all := d.Awaited(); len(all) != 1 || all[far] != (c.kind == jobs.AfterCorr) {
				t.Errorf("awaited are %v", all)
			}
			for _, o := range c.told {
				o.Job, o.Indices = far, indices
				d.Learn(epoch, &o)
			}
			save(t, d)
			d.Report(epoch.Add(time.Second), jobs.Report{Worker: "w", Record: twoCPUs("w"), Full: true, Free: 4})
			ready := 0
			for _, o := range d.Take().Orders {
				if o.Bulletin != nil && len(o.Bulletin.Bids) > 0 {
					ready = o.Bulletin.Bids[0].Quota
				}
			}
			j, err := d.Status(epoch, jobs.ID(1))
			if err != nil {
				t.Fatal(err)
			}
			var n int
			switch _, what, _ := strings.Cut(c.state, " "); what {
			case "ready":
				n = min(ready, j.Waiting) // a quota may be larger where there is little room
			case "waiting":
				if n = j.Waiting; ready > 0 {
					t.Errorf("%d are bid", ready)
				}
			case "cancelled":
				n = j.Cancelled
			}
			if !strings.HasPrefix(c.state, string(rune('0'+n))) {
				t.Errorf("%d, want %s: %d are bid, %+v", n, c.state, ready, j)
			}
		})
	}
}

// save has what a dispatcher knows durable.
func save(t *testing.T, d *jobs.Dispatcher) {
	t.Helper()
	if _, err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	d.Saved(epoch)
}

func TestOrderingsThatCannotBeAreRefused(t *testing.T) {
	d := jobs.NewDispatcher(auction.DefaultRules(8))
	for name, o := range map[string]jobs.Ordering{
		"the deadline":      {Deadline: epoch},
		"by the deadline":   {Deadline: epoch.Add(time.Second)},
		"cannot end by":     {Begin: epoch.Add(time.Hour), Deadline: epoch.Add(time.Hour + time.Second)},
		"cannot wait for i": {After: []jobs.Dependency{{Kind: jobs.AfterAny, Job: jobs.ID(1)}}},
		"as ok, any, fail":  {After: []jobs.Dependency{{Kind: "soon", Job: jobs.ID(2)}}},
		"neither":           {After: []jobs.Dependency{{Kind: jobs.AfterOK, Job: "no name"}}},
		"known by their":    {After: []jobs.Dependency{{Kind: jobs.AfterOK, Job: "name"}}},
		"is to cancel or":   {Unmet: "dance"},
		"at most 100 other": {After: make([]jobs.Dependency, jobs.MaxDependencies+1)},
	} {
		s := jobs.Spec{App: "app", Command: []string{"true"}, TimeoutMS: 10_000, Ordering: o}
		err := s.Settle()
		if err == nil {
			err = d.Submit(epoch, jobs.ID(1), s)
		}
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
