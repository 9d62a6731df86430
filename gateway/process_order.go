package gateway

import (
	"cmp"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// processOrder reads ps's sort_by and order; nil is the worker's own order.
func processOrder(by, order string) (func(a, b machine.Process) int, error) {
	var less func(a, b machine.Process) int
	switch by {
	case "":
	case "pid":
		less = func(a, b machine.Process) int { return cmp.Compare(a.PID, b.PID) }
	case "stime":
		less = func(a, b machine.Process) int { return cmp.Compare(a.Stime, b.Stime) }
	case "rtime":
		less = func(a, b machine.Process) int { return cmp.Compare(a.Rtime, b.Rtime) }
	case "cpu":
		less = func(a, b machine.Process) int { return cmp.Compare(a.CPU, b.CPU) }
	case "rss":
		less = func(a, b machine.Process) int { return cmp.Compare(a.RSS, b.RSS) }
	case "command":
		less = func(a, b machine.Process) int { return cmp.Compare(a.Command, b.Command) }
	case "directory":
		less = func(a, b machine.Process) int { return cmp.Compare(a.Directory, b.Directory) }
	default:
		return nil, fault.New(fault.Invalid, "query", "processes are sorted by pid, stime, rtime, cpu, rss, command or directory, not %q", clip(by, 40))
	}
	switch {
	case order == "" || order == "asc" || less == nil && order == "desc":
		return less, nil
	case order == "desc":
		return func(a, b machine.Process) int { return less(b, a) }, nil
	}
	return nil, fault.New(fault.Invalid, "query", "order is asc or desc, not %q", clip(order, 40))
}
