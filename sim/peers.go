package sim

import (
	"strings"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/market"
	"github.com/soukhq/souk/scheduler"
	"github.com/soukhq/souk/scheduler/auction"
	"github.com/soukhq/souk/scheduler/central"
	"github.com/soukhq/souk/scheduler/eagle"
	"github.com/soukhq/souk/scheduler/hawk"
	"github.com/soukhq/souk/scheduler/pigeon"
	"github.com/soukhq/souk/scheduler/sparrow"
)

// Schedulers lists the names that NewScheduler knows, ours first.
func Schedulers() []string {
	return []string{"market", "random", "per-task", "batch", "sparrow", "sparrow-cancel", "hawk", "eagle", "pigeon", "clwl", "dlwl", "fifo", "sjf", "srtf"}
}

// NewScheduler makes a scheduler by name. compat makes it behave as it does in Eagle's simulator where that is not as
// its paper says.
func NewScheduler(name string, fleet scheduler.Fleet, compat bool) (scheduler.Strategy, error) {
	switch name {
	case "random":
		return sparrow.NewSampling(fleet, sparrow.Random), nil
	case "per-task":
		return sparrow.NewSampling(fleet, sparrow.PerTask), nil
	case "batch":
		return sparrow.NewSampling(fleet, sparrow.Batch), nil
	case "sparrow":
		return sparrow.New(fleet, sparrow.Options{Replacement: compat}), nil
	case "sparrow-cancel":
		return sparrow.New(fleet, sparrow.Options{Replacement: compat, Cancel: true}), nil
	case "hawk":
		return hawk.New(fleet, hawk.Options{Free: compat}), nil
	case "eagle":
		return eagle.New(fleet, eagle.Options{}), nil
	case "market":
		return auction.New(fleet, market.DefaultAuction(fleet.Workers*fleet.Slots), auction.Buyers), nil
	case "pigeon":
		return pigeon.New(fleet, pigeon.Options{}), nil
	case "clwl":
		return central.NewLeastWait(fleet, 0), nil
	case "dlwl":
		return central.NewLeastWait(fleet, 8*scheduler.Second), nil
	}
	if q, ok := centralQueue(name, fleet); ok {
		return q, nil
	}
	return nil, unknownScheduler(name)
}

func unknownScheduler(name string) error {
	return fault.New(fault.Invalid, "scheduler", "no scheduler is named %q; there are %s", name, strings.Join(Schedulers(), ", "))
}
