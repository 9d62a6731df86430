package broker

import (
	"context"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/machine"
)

// capped are the funds of one namespace with a cap of a core, of which it occupies 0.3.
type capped struct{ Funds }

func (capped) Account(context.Context, string) (string, *quota.Account, error) {
	return "ml", &quota.Account{Unlimited: true, Used: cluster.Resources{CPU: 300}, Max: quota.Caps{"cpu": 1}}, nil
}

// TestQuotaRefusalCountsOtherWorkersUsage: a refusal counts what all workers report of the namespace, and says how
// little is left and how much was asked for.
func TestQuotaRefusalCountsOtherWorkersUsage(t *testing.T) {
	b := &Broker{funds: capped{}}
	for occupied, want := range map[int64]string{0: "", 550: "",
		560: "0.15 cores of namespace ml, 0.14 cores left, as at most 1 core are allowed"} {
		o := &Order{Purchases: []*Purchase{{Launch: &machine.Launch{}}}, occupied: cluster.Resources{CPU: occupied}}
		req := &o.Purchases[0].Request
		req.Resources = cluster.Resources{CPU: 150}
		if err := b.addFunds(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		got := ""
		if !req.Funds.Enough() {
			wanted, left := req.Funds.Clause()
			got = wanted + ", " + left
		}
		if got != want {
			t.Errorf("%d occupied: %q", occupied, got)
		}
	}
}
