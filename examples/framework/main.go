// Command framework is a framework in the sense of Mesos (two-level scheduling): workers offer room, and it accepts or
// declines by a preference of its own, which no scheduler of souk's need know. An offer is a hold: room that a worker keeps
// for it alone until it is granted, released, or expires. It takes offers of workers that it likes, declines others for a
// while, and takes any once it has waited long enough (delay scheduling: Zaharia et al., EuroSys 2010).
//
//	SOUK_ADDR=http://127.0.0.1:7070 SOUK_TOKEN=... go run ./examples/framework -n 4 -near 'zone == b' -- /bin/sleep 60
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// framework is what decides on offers.
type framework struct {
	client   *client.Client
	out      io.Writer
	app      string
	argv     []string
	near     cluster.Requirement // workers that it likes
	patience time.Duration       // how long it waits for one of them
	filter   time.Duration       // how long a worker that it has declined makes it no offer
	declined map[cluster.WorkerID]time.Time
}

func main() {
	n := flag.Int("n", 1, "how many tasks, each a machine")
	f := framework{out: os.Stdout, client: client.New(os.Getenv("SOUK_ADDR"), os.Getenv("SOUK_TOKEN"))}
	flag.StringVar(&f.app, "app", "default", "their app, which must exist")
	flag.DurationVar(&f.patience, "patience", 10*time.Second, "how long a task waits for a worker that is near")
	flag.DurationVar(&f.filter, "filter", 5*time.Second, "how long a declined worker is not asked again")
	near := flag.String("near", "worker", "a requirement that the workers near the tasks' data meet")
	flag.Parse()
	if f.argv = flag.Args(); len(f.argv) == 0 {
		fmt.Fprintln(os.Stderr, "usage: framework [-n N] [-app APP] [-near REQUIREMENT] -- CMD [ARG...]")
		os.Exit(64)
	}
	var err error
	if f.near, err = cluster.ParseRequirement(*near); err == nil {
		err = f.run(context.Background(), *n)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "framework:", err)
		os.Exit(1)
	}
}

// run runs n tasks.
func (f *framework) run(ctx context.Context, n int) error {
	f.declined = map[cluster.WorkerID]time.Time{}
	for began := time.Now(); n > 0; {
		launched, err := f.round(ctx, n, time.Since(began) >= f.patience)
		if err != nil {
			return err
		}
		if n -= launched; launched > 0 {
			began = time.Now()
			continue
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d tasks have found no worker: %w", n, ctx.Err())
		case <-time.After(min(time.Second, f.filter)):
		}
	}
	return nil
}

// round asks each worker for offers until it makes none, or one that is declined, and returns how many tasks were launched.
// impatient: any worker will do.
func (f *framework) round(ctx context.Context, tasks int, impatient bool) (launched int, err error) {
	fleet, err := f.client.Workers(ctx)
	if err != nil {
		return 0, err
	}
	for _, w := range fleet.Workers {
		for launched < tasks && (impatient || time.Now().After(f.declined[w.Worker])) {
			accepted, err := f.consider(ctx, &w, impatient)
			if err != nil {
				return launched, err
			}
			if !accepted {
				break
			}
			launched++
		}
	}
	return launched, nil
}

// consider asks a worker for an offer, and accepts or declines it. False: there is none, or it was declined.
func (f *framework) consider(ctx context.Context, w *cluster.Record, impatient bool) (bool, error) {
	l := &machine.Launch{Config: &machine.Config{Image: "souk/host", Init: machine.Init{Exec: f.argv}}}
	offer, err := f.client.Hold(ctx, w.Worker, api.Bid{App: f.app, Launch: l, TTL: 5})
	if fault.Is(err, fault.Exhausted) { // no room: nothing is offered
		return false, nil
	}
	if err != nil {
		return false, err
	}
	near := f.near.Of(w.Attribute(f.near.Attribute)) == cluster.Met
	if !near && !impatient {
		f.declined[w.Worker] = time.Now().Add(f.filter)
		return false, f.client.ReleaseHold(ctx, w.Worker, offer.Hold)
	}
	reason := fmt.Sprintf("framework: %s holds here", f.near)
	if !near {
		reason = fmt.Sprintf("framework: no worker where %s holds had room for %s", f.near, f.patience)
	}
	l.ID = offer.Machine
	m, err := f.client.GrantAt(ctx, w.Worker, api.Bid{App: f.app, Launch: l, Hold: offer.Hold, Reason: reason})
	if err != nil {
		return false, errors.Join(err, f.client.ReleaseHold(ctx, w.Worker, offer.Hold))
	}
	fmt.Fprintf(f.out, "%s on %s\n", m.ID, m.Worker)
	return true, nil
}
