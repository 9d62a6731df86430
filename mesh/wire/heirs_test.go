package wire

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

// heirStub remembers what it was sent, and answers with a rival's claim.
type heirStub struct {
	from cluster.WorkerID
	list []jobs.Copy
	ids  []string
}

var rivalsClaim = jobs.Claim{Job: "j0123456789", Epoch: 7, By: "c", Heir: "d"}

func (k *heirStub) TakeCopies(_ context.Context, keeper cluster.WorkerID, list []jobs.Copy) ([]jobs.CopyAnswer,
	error) {
	k.from, k.list = keeper, list
	return []jobs.CopyAnswer{{Job: list[0].Job, State: jobs.CopyRivaled, Rival: &rivalsClaim}}, nil
}

func (k *heirStub) Claims(_ context.Context, by cluster.WorkerID, ids []string, started bool) ([]jobs.Claim, error) {
	if k.ids = ids; by != "g1" || !started {
		return nil, nil
	}
	return []jobs.Claim{rivalsClaim}, nil
}

// someCopy is a part of a job with all fields that travel.
func someCopy() jobs.Copy {
	r := jobs.Result{Index: 4, Attempt: jobs.NewAttempt(2, 3), Code: 1, Error: "it failed", Worker: "w", Began: 5,
		Ended: 6, Offset: 7, Bytes: 3, OutputAt: "a", Retry: true}
	return jobs.Copy{Job: "j0123456789", Epoch: 2, Head: []byte(`{"spec":{}}`), Sum: 9, Version: 3,
		Groups: [][]jobs.Result{{r}, {r, r}}, Outputs: [][]byte{[]byte("out"), nil, []byte("more")}, Namespace: "n",
		Piece: 2, More: true, Merge: true}
}

// TestCopiesTravelWhole, and the receiver is told which member sent them by its certificate.
func TestCopiesTravelWhole(t *testing.T) {
	c, k := newCast(t, time.Now()), &heirStub{}
	w := c.worker(t, "g1", c.serve(t, "w1", Options{Worker: newStub(), Heirs: k}, nil), nil)
	answers, err := w.CopyJobs(t.Context(), []jobs.Copy{someCopy()})
	want := []jobs.CopyAnswer{{Job: "j0123456789", State: jobs.CopyRivaled, Rival: &rivalsClaim}}
	if d := cmp.Diff(want, answers); d != "" || err != nil {
		t.Errorf("%s, %v", d, err)
	}
	if d := cmp.Diff([]jobs.Copy{someCopy()}, k.list); d != "" || k.from != "g1" {
		t.Errorf("from %s: %s", k.from, d)
	}
	claims, err := w.JobClaims(t.Context(), []string{"j0123456789"}, true)
	if d := cmp.Diff([]jobs.Claim{rivalsClaim}, claims); d != "" || err != nil || len(k.ids) != 1 {
		t.Errorf("%s, %v", d, err)
	}
}

// TestBadCopiesReachNoHeir: each is checked before anything is taken.
func TestBadCopiesReachNoHeir(t *testing.T) {
	c, k := newCast(t, time.Now()), &heirStub{}
	w := c.worker(t, "g1", c.serve(t, "w1", Options{Worker: newStub(), Heirs: k}, nil), nil)
	for what, spoil := range map[string]func(x *jobs.Copy){
		"no id":             func(x *jobs.Copy) { x.Job = "../etc" },
		"an epoch below 0":  func(x *jobs.Copy) { x.Epoch = -1 },
		"an epoch too high": func(x *jobs.Copy) { x.Epoch = jobs.MaxEpoch + 1 },
		"a piece below 0":   func(x *jobs.Copy) { x.Piece = -1 },
		"too few groups":    func(x *jobs.Copy) { x.Piece, x.Version = 0, 1 },
		"an index below 0":  func(x *jobs.Copy) { x.Groups[1][1].Index = -1 },
		"no attempt":        func(x *jobs.Copy) { x.Groups[0][0].Attempt = jobs.NewAttempt(2, 0) },
		"an attempt of an epoch too high": func(x *jobs.Copy) {
			x.Groups[0][0].Attempt = jobs.NewAttempt(jobs.MaxEpoch+1, 1)
		},
	} {
		x := someCopy()
		spoil(&x)
		if _, err := w.CopyJobs(t.Context(), []jobs.Copy{x}); !fault.Is(err, fault.Invalid) || k.list != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := w.JobClaims(t.Context(), []string{"x"}, false); !fault.Is(err, fault.Invalid) || k.ids != nil {
		t.Errorf("claims of what is no job: %v", err)
	}
}
