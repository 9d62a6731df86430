package batch_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/store/journal/mem"
	"github.com/soukhq/souk/worker/batch"
)

// olderMember is the only other member, of a release that has no calls about copies of jobs.
type olderMember struct{}

func (olderMember) Heirs() []cluster.WorkerID  { return []cluster.WorkerID{"old"} }
func (olderMember) Heard() []cluster.WorkerID  { return []cluster.WorkerID{"old"} }
func (olderMember) Gone(cluster.WorkerID) bool { return false }

func (olderMember) Copy(context.Context, cluster.WorkerID, []jobs.Copy) ([]jobs.CopyAnswer, error) {
	return nil, fault.New(fault.NotFound, "route", "there is no such call")
}

func (olderMember) Claims(context.Context, cluster.WorkerID, []string, bool) ([]jobs.Claim, error) {
	return nil, fault.New(fault.NotFound, "route", "there is no such call")
}

// TestMemberOfThePreviousReleaseIsNoHeir: a member that has no calls about copies is given up as an heir at once, so that
// a submission does not wait for it.
func TestMemberOfThePreviousReleaseIsNoHeir(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := batch.OpenBuyer(batch.BuyerOptions{Member: "new", Members: olderMember{}, Copies: mem.New(),
			Journal: mem.New(), Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }()
		waittest.Pass(2 * time.Second) // it has looked at the members
		begin := time.Now()
		if _, err := b.Submit(ctx, jobs.ID(1), spec(1, "true")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("the submission was answered after %v", took)
		}
		if j, err := b.Status(ctx, jobs.ID(1)); err != nil || j.Heir != "" {
			t.Errorf("the heir is %q, %v", j.Heir, err)
		}
		cancel()
		<-done
		_ = b.Close()
	})
}

// muteMembers are many members that are heard and do not answer, and one that is gone in the end.
type muteMembers struct{ gone atomic.Bool }

func (*muteMembers) Heirs() []cluster.WorkerID { return nil }
func (*muteMembers) Heard() []cluster.WorkerID { return nil }

func (m *muteMembers) Gone(id cluster.WorkerID) bool { return id == "gone" && m.gone.Load() }

func (*muteMembers) Copy(context.Context, cluster.WorkerID, []jobs.Copy) ([]jobs.CopyAnswer, error) {
	return nil, fault.New(fault.Unavailable, fault.CodeLost, "it does not answer")
}

func (*muteMembers) Claims(ctx context.Context, _ cluster.WorkerID, _ []string, _ bool) ([]jobs.Claim, error) {
	<-ctx.Done()
	return nil, fault.New(fault.Unavailable, fault.CodeLost, "it does not answer")
}

// copyOf returns the whole copy of a job that a member keeps.
func copyOf(t *testing.T, id string) []jobs.Copy {
	t.Helper()
	d := jobs.NewDispatcher(auction.DefaultRules(8))
	d.Heirs(time.Now(), []cluster.WorkerID{"heir"}, func(cluster.WorkerID) bool { return false })
	if err := d.Submit(time.Now(), id, spec(1, "true")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	d.Saved(time.Now())
	d.Heirs(time.Now(), []cluster.WorkerID{"heir"}, func(cluster.WorkerID) bool { return false })
	for _, b := range d.Copies(time.Now()) {
		return b.List
	}
	t.Fatal("nothing is copied")
	return nil
}

// TestSilentKeepersDelayNoTakeover: a member has copies of the jobs of many members that do not answer, and are not gone.
// The job of one that is gone is taken over all the same, soon.
func TestSilentKeepersDelayNoTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &muteMembers{}
		b, err := batch.OpenBuyer(batch.BuyerOptions{Member: "heir", Members: m, Copies: mem.New(), Journal: mem.New(),
			Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }()
		for i := range 20 {
			keeper := cluster.WorkerID(fmt.Sprintf("m%d", i))
			if i == 0 {
				keeper = "gone"
			}
			answers, err := b.TakeCopies(ctx, keeper, copyOf(t, jobs.ID(uint64(i))))
			if err != nil || len(answers) != 1 || answers[0].State != jobs.CopyKept {
				t.Fatalf("%+v, %v", answers, err)
			}
		}
		waittest.Pass(61 * time.Second) // they are being asked whether the copies are up to date
		m.gone.Store(true)
		waittest.Pass(6 * time.Second)
		if j, err := b.Status(ctx, jobs.ID(0)); err != nil || j.Epoch != 1 {
			t.Errorf("the job of the member that is gone: %+v, %v", j, err)
		}
		cancel()
		<-done
		_ = b.Close()
	})
}
