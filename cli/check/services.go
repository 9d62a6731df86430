package check

import (
	"context"
	"fmt"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait"
)

// checkServices waits until no replica of a service has two machines and no machine is unwanted, on reachable workers;
// a failure to get there in time is a violation. A replica without a machine is none: perhaps no worker takes it.
func checkServices(ctx context.Context, cl *client.Client, within time.Duration) (Invariant, error) {
	deadline := time.Now().Add(within)
	for {
		i, err := lookAtServices(ctx, cl)
		if err != nil || i.OK || time.Now().After(deadline) {
			return i, err
		}
		if err := wait.For(ctx, 200*time.Millisecond); err != nil {
			return i, err
		}
	}
}

func lookAtServices(ctx context.Context, cl *client.Client) (Invariant, error) {
	i := Invariant{Number: 13, Name: "no replica of a service has two machines, and no others are there"}
	apps, err := cl.Apps(ctx)
	if err != nil {
		return i, err
	}
	services, replicas := 0, 0
	for _, a := range apps {
		s, err := cl.Service(ctx, a.Name)
		switch {
		case fault.Is(err, fault.NotFound): // the app has no service, or is gone
			continue
		case err != nil:
			return i, err
		}
		services++
		for k := range s.Groups {
			replicas += s.Groups[k].Wanted
			checkGroup(&i, a.Name, &s.Groups[k])
		}
	}
	i.Checked = fmt.Sprintf("%d services, %d replicas", services, replicas)
	return i.close(), nil
}

// checkGroup checks a group's machines on reachable workers.
func checkGroup(i *Invariant, app string, g *api.GroupStatus) {
	have, wanted := map[int]string{}, g.WantedSlots()
	for _, x := range g.Slots {
		replica := fmt.Sprintf("%s, replica %d of group %s", app, x.Index, g.Name)
		switch {
		case x.Machine == "" || x.Unheard:
		case g.Wanted == 0 || !wanted[x.Index]:
			i.broken("%s: it is not wanted, and machine %s of worker %s stands for it", replica, x.Machine, x.Worker)
		case have[x.Index] != "":
			i.broken("%s: machines %s and %s stand for it", replica, have[x.Index], x.Machine)
		default:
			have[x.Index] = x.Machine
		}
	}
}
