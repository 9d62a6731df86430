package jobs

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cli/machines"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/scheduler/registry"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// submitFlags are the flags of souk submit.
type submitFlags struct {
	array     string
	name      string
	set       *pflag.FlagSet // says which of them were given
	cpus      int
	cpu       cli.CPU
	cpuKind   string
	memory    cli.Size
	gpus      string
	maxFails  int
	retries   int
	timeout   time.Duration
	estimate  time.Duration
	env       []string
	export    string
	secrets   []string
	require   []string
	prefer    []string
	priority  string
	scheduler string
	class     string
	band      string
	wait      bool
	signal    string
	order     orderFlags
	file      string

	image    string
	chdir    string
	stdin    string
	stdout   string
	stderr   string
	openMode string
	send     []string
	keep     []string
}

const submitLong = `Submit a job: CMD once, or with --array once for each index. The workers of all members pull the tasks as they have
room for them, those of the job with the least work left first; a task occupies its CPU and memory only while it runs.
In a cluster a second member has a copy of the job before the answer comes, and of each result. If the member that keeps
the job is down for some seconds, the second one takes it over; tasks that run go on. If both are lost, so is the job.

Each task has SOUK_INDEX, SOUK_COUNT (of tasks), SOUK_ATTEMPT and SOUK_JOB in its environment. CMD is executed as it
stands, without a shell. What a task writes is kept (the last 64 KiB of each, and of a job 256 MiB) for "souk job logs",
until newer output needs the room: the jobs of a namespace have 2 GiB, all together 4 GiB, and those that ended first
make room. Its exit code is kept until the job is the oldest of a thousand finished ones.

With --image tasks run in containers of the image that the name means now, and have its files alone. Otherwise a task
starts in a directory of its own, with what --send brings, read-only; what --out names of it is kept for
"souk job fetch", by its worker, for 7 days. With --chdir it starts in a directory that the workers have, as it does by
itself if a user of a host submits in a directory on a file system that hosts share. --stdin, --stdout and --stderr name
files there, opened as the task's user, which may have patterns: %a is the task's index, %3a the same with zeros, %j the
job's id, %x its name, %u the user, %N the worker. Each start truncates its files, unless --open-mode is append.

The environment of this shell stays here, but for what --export and --env name. --export ALL leaves out SOUK_TOKEN,
SOUK_ADDR, and what the host of a task sets: HOME, USER, LOGNAME, SHELL, PWD. Passwords and tokens belong to the app's
secrets ("souk secrets set"): --secret puts one into the environment of each task. The job has only the secret's name;
the worker reads the value when it starts a task.

Where the workers are started with --unix-users, tasks of a user of a host, and of a token with --unix-user, run as this
user, with the groups and home that the user has there, and the umask and soft limits of this shell. The job is then the
user's: others than admins cannot cancel it, or read its output. Without that each task has a user of its own.

A task runs AT LEAST once: it is run again, with a larger SOUK_ATTEMPT, when it fails and --retries allows, when
its worker was lost before its result was recorded, and when it had to make room for a machine of a higher band. When
its job is taken over, it may be run again with a larger SOUK_EPOCH.
When souk itself ends or is killed, tasks that run go on, and no result is lost or recorded twice.

--after, --begin and --hold say what tasks wait for. A job that is to run after others is told how they ended wherever
these are kept; if it cannot run any more, as one that was to succeed has failed, it is cancelled and says why. With
--file several jobs come from a TOML file: a table for each, whose keys are command and the flags above, and whose
"after" may name others of the file.

With --wait souk's exit code is that of the task that failed first, else 0. ^C then ends the waiting, not the job.`

