package jobs

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/machine"
)

func cmdJobReport(c *cli.Env) *cobra.Command {
	var f accountFlags
	cmd := &cobra.Command{Use: "report [JOB]", Short: "Report what a job used, or what each owner's jobs did",
		Long: `Report what a job asked for, how long it waited and ran, what CPU time and memory its tasks used, and what to
ask for the next time where that is clear. Without JOB: what the jobs of each owner asked for and used together.

Both are of jobs that are still kept, as "souk job ls --all" lists them: each member keeps the 1,000 that ended last,
fewer where they have very many tasks. An owner's line has the jobs that you may see in full: another Unix user's
are left out.

With --since: what tasks used from that day on, of all jobs that there were, as each member keeps it for 400 days; by
owner, or as --by says. Days are of UTC. An attempt of a task counts on the day on which it ended, with what it asked
for and used from its start on; a job on the day on which it was submitted. WAITED is how long jobs waited on average
until their first task began. What a Unix user's tasks used is shown to this user and to admins. Of one day, what more
than 64 owners used is added up as "others".

MEMORY is the largest amount that a task had in use at once: of all its processes, with files that it read, where
the kernel counts that for each task (cgroup v1, or v2 since Linux 6.12); else of its largest process. CPU time of
programs that a task leaves behind counts only where tasks have cgroups.

share is how the user of the job, in its namespace, stands at a worker that has tasks of theirs waiting: what was used
there, of which a day later half counts, and what part of the worker is due to them of all who wait for it.`,
		Example: "  souk job report sweep\n  souk job report\n  souk job report --since 7d --by day,owner\n" +
			"  souk job report sweep --json | jq .cpu_efficiency",
		Args: cli.Args(0, 1, "one job, by id or name, or nothing"),
		RunE: func(cmd *cobra.Command, refs []string) error {
			if err := f.check(refs); err != nil {
				return err
			}
			if f.since != "" {
				return reportAccounts(cmd, c, &f)
			}
			cl, err := c.Client()
			if err != nil {
				return err
			}
			if len(refs) == 0 {
				list, err := cl.Jobs(cmd.Context(), c.AppNamed())
				if err != nil {
					return err
				}
				return reportOwners(c, list)
			}
			r, err := cl.JobReport(cmd.Context(), refs[0])
			if err != nil {
				return err
			}
			if c.JSON {
				c.JSONLine(c.Out, r)
				return nil
			}
			printReport(c, &r)
			return nil
		}}
	f.register(cmd)
	return cmd
}

// reportOwners prints what the jobs of each owner asked for and used.
func reportOwners(c *cli.Env, list []jobs.Job) error {
	owners := jobs.OwnerReports(list)
	if c.JSON {
		cli.JSONList(c, owners)
		return nil
	}
	seen := 0
	rows := make([][]cli.Cell, 0, len(owners))
	for _, o := range owners {
		seen += o.Jobs
		rows = append(rows, []cli.Cell{{Text: cmp.Or(o.Owner, "-")}, {Text: thousands(o.Jobs)},
			{Text: thousands(o.Tasks)}, {Text: hoursText(o.CoreHours)}, {Text: hoursText(o.CPUHours)},
			{Text: hoursText(o.GiBHours)}, {Text: percent(o.Share)}})
	}
	if len(rows) == 0 {
		c.Printf("no jobs; \"souk submit -- CMD\" makes one\n")
	} else {
		c.Table([]cli.Column{cli.Keep("OWNER").Cut(6), cli.Drop("JOBS", 2), cli.Drop("TASKS", 1),
			cli.Keep("CORE-HOURS"), cli.Drop("CPU-HOURS", 4), cli.Drop("GIB-HOURS", 3), cli.Keep("SHARE")}, rows)
	}
	if left := len(list) - seen; left > 0 {
		c.Printf("%s not counted: what others' jobs used is not shown\n", countOf(left, "job is", "jobs are"))
	}
	return nil
}

