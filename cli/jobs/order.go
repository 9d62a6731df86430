package jobs

import (
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/core/jobs"
)

// orderFlags are the flags of souk submit about when tasks may start.
type orderFlags struct {
	hold     bool
	begin    string
	deadline string
	after    []string
	unmet    string
}

func (o *orderFlags) register(f *pflag.FlagSet) {
	f.BoolVar(&o.hold, "hold", false, "start no task before \"souk job release\"")
	f.StringVar(&o.begin, "begin", "",
		"start no task before this time: 90m from now, 2026-01-31T08:00, or 08:00, which may be tomorrow")
	f.StringVar(&o.deadline, "deadline", "",
		"the same; tasks that have not ended by then are cancelled, and with --timeout those that could not end")
	f.StringArrayVar(&o.after, "after", nil,
		"JOB or KIND:JOB, start after this job: ok (default), if all its tasks succeeded; fail, if not; any; corr, "+
			"each task after that of its index; repeatable")
	f.StringVar(&o.unmet, "unmet", string(jobs.UnmetCancel),
		"cancel or wait: what becomes of tasks for which --after cannot be met any more")
}

func (o *orderFlags) ordering(now time.Time) (out jobs.Ordering, err error) {
	out = jobs.Ordering{Hold: o.hold, Unmet: jobs.Unmet(o.unmet)}
	if out.Unmet == jobs.UnmetCancel {
		out.Unmet = ""
	}
	if out.Begin, err = cli.Until("--begin", o.begin, now); err != nil {
		return out, err
	}
	if out.Deadline, err = cli.Until("--deadline", o.deadline, now); err != nil {
		return out, err
	}
	for _, text := range o.after {
		x, err := jobs.ParseDependency(text)
		if err != nil {
			return out, cli.Usagef("--after: %s", err)
		}
		out.After = append(out.After, x)
	}
	return out, nil
}

// printOrdering prints when a job's tasks may start and must end.
func printOrdering(c *cli.Env, s *jobs.Spec) {
	if s.AtOnce > 0 {
		c.Field("at once", "%s at most", thousands(s.AtOnce))
	}
	for _, x := range []struct {
		name string
		at   time.Time
	}{{"begin", s.Begin}, {"deadline", s.Deadline}} {
		if !x.at.IsZero() {
			c.Field(x.name, "%s", x.at.UTC().Format(time.RFC3339))
		}
	}
	var after []string
	for _, x := range s.After {
		after = append(after, x.String())
	}
	if len(after) > 0 {
		c.Field("after", "%s", strings.Join(after, ", "))
	}
	if w := s.Warning; w.Signal != "" {
		c.Field("signal", "%s, %s before the timeout", w.Signal, time.Duration(w.BeforeMS)*time.Millisecond)
	}
}
