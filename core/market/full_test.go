package market_test

import (
	"fmt"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// TestWorkerAtItsMachineLimitRefusesMore: a worker at its limit of machines refuses every further one, whether it
// starts, evicts or is only created. Quote, hold and grant agree with its record; other requests are not refused.
func TestWorkerAtItsMachineLimitRefusesMore(t *testing.T) {
	fill := func(n int, up bool, tenant market.Tenant) func(*market.Seller) {
		return func(s *market.Seller) {
			for i := range n {
				id := fmt.Sprint("m", i)
				s.Restore(id, "a", cluster.Resources{}, up)
				s.Describe(id, tenant)
			}
		}
	}
	other := request("other", cluster.Resources{})
	other.App, other.Namespace = "b", "elsewhere"
	sibling := request("sibling", cluster.Resources{})
	sibling.App = "b"
	for _, c := range []struct {
		name    string
		fill    func(*market.Seller)
		refused []placement.Request
		taken   []placement.Request
	}{
		{"all machines", fill(market.MaxMachines-1, true, market.Tenant{}),
			[]placement.Request{request("own", cluster.Resources{}), sibling, other}, nil},
		{"one fewer", fill(market.MaxMachines-2, true, market.Tenant{}), nil, []placement.Request{other}},
		{"unstarted of an app", fill(market.MaxAppUnstarted, false, market.Tenant{}),
			[]placement.Request{request("own", cluster.Resources{})}, []placement.Request{sibling, other}},
		{"unstarted of a namespace", fill(market.MaxNamespaceUnstarted, false, market.Tenant{}),
			[]placement.Request{request("own", cluster.Resources{}), sibling}, []placement.Request{other}},
		{"large configs of an app", fill(20, false, market.Tenant{Bytes: market.MaxAppUnstartedBytes/20 + 1}),
			[]placement.Request{request("own", cluster.Resources{})}, []placement.Request{sibling, other}},
		{"large configs of a namespace", fill(20, false,
			market.Tenant{Bytes: market.MaxNamespaceUnstartedBytes/20 + 1}),
			[]placement.Request{sibling}, []placement.Request{other}},
		{"large configs of all", fill(20, false, market.Tenant{Bytes: market.MaxUnstartedBytes/20 + 1}),
			[]placement.Request{other}, nil},
		{"large configs that are started", fill(20, true, market.Tenant{Bytes: market.MaxUnstartedBytes}), nil,
			[]placement.Request{request("own", cluster.Resources{})}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSeller(cluster.Resources{CPU: 1000})
			fillCPU(t, s)
			c.fill(s)
			for _, r := range c.refused {
				mustBeFull(t, s, r)
			}
			if err := s.Grant(epoch, request("m7", cluster.Resources{}), "", false); err != nil {
				t.Errorf("a machine that is there is refused: %v", err)
			}
			if err := s.SetUp(epoch, "m7", true); err != nil {
				t.Errorf("a machine that is there is not started: %v", err)
			}
			if err := s.GrantTask(epoch, request("task", cluster.Resources{}), market.Tenant{}); err != nil {
				t.Errorf("a task is refused: %v", err)
			}
			for _, r := range c.taken {
				if err := s.Grant(epoch, r, "", true); err != nil {
					t.Errorf("%s of app %s: %v", r.Machine, r.App, err)
				}
				s.Free(r.Machine)
			}
			for i := range market.MaxMachines {
				s.Free(fmt.Sprint("m", i))
			}
			if full := s.Record(epoch).Full; full != nil {
				t.Errorf("when all are over it is full of %v", full)
			}
			for _, r := range c.refused[:min(1, len(c.refused))] {
				if err := s.Grant(epoch, r, "", true); err != nil {
					t.Errorf("when some are over: %v", err)
				}
			}
		})
	}
	if market.MaxMachines > registry.MaxRecords*3/4 {
		t.Errorf("a worker takes %d machines, and can announce %d records", market.MaxMachines, registry.MaxRecords)
	}
}

// fillCPU gives a machine of low rank all CPU.
func fillCPU(t *testing.T, s *market.Seller) {
	t.Helper()
	if err := s.Grant(epoch, ranked("low", "low", machine.BandFree, 1000), "", true); err != nil {
		t.Fatal(err)
	}
}

// mustBeFull asks a seller in every way for a machine that it must refuse as one too many.
func mustBeFull(t *testing.T, s *market.Seller, r placement.Request) {
	t.Helper()
	full := func(how string, v placement.Verdict) {
		t.Helper()
		if v.Fits || v.Never || len(v.Failing) == 0 || v.Failing[0].Code != placement.CodeMachines {
			t.Errorf("%s for %s of app %s says %+v", how, r.Machine, r.App, v)
		}
	}
	refused := func(how string, err error) {
		t.Helper()
		refusal, is := fault.Detail[market.Refusal](err)
		if !is || fault.As(err).Kind != fault.Exhausted {
			t.Errorf("%s for %s of app %s: %v", how, r.Machine, r.App, err)
			return
		}
		full(how, refusal.Verdict)
	}
	full("the record", placement.Judge(r, s.Record(epoch)))
	full("a quote", s.Ask(epoch, r).Verdict)
	refused("a grant", s.Grant(epoch, r, "", false))
	_, err := s.Hold(epoch, "somebody", r, "token", market.MaxHoldTTL)
	refused("a hold", err)
	// It would find its room among machines of lower rank, but not a place.
	r.Scheduling.Band, r.Resources.CPU = machine.BandService, 1000
	_, err = s.Claim(epoch, r, "")
	refused("a claim", err)
}