// hoursText prints hours with three digits.
func hoursText(h float64) string {
	switch {
	case h >= 100:
		return thousands(int(h + 0.5))
	case h > 0 && h < 0.001:
		return "<0.001"
	}
	return fmt.Sprintf("%.3g", h)
}

func percent(part float64) string { return fmt.Sprintf("%.0f %%", 100*part) }

// memoryText prints bytes in MiB.
func memoryText(n int64) string {
	if mib := float64(n) / (1 << 20); mib < 10 {
		return fmt.Sprintf("%.1f MiB", mib)
	}
	return thousands(int((n+1<<19)>>20)) + " MiB"
}

func printReport(c *cli.Env, r *jobs.JobReport) {
	j, line := &r.Job, c.Field
	u := j.Usage
	if u == nil {
		u = new(jobs.Usage)
	}
	c.Printf("%s %s\n", jobLabel(j), stateText(j.State))
	if j.Spec.Owner.Name() != "" {
		line("owner", "%s", j.Spec.Owner.Name())
	}
	line("tasks", "%s: %s succeeded, %s failed, %s cancelled, %s not ended", thousands(j.Tasks),
		thousands(j.Succeeded), thousands(j.Failed), thousands(j.Cancelled), thousands(j.Tasks-j.Done()))
	if r.WaitedMS != nil {
		line("waited", "%s until its first task began", shortTime(*r.WaitedMS))
	}
	line("time", "%s", timeText(j))
	ran := fmt.Sprintf("%s of task time, in %s", shortTime(u.RanMS), countOf(u.Attempts, "attempt", "attempts"))
	if again := j.Retried + j.Evicted + j.Lost; again > 0 {
		ran += fmt.Sprintf("; %s of it in %s that had to be run again (%s failed, %s evicted, %s lost)",
			shortTime(u.RepeatedMS), countOf(again, "attempt", "attempts"), thousands(j.Retried), thousands(j.Evicted),
			thousands(j.Lost))
	}
	line("ran", "%s", ran)
	line("cpu", "%s", cpuText(r, u))
	memory := "not known"
	if p := r.Peak; p != nil {
		memory = fmt.Sprintf("median %s, largest %s, of %s asked for (%s)", memoryText(p.MedianBytes),
			memoryText(p.LargestBytes), memoryText(r.MemoryBytes),
			percent(float64(p.LargestBytes)/float64(max(r.MemoryBytes, 1))))
		if p.Tasks < j.Succeeded+j.Failed {
			memory += fmt.Sprintf(", of %s", countOf(p.Tasks, "task", "tasks"))
		}
	}
	line("memory", "%s", memory)
	for i := range r.Shares {
		line("share", "%s", shareText(&r.Shares[i]))
	}
	if r.Advice != "" {
		line("advice", "%s", r.Advice)
	}
}

// shareText says how the job's user stands at a worker.
func shareText(x *jobs.AccountShare) string {
	order := "in the auction's order"
	switch o := x.Order(); {
	case o < 0:
		order = "goes first"
	case o > 0:
		order = "others go first"
	}
	return fmt.Sprintf("at %s: used %.3g worker-hours, holds %s, due %s; %s", x.Worker, x.Hours, percent(x.Held),
		percent(x.Due), order)
}

// cpuText says what CPU time a job used, and how that compares with what it asked for.
func cpuText(r *jobs.JobReport, u *jobs.Usage) string {
	if r.CPUEfficiency == nil {
		return "not known"
	}
	used, asked, part := shortTime(u.CPUMS), shortTime(r.Cores*u.MeasuredMS), percent(*r.CPUEfficiency)
	if r.Job.Spec.CPUKind == machine.Shared {
		return fmt.Sprintf("%s used, of %s in its share of the cores (%s): shared tasks may use more",
			used, asked, part)
	}
	return fmt.Sprintf("%s used, of %s in the cores asked for (%s)", used, asked, part)
}

// sinceText prints how long ago a time was; "-": nil.
func sinceText(t *time.Time, now time.Time) string {
	if t == nil {
		return "-"
	}
	return cli.Age(t.Format(time.RFC3339Nano), now) + " ago"
}
