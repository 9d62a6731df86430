package batch_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/cluster"
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

func (olderMember) Claims(context.Context, cluster.WorkerID, []string) ([]jobs.Claim, error) {
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
