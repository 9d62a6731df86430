package jobs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/core/eta"
	"github.com/soukhq/souk/core/jobs"
)

func cmdJobWhy(c *cli.Env) *cobra.Command {
	return &cobra.Command{Use: "why JOB", Short: "Say why a job waits, what is before it, and when it starts and ends",
		Long: `Say why tasks of a job wait, what is before them in the queue of the member that keeps the job, on how many workers
a task fits, and when the job is expected to start and to end.

Expected times are intervals. The member forecasts each job when it comes, when its first task starts and when half
of them have ended, and compares that with what comes of it. The intervals are as wide as nine of ten of these
forecasts would have needed, and how many of them held is said. There is none before 20 jobs have ended, nor for a job
on hold, one that waits for others, or one that names a scheduler (souk submit --scheduler).

The parties of a scheduler that a job names are asked where its tasks wait, and say so in the words of their paper:
reservations and their places in the queues of workers, the queue of a central place, the containers that are asked for,
the user's place by past usage, or what it costs in a flow network to leave a task unscheduled.`,
		Example: "  souk job why sweep\n  souk job why sweep --json | jq .eta.ends",
		Args:    cli.Args(1, 1, "one job, by id or name"),
		RunE: func(cmd *cobra.Command, refs []string) error {
			return whyJob(cmd.Context(), c, refs[0])
		}}
}

// whyOutput is souk job why --json.
type whyOutput struct {
	jobs.Job
	Standing *jobs.Standing `json:"standing,omitempty"` // of a job that names a scheduler and has tasks that wait
}

func whyJob(ctx context.Context, c *cli.Env, ref string) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	out := whyOutput{}
	if out.Job, err = cl.Job(ctx, ref); err != nil {
		return err
	}
	if out.Spec.Scheduler != "" && out.Waiting > 0 {
		s, err := cl.JobStanding(ctx, out.ID)
		if err != nil {
			return err
		}
		out.Standing = &s
	}
	if c.JSON {
		c.JSONLine(c.Out, out)
		return nil
	}
	printWhy(c, &out.Job, time.Now())
	if out.Standing != nil {
		printStanding(c, out.Standing)
	}
	return nil
}

// mostSaid bounds the lines of what parties say.
const mostSaid = 12

// printStanding prints what the parties of a job's scheduler say.
func printStanding(c *cli.Env, s *jobs.Standing) {
	for _, x := range s.Said[:min(len(s.Said), mostSaid)] {
		c.Field(x.Role, "%s: %s", x.Member, x.Text)
	}
	if more := len(s.Said) - mostSaid; more > 0 {
		c.Printf("  and %s; --json has all\n", countOf(more, "other", "others"))
	}
	if len(s.Silent) > 0 {
		names := make([]string, len(s.Silent))
		for i, m := range s.Silent {
			names[i] = string(m)
		}
		c.Field("silent", "%s", strings.Join(names, ", "))
	}
}

func printWhy(c *cli.Env, j *jobs.Job, now time.Time) {
	c.Printf("%s %s\n", jobLabel(j), stateText(j.State))
	if text := j.Spec.SchedulerText(); text != "" {
		c.Field("scheduler", "%s", text)
	}
	if j.Why != "" {
		c.Field("why", "%s", j.Why)
	}
	if j.State.Final() {
		return
	}
	c.Field("now", "%s waiting, %s running, %s of %s ended", thousands(j.Waiting), thousands(j.Running),
		thousands(j.Done()), thousands(j.Tasks))
	if q := j.Queue; q != nil {
		c.Field("before it", "%s", beforeText(q))
		if len(q.Accounts) > 0 {
			c.Field("first", "%s", firstText(q.Accounts))
		}
		c.Field("workers", "a task fits on %d now, on %d once others have ended, never on %d; %s at once", q.Now,
			q.Later, q.Never, countOf(q.Slots, "task fits", "tasks fit"))
	}
	switch e := j.ETA; {
	case e != nil:
		if e.Starts != nil {
			c.Field("starts", "%s", expectedText(e.Starts, now))
		}
		if e.Ends != nil {
			c.Field("ends", "%s", expectedText(e.Ends, now))
		}
	case j.Spec.Scheduler != "":
		c.Field("expected", "not known: only jobs of the auction are forecast")
	case j.Queue == nil: // something else than room keeps it
		c.Field("expected", "not known")
	case j.Queue.Now+j.Queue.Later == 0:
		c.Field("expected", "not known: no worker can run it")
	default:
		c.Field("expected", "not known: too few jobs have ended here")
	}
	if j.Helps != "" {
		c.Field("helps", "%s", j.Helps)
	}
}

// beforeText says what is before a job in the queue, and how fast that goes at best.
func beforeText(q *jobs.Queue) string {
	if q.Jobs == 0 {
		return "no other task"
	}
	text := fmt.Sprintf("%s of %s, of %s by their estimates", countOf(q.Tasks, "waiting task", "waiting tasks"),
		countOf(q.Jobs, "job", "jobs"), countOf(int(q.CoreSeconds+0.5), "core-second", "core-seconds"))
	if q.Cores > 0 {
		text += fmt.Sprintf(", which %g cores do in %s at best", q.Cores, shortTime(1000*q.CoreSeconds/q.Cores))
	}
	return text
}

// firstText says whose tasks go first, of those that are before a job.
func firstText(list []jobs.AccountBefore) string {
	parts := make([]string, len(list))
	for i, x := range list {
		who := "other namespaces"
		switch {
		case x.Owner != "":
			who = "user " + x.Owner
		case x.Namespace != "":
			who = "what has no Unix user"
		}
		parts[i] = fmt.Sprintf("%s (%s)", who, countOf(x.Tasks, "of these tasks", "of these tasks"))
	}
	return "by fair shares: " + strings.Join(parts, ", ")
}

// expectedText says when something is expected, and how far that can be relied on.
func expectedText(x *jobs.Expected, now time.Time) string {
	low, high := max(0, x.Low.Sub(now)), max(0, x.High.Sub(now))
	return fmt.Sprintf("in %s; %s", spanText(jobs.Span{LowMS: low.Seconds() * 1000, HighMS: high.Seconds() * 1000}),
		heldText(x.Coverage))
}

func heldText(v eta.Coverage) string {
	if v.Of == 0 {
		return "no such interval has been scored yet"
	}
	return fmt.Sprintf("%s of %s such intervals held", thousands(v.Held), thousands(v.Of))
}
