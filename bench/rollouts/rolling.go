package rollouts

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/bench"
	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// The apps whose machines are replaced: by souk, and by a client.
const (
	kept   = "kept"
	byHand = "by-hand"
)

// wantRolling is the limit of a rollout's time, in multiples of a client's time for the same updates.
const wantRolling = 1.2

// measureRolling replaces a service's machines a few at a time, in turns with a client that does the same by hand: each
// machine's successor is made, then the machine is cordoned, stopped and destroyed.
func measureRolling(ctx context.Context, o Options, to bench.Reporter) (row Row, err error) {
	dir, err := os.MkdirTemp("", "souk-bench-")
	if err != nil {
		return row, wrapFailure(err, "no temporary directory can be made")
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // machines' users pass through it
		return row, wrapFailure(err, "its directory could not be opened to machines")
	}
	s, err := live.Start(dir+"/state", to.Stderr(), "--http", "off", "--cpus", "100000", "--memory", "100000000")
	if err != nil {
		return row, err
	}
	defer s.End()
	for _, app := range []string{kept, byHand} {
		if _, err := s.Client.CreateApp(ctx, app); err != nil {
			return row, err
		}
	}
	if _, err := rollOut(ctx, s.Client, kept, rollingRelease(o, 0)); err != nil {
		return row, wrapFailure(err, "the service did not come up")
	}
	have := make([]string, o.Machines)
	if err := atOnce(o.Machines, o.At, func(i int) (err error) {
		have[i], err = launchMachine(ctx, s.Client)
		return err
	}); err != nil {
		return row, wrapFailure(err, "a machine was not made")
	}
	var took, floors []time.Duration
	for i := range o.Rounds + 1 {
		floor, err := updateByHand(ctx, s.Client, have, o.At)
		if err != nil {
			return row, wrapFailure(err, "the floor failed")
		}
		d, err := rollOut(ctx, s.Client, kept, rollingRelease(o, i+1))
		if err != nil {
			return row, wrapFailure(err, "a rollout failed")
		}
		if i > 0 { // the first round is a warm-up
			took, floors = append(took, d), append(floors, floor)
		}
	}
	p50, p99 := bench.Quantile(took, 0.5), bench.Quantile(took, 0.99)
	row = Row{Name: fmt.Sprintf("rolling_%d", o.Machines), N: o.Rounds, P50: &p50, P99: &p99,
		Want: fmt.Sprintf("p50 <= %.1fx a client's", wantRolling)}
	floor := bench.Quantile(floors, 0.5)
	ratio := p50 / floor
	row.Floor, row.Ratio, row.Met = &floor, &ratio, ratio <= wantRolling
	return row, nil
}

// rollingRelease is a release whose machines differ with its version.
func rollingRelease(o Options, version int) api.NewRelease {
	c := live.LaunchOf(live.Stays(), false).Config
	c.Env = map[string]string{"VERSION": fmt.Sprint(version)}
	return api.NewRelease{Groups: []api.NewGroup{{Replicas: &o.Machines, Group: release.Group{Name: "web", Config: c,
		Update: &release.Update{MaxSurge: fmt.Sprint(o.At), MinUp: &machine.Duration{}}}}}}
}

// updateByHand replaces machines, at at a time, and puts the new ids into have.
func updateByHand(ctx context.Context, cl *client.Client, have []string, at int) (time.Duration, error) {
	began := time.Now()
	err := atOnce(len(have), at, func(i int) error {
		next, err := launchMachine(ctx, cl)
		if err != nil {
			return err
		}
		old := have[i]
		have[i] = next
		if err := cl.Cordon(ctx, byHand, old, "", true); err != nil { // so that requests go elsewhere first
			return err
		}
		if _, err := cl.Stop(ctx, byHand, old, "", client.StopOptions{}); err != nil {
			return err
		}
		if err := cl.Wait(ctx, byHand, old, time.Minute, machine.Stopped); err != nil {
			return err
		}
		_, err = cl.Destroy(ctx, byHand, old, "", false)
		return err
	})
	return time.Since(began), err
}

func launchMachine(ctx context.Context, cl *client.Client) (string, error) {
	m, err := cl.Launch(ctx, byHand, live.LaunchOf(live.Stays(), false), client.LaunchOptions{})
	if err == nil && m.State != machine.Started {
		err = fault.New(fault.Internal, fault.CodeBench,
			"a launch was answered %q, not started%s", m.State, m.Because())
	}
	if err != nil {
		return "", err
	}
	return m.ID, nil
}

// atOnce calls f with 0 to n-1, at most width at a time.
func atOnce(n, width int, f func(i int) error) error {
	var g errgroup.Group
	g.SetLimit(width)
	for i := range n {
		g.Go(func() error { return f(i) })
	}
	return g.Wait()
}
