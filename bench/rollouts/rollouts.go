// Package rollouts measures rollouts: fifty machines replaced in fives, compared with a client that does the same by
// hand, and the switch of a blue-green rollout as seen by requests through five members.
package rollouts

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/bench"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait"
)

// Options say how much is measured.
type Options struct {
	Machines int // of the service whose machines are replaced
	At       int // how many at once
	Rounds   int // rollouts of each kind, in turns
	Members  int // of the cluster with the blue-green service, and its replicas
	Switches int
	Services int // services at rest
	Only     []string
}

// Row is one measurement.
type Row struct {
	Name   string   `json:"name"`
	N      int      `json:"n"`
	P50    *float64 `json:"p50_ms,omitempty"`
	P99    *float64 `json:"p99_ms,omitempty"`
	Floor  *float64 `json:"floor_p50_ms,omitempty"`
	Ratio  *float64 `json:"ratio_p50,omitempty"`
	Asked  int      `json:"requests,omitempty"` // requests during the switches
	Failed *int     `json:"failed,omitempty"`   // failed ones among those
	Value  *float64 `json:"value,omitempty"`
	Unit   string   `json:"unit,omitempty"`
	Want   string   `json:"want"`
	Met    bool     `json:"met"`
}

// Rows lists the names of all rows.
func Rows() []string { return []string{"rolling", "bluegreen_switch", "rest"} }

// Head is the line above the rows.
func Head() string {
	return fmt.Sprintf("%-18s %5s %9s %9s %9s %7s  %s", "NAME", "N", "P50 MS", "P99 MS", "FLOOR MS", "RATIO", "WANTED")
}

// Text returns the row as it is printed for people.
func (r Row) Text() string {
	num := func(f *float64) string {
		if f == nil {
			return "-"
		}
		return fmt.Sprintf("%.2f", *f)
	}
	text := fmt.Sprintf("%-18s %5d %9s %9s %9s %7s  ", r.Name, r.N, num(r.P50), num(r.P99), num(r.Floor), num(r.Ratio))
	if r.Value != nil {
		text += fmt.Sprintf("%.2f %s, ", *r.Value, r.Unit)
	}
	if r.Failed != nil {
		text += fmt.Sprintf("%d of %d requests failed, ", *r.Failed, r.Asked)
	}
	if text += r.Want; !r.Met {
		text += "  MISSED"
	}
	return text
}

func Run(ctx context.Context, o Options, to bench.Reporter) error {
	for _, s := range []struct {
		name string
		run  func(context.Context, Options, bench.Reporter) ([]Row, error)
	}{{"rolling", oneRow(measureRolling)}, {"bluegreen_switch", oneRow(measureSwitches)}, {"rest", measureRest}} {
		if len(o.Only) > 0 && !slices.Contains(o.Only, s.name) {
			continue
		}
		done := to.Working("measuring %s", s.name)
		rows, err := s.run(ctx, o, to)
		done()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		for _, row := range rows {
			to.Row(row)
		}
	}
	return nil
}

// oneRow adapts a measurement with a single row.
func oneRow(f func(context.Context, Options, bench.Reporter) (Row, error)) func(context.Context, Options,
	bench.Reporter) ([]Row, error) {
	return func(ctx context.Context, o Options, to bench.Reporter) ([]Row, error) {
		row, err := f(ctx, o, to)
		return []Row{row}, err
	}
}

// rolloutTime bounds one rollout.
const rolloutTime = 2 * time.Minute

// rollOut makes a release of an app, and returns how long its rollout took.
func rollOut(ctx context.Context, cl *client.Client, app string, r api.NewRelease) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, rolloutTime)
	defer cancel()
	began := time.Now()
	made, err := cl.Deploy(ctx, app, r)
	if err != nil {
		return 0, err
	}
	var s api.ServiceStatus
	err = wait.Until(ctx, time.Millisecond, func() bool {
		s, err = cl.Service(ctx, app)
		return err != nil || s.Rollout != nil && s.Rollout.Number == made.Head.Number && s.Rollout.State.Over()
	})
	took := time.Since(began)
	switch {
	case err != nil:
		return 0, err
	case s.Rollout.State != release.RolledDone:
		return 0, fault.New(fault.Internal, fault.CodeBench, "a rollout ended in the state %s: %s",
			s.Rollout.State, s.Rollout.Why)
	}
	return took, nil
}

func wrapFailure(err error, what string) error {
	return fault.Wrap(err, fault.Internal, fault.CodeBench, "the measurement stopped: %s", what)
}