// Submit makes the command "souk submit".
func Submit(c *cli.Env) *cobra.Command {
	o := new(submitFlags)
	cmd := &cobra.Command{
		Use:   "submit [flags] -- CMD [ARG...]",
		Short: "Submit short tasks, one or an array of them",
		Long:  submitLong,
		Example: `  souk submit --array 1-200 --wait -- /bin/sh -c 'echo task $SOUK_INDEX of $SOUK_JOB'
  souk submit --name sweep --array 0-99 --cpus 2 --retries 1 --max-fails 5 -- /bin/sh -c 'sleep $((SOUK_INDEX % 3))'
  souk submit --name count --send /etc/os-release --out words --wait -- /bin/sh -c 'wc -w < os-release > words'
  souk submit --export ALL,OMP_NUM_THREADS=1 -- /bin/sh -c 'echo $PATH $OMP_NUM_THREADS'
  souk submit --app graphs --secret S3_KEY --secret HUB=HF_TOKEN -- /bin/sh -c 'echo ${#HF_TOKEN}'
  souk submit --array 0-99:3%4 --after sweep --timeout 1h --signal USR1@60 -- /bin/sh -c 'echo $SOUK_INDEX'
  souk submit --require 'arch == amd64' --prefer 'disk == ssd' --array 0-99 -- /bin/sh -c 'echo $SOUK_WORKER'
  souk submit --json -- /bin/true | jq -r .id`,
		Args: func(cmd *cobra.Command, argv []string) error {
			if o.file != "" {
				return o.checkFile(argv)
			}
			if o.image != "" {
				return nil // it has a command of its own
			}
			return cli.Args(1, -1, "a command to run, after --")(cmd, argv)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // flags after the command's name belong to the command
	o.register(f)
	f.StringVar(&o.file, "file", "",
		"a TOML file of jobs that wait for each other, all of which are submitted, or none; - reads it here")
	f.BoolVar(&o.wait, "wait", false, "wait for the end, with a progress bar on a terminal")
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		if err := machines.NotAVerb(cmd, argv, "souk job"); err != nil {
			return err
		}
		if o.file != "" {
			return submitFile(cmd.Context(), c, o.file, o.wait)
		}
		if o.stdin != jobs.StdinName {
			if err := c.RefuseStdin("a task"); err != nil {
				return err
			}
		}
		return doSubmit(cmd.Context(), c, o, argv)
	}
	return cmd
}

// register registers the flags of one job.
func (o *submitFlags) register(f *pflag.FlagSet) {
	f.StringVar(&o.array, "array", "",
		"one task for each index: 1-2000, 0-99:3 in steps, 1,5,10-20; with %4 behind it at most 4 run at once "+
			"(default: one task, of index 0)")
	f.StringVar(&o.name, "name", "", "a name for the job; the newest of a name is meant by it")
	o.set = f
	f.Var(&o.cpu, "cpu", "CPU of each task in cores, such as 0.3 or 2, in the place of --cpus")
	f.IntVar(&o.cpus, "cpus", 1, "how many CPUs of the kind each task has")
	f.StringVar(&o.cpuKind, "cpu-kind", "",
		"shared, which may use what others leave, or performance, which is a limit (default shared; with --cpu "+
			"performance)")
	f.Var(&o.memory, "memory", "memory of each task, such as 40m or 2g (default: 256m, or what its CPUs bring)")
	f.StringVar(&o.gpus, "gpus", "",
		"COUNT or KIND:COUNT, the whole GPUs that each task has; it finds their numbers in SOUK_GPUS")
	f.IntVar(&o.maxFails, "max-fails", -1, "cancel the rest when more tasks than this have failed (default: never)")
	f.IntVar(&o.retries, "retries", 0, "how often a task that fails is run again")
	f.DurationVar(&o.timeout, "timeout", 0,
		"end an attempt that runs for longer; it has then failed (default: none). A task "+
			"with a limit may have room that is reserved for a larger one, until it is used")
	f.DurationVar(&o.estimate, "estimate", 0, "what one task takes, about; it is learned from the tasks that finish")
	f.StringVar(&o.class, "class", "",
		"short or long, for schedulers that treat such jobs differently (default: long if a task takes 10 s or more)")
	f.StringArrayVarP(&o.env, "env", "e", nil,
		"an environment variable, NAME=VALUE, or NAME for its value here; repeatable")
	f.StringVar(&o.export, "export", "NONE",
		"of this shell's environment: ALL, NONE, or names; with NAME=VALUE, too, as ALL,A=1; --env goes before it")
	f.StringArrayVar(&o.secrets, "secret", nil,
		"a secret of the app that each task has in its environment, NAME, or NAME=VARIABLE; repeatable")
	f.StringArrayVar(&o.require, "require", nil,
		"a condition over the worker's attributes: 'arch == arm64', 'zone in a,b', '!spot'; repeatable")
	f.StringArrayVar(&o.prefer, "prefer", nil,
		"as --require, but other workers run tasks, too, once some have waited for 2 s; repeatable")
	f.StringVar(&o.priority, "priority", "normal", "high, normal or low: each goes before the next")
	f.StringVar(&o.scheduler, "scheduler", "",
		"NAME or NAME:N, the architecture that finds workers for the tasks; souk schedulers lists them (default: what "+
			"souk schedulers default says)")
	f.StringVar(&o.band, "band", "batch",
		"free, batch, service or system: what its tasks cost, and what machines may evict them; they evict nothing")
	f.StringVar(&o.signal, "signal", "",
		"SIGNAL or SIGNAL@SECONDS, as USR1@60: what the first process of each task gets so long before --timeout is "+
			"over (default 60)")
	o.order.register(f)
	o.registerFiles(f)
}

// registerFiles registers the flags about files.
func (o *submitFlags) registerFiles(f *pflag.FlagSet) {
	f.StringVar(&o.image, "image", "",
		"run each task in a container of this image, by its entry point if it has one; without CMD its own (default: "+
			"CMD is the host's)")
	f.StringVarP(&o.chdir, "chdir", "D", "",
		"the directory of the workers that the tasks start in; a worker without it runs none (default: one of their "+
			"own)")
	f.StringVarP(&o.stdin, "stdin", "i", "",
		"a file that each task reads, there; with %a its index; - sends what comes in here to each")
	f.StringVarP(&o.stdout, "stdout", "o", "",
		"a file that each task writes to, there; %a is its index, %j the job, %x its name, %N the worker (default: "+
			"kept)")
	f.StringVar(&o.stderr, "stderr", "", "the same for what it writes to stderr (default: where --stdout goes)")
	f.StringVar(&o.openMode, "open-mode", "", "append, or truncate at the start of each task (default)")
	f.StringArrayVar(&o.send, "send", nil,
		"a file or directory of this host that each task finds in its directory, read-only; repeatable")
	f.StringArrayVar(&o.keep, "out", nil,
		"files of each task's directory to keep for souk job fetch, such as 'result/*.csv'; repeatable")
}

func doSubmit(ctx context.Context, c *cli.Env, o *submitFlags, argv []string) error {
	parcels, done, err := parcelsOf(c, o)
	defer done()
	if err != nil {
		return err
	}
	spec, err := specOf(c, o, argv, sentOf(parcels))
	if err != nil {
		return err
	}
	if err := checkProgram(argv, parcels); err != nil {
		return err
	}
	cl, err := c.Client()
	if err != nil {
		return err
	}
	if err := sendParcels(ctx, c, cl, parcels, &spec); err != nil {
		return err
	}
	j, err := cl.SubmitJob(ctx, "", spec)
	if err != nil {
		return err
	}
	return answerSubmitted(ctx, c, cl, j, o.wait)
}

// answerSubmitted says that a job is accepted, or waits for its end.
func answerSubmitted(ctx context.Context, c *cli.Env, cl *client.Client, j jobs.Job, wait bool) error {
	if wait {
		return waitJob(ctx, c, cl, j, 0)
	}
	if c.JSON {
		c.JSONLine(c.Out, j)
		return nil
	}
	c.Printf("%s is accepted: %s\n", jobLabel(&j), countOf(j.Tasks, "task", "tasks"))
	if j.Spec.SchedulerFrom != nil && j.Spec.NamedScheduler() == "" { // the user may not know of it
		c.Field("scheduler", "%s", j.Spec.SchedulerText())
	}
	c.Printf("  next   souk job status %s\n         souk job wait %s\n", jobRef(&j), jobRef(&j))
	return nil
}

func specOf(c *cli.Env, o *submitFlags, argv []string, sent []jobs.Sent) (jobs.Spec, error) {
	env, err := machines.KeyValues("--env", o.env, os.LookupEnv)
	if err != nil {
		return jobs.Spec{}, err
	}
	all, err := exported(o.export, os.Environ())
	if err != nil {
		return jobs.Spec{}, err
	}
	secrets, err := secretsNamed(o.secrets)
	if err != nil {
		return jobs.Spec{}, err
	}
	for _, x := range secrets {
		delete(all, x.EnvVar) // of --export, so that no value of it travels in clear
	}
	maps.Copy(all, env)
	s := jobs.Spec{
		App:        c.AppNamed(), // none: the token's own
		Name:       o.name,
		Command:    argv,
		Image:      o.image,
		Env:        all,
		CPUKind:    o.cpuKind,
		MemoryMB:   int(o.memory),
		Retries:    o.retries,
		TimeoutMS:  o.timeout.Milliseconds(),
		EstimateMS: o.estimate.Milliseconds(),
		Class:      jobs.Class(o.class),
		Priority:   jobs.Priority(o.priority),
		Scheduler:  o.scheduler,
		Band:       machine.Band(o.band),
	}
	if o.scheduler != "" { // souk says so, too, but this command may be to send files before
		if _, err := registry.ParseList([]string{o.scheduler}); err != nil {
			return s, err
		}
	}
	if err := machines.CPUFlags(o.set, o.cpus, o.cpu, &s.CPUs, &s.CPUMilli); err != nil {
		return s, err
	}
	if o.memory == 0 && s.CPUMilli == 0 {
		s.MemoryMB = machine.MemoryPerCPU(o.cpuKind) * max(s.CPUs, 1)
	}
	if o.maxFails >= 0 {
		s.MaxFails = &o.maxFails
	}
	if err = o.fillTasks(&s); err != nil {
		return s, err
	}
	if s.Require, err = cli.Requirements("--require", o.require); err != nil {
		return s, err
	}
	if s.Prefer, err = cli.Requirements("--prefer", o.prefer); err != nil {
		return s, err
	}
	s.Propagated, s.Secrets = propagatedHere(), secrets
	if s.Files, err = o.files(sent); err != nil {
		return s, err
	}
	checked := s
	checked.App = cmp.Or(s.App, cli.DefaultApp)
	return s, checked.Settle()
}

// fillTasks sets which tasks a job has, their GPUs, when they may start, and what they are warned with.
func (o *submitFlags) fillTasks(s *jobs.Spec) (err error) {
	if o.gpus != "" {
		if s.GPUs, s.GPUKind, err = machines.ParseGPUs(o.gpus); err != nil {
			return err
		}
	}
	if o.array != "" {
		if s.Array, s.AtOnce, err = jobs.ParseArray(o.array); err != nil {
			return cli.Usagef("--array: %s", err)
		}
	}
	if o.signal != "" {
		if s.Warning, err = jobs.ParseWarning(o.signal); err != nil {
			return cli.Usagef("--signal: %s", err)
		}
	}
	s.Ordering, err = o.order.ordering(time.Now())
	return err
}

// secretsNamed reads NAME and NAME=VARIABLE.
func secretsNamed(list []string) (out []machine.SecretRef, err error) {
	for _, text := range list {
		name, variable, given := strings.Cut(text, "=")
		if name == "" || given && variable == "" {
			return nil, cli.Usagef(
				"--secret is written NAME or NAME=VARIABLE, not %q; a value is set with souk secrets set", text)
		}
		out = append(out, machine.SecretRef{Name: name, EnvVar: cmp.Or(variable, name)})
	}
	return out, nil
}

// files returns where the tasks start, and what they read, write and leave.
func (o *submitFlags) files(sent []jobs.Sent) (f jobs.Files, err error) {
	f = jobs.Files{Stdin: o.stdin, Stdout: o.stdout, Stderr: o.stderr, Append: o.openMode == "append", Sent: sent,
		Keep: o.keep}
	if f.Stdin == jobs.StdinName {
		f.Stdin = ""
	}
	if o.openMode != "" && o.openMode != "append" && o.openMode != "truncate" {
		return f, cli.Usagef("--open-mode is append or truncate, not %q", o.openMode)
	}
	f.Dir, err = dirOf(o.chdir)
	return f, err
}

// waitJob waits until a job has ended and returns the exit code of the first failed task. limit 0: none.
func waitJob(ctx context.Context, c *cli.Env, cl *client.Client, j jobs.Job, limit time.Duration) error {
	begin := time.Now()
	bar := newBar(c)
	defer bar.clear()
	for !j.State.Final() {
		bar.show(&j)
		step := time.Minute
		if limit > 0 {
			if step = limit - time.Since(begin); step <= 0 {
				return fault.New(fault.Timeout, fault.CodeWait, "%s has not ended within %s; %d of its %d tasks have",
					jobLabel(&j), limit,
					j.Done(), j.Tasks)
			}
		}
		done := jobs.MaxTasks
		if bar.on {
			done = j.Done()
		}
		var next jobs.Job
		err := c.Outlast(ctx, cl, jobLabel(&j), "souk job wait "+jobRef(&j), func(ctx context.Context) (err error) {
			if next, err = cl.WaitJob(ctx, j.ID, done, step); err != nil {
				bar.clear()
			}
			return err
		})
		if ctx.Err() != nil {
			bar.clear()
			if !c.JSON {
				fmt.Fprintf(c.Err, "%s goes on without you; to end it: souk job cancel %s\n", jobLabel(&j), jobRef(&j))
			}
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		j = next
		bar.pause(ctx)
	}
	bar.clear()
	printEnd(ctx, c, cl, &j)
	return jobError(&j)
}

// jobError returns how a job ended, as an error with an exit code.
func jobError(j *jobs.Job) error {
	switch {
	case j.State == jobs.Succeeded:
		return nil
	case j.FirstFail != nil && j.FirstFail.ExitCode > 0:
		return cli.TaskCode(j.FirstFail.ExitCode)
	case j.FirstFail != nil:
		return fault.New(fault.Internal, fault.CodeLost,
			"task %d of %s has no exit code: %s", j.FirstFail.Index, jobLabel(j),
			j.FirstFail.Error)
	}
	if someCancelled(j) {
		return fault.New(fault.Precondition, fault.CodeCancelled, "%s did not complete: %s cancelled", jobLabel(j),
			countOf(j.Cancelled, "task was", "tasks were"))
	}
	return fault.New(fault.Precondition, fault.CodeCancelled, "%s was cancelled: %s", jobLabel(j), j.Why)
}

// someCancelled reports whether an ended job had tasks cancelled, but was not cancelled itself.
func someCancelled(j *jobs.Job) bool { return j.State == jobs.Cancelled && j.Why == "" }

// printEnd prints how a job ended, and the last output of its first failed task.
func printEnd(ctx context.Context, c *cli.Env, cl *client.Client, j *jobs.Job) {
	if c.JSON {
		c.JSONLine(c.Out, j)
		return
	}
	how := stateText(j.State)
	if someCancelled(j) {
		how = "has ended"
	}
	fmt.Fprintf(c.Err, "%s %s: %s\n", jobLabel(j), how, tallyText(j))
	f := j.FirstFail
	if f == nil {
		return
	}
	why := ""
	if f.Error != "" {
		why = ": " + f.Error
	}
	fmt.Fprintf(c.Err, "  the first to fail was task %d, with exit code %d%s\n", f.Index, f.ExitCode, why)
	_ = cl.TaskLogs(ctx, j.ID, f.Index, machine.LogQuery{Tail: new(5)}, func(l machine.LogLine) error {
		_, err := fmt.Fprintf(c.Err, "  | %s\n", l.Text)
		return err
	}) // best effort: the failure was printed already
}

// tallyText prints counts and times: "2,000 tasks in 3.9 s, 1,998 succeeded, 2 failed".
func tallyText(j *jobs.Job) string {
	text := fmt.Sprintf("%s in %s", countOf(j.Tasks, "task", "tasks"), shortTime(j.Elapsed))
	if j.PerSecond > 0 {
		text += fmt.Sprintf(" (%.0f/s)", j.PerSecond)
	}
	for _, p := range []struct {
		n    int
		what string
	}{{j.Succeeded, "succeeded"}, {j.Failed, "failed"}, {j.Cancelled, "cancelled"}, {j.Retried, "run again"},
		{j.Evicted, "evicted and run again"}, {j.Lost, "lost and run again"}} {
		if p.n > 0 {
			text += fmt.Sprintf(", %s %s", thousands(p.n), p.what)
		}
	}
	return text
}
