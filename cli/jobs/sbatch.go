package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/sbatch"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

const sbatchLong = `Submit a batch script as Slurm's sbatch does: with the #SBATCH lines before its first command, of which those below
are honoured. Any other option, and any value that souk cannot keep, is refused by line and column; --ignore leaves
options out by their names. Options here go before those of the script. The script is copied now, and may be changed.

The script finds what most read: SLURM_JOB_ID, SLURM_ARRAY_TASK_ID, SLURM_ARRAY_TASK_COUNT, _MIN, _MAX and _STEP,
SLURM_JOB_NAME, SLURM_SUBMIT_DIR, SLURM_CPUS_PER_TASK, SLURM_MEM_PER_NODE, SLURMD_NODENAME, SLURM_RESTART_COUNT and so
on. A job is one task, or an array of them, each on one worker: several tasks that start together are a gang ("souk
gang"), and an interactive one is "souk run -it". #PBS and #BSUB lines, and SBATCH_ variables, are not read.

It starts in the directory of --chdir, or in this one if hosts share it, else in one of its own, with what --send
brings. What it writes is kept for "souk job logs" unless --output names a file there.`

// Sbatch makes the command "souk sbatch".
func Sbatch(c *cli.Env) *cobra.Command {
	b := new(batchFlags)
	cmd := &cobra.Command{Use: "sbatch [flags] [SCRIPT [ARG...]]", Short: "Submit a batch script of Slurm",
		Long: sbatchLong,
		Example: `  souk sbatch --array 1-100%10 --time 30 job.sh
  souk sbatch --parsable --wrap 'hostname'
  souk sbatch --ignore partition,account --send data/ job.sh`,
		Args: cobra.ArbitraryArgs}
	b.register(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		return doSbatch(cmd.Context(), c, cmd.Flags(), b, argv)
	}
	return cmd
}

// batchFlags are the flags of souk sbatch that are no options of a script.
type batchFlags struct {
	ignore []string
	send   []string
}

// option is an option of sbatch; its letter is known to package sbatch.
type option struct{ name, usage string }

// honoured are the options of sbatch that are kept, and what is said of each.
func honoured() []option {
	return []option{
		{"array", "1-9:2,20%3: one task for each index"},
		{"begin", "now+2hours, 16:00 or 2026-01-31T16:00"},
		{"chdir", "the directory of the workers to start in"},
		{"comment", "it has no effect"},
		{"constraint", "attributes that the worker must have, with & between them"},
		{"cpus-per-task", "CPUs of a task"},
		{"deadline", "as begin: what has not ended by then is cancelled"},
		{"dependency", "afterok:JOB:JOB,afterany:JOB,afternotok:JOB,aftercorr:JOB"},
		{"error", "a file for what it writes to stderr"},
		{"export", "ALL, NONE, or names; with NAME=VALUE, too"},
		{"gpus", "2 or a100:2"},
		{"gpus-per-node", "the same"},
		{"gpus-per-task", "the same"},
		{"gres", "gpu:2 or gpu:a100:2"},
		{"input", "a file that it reads"},
		{"job-name", "a name; capitals and other characters are replaced"},
		{"kill-on-invalid-dep", "yes, as is the default here, or no"},
		{"mem", "memory of a task: 4G, 500M; a bare number is MB"},
		{"mem-per-cpu", "the same for each CPU"},
		{"nodes", "1"},
		{"ntasks", "1"},
		{"ntasks-per-node", "1"},
		{"open-mode", "append or truncate"},
		{"output", "a file for what it writes, as out-%A_%a"},
		{"signal", "B:USR1@60, before the time limit"},
		{"time", "a limit: 90, 1:30:00 or 1-12"},
		{"wrap", "a command of the shell, in the place of a script"},
	}
}

// switches are the options of sbatch without a value that are kept.
func switches() []option {
	return []option{
		{"hold", "start nothing before souk job release"},
		{"parsable", "print the id alone"},
		{"quiet", "print nothing"},
		{"requeue", "it has no effect: a task is run again when its worker was lost"},
		{"verbose", "it has no effect"},
		{"wait", "wait for the end; the exit code is that of the task that failed first"},
	}
}

func (b *batchFlags) register(f *pflag.FlagSet) {
	f.SetInterspersed(false) // what follows the script is its own
	for _, x := range honoured() {
		f.StringP(x.name, sbatch.Letter(x.name), "", x.usage)
	}
	for _, x := range switches() {
		f.BoolP(x.name, sbatch.Letter(x.name), false, x.usage)
	}
	f.StringSliceVar(&b.ignore, "ignore", nil, "options of the script to leave out, as partition; repeatable")
	f.StringArrayVar(&b.send, "send", nil, "a file or directory that each task finds in its directory; repeatable")
}

// givenOptions returns the options on the command line, in no order that matters: each is given once.
func givenOptions(f *pflag.FlagSet) (out []sbatch.Option) {
	f.Visit(func(x *pflag.Flag) {
		o := sbatch.Option{Name: x.Name, Value: x.Value.String(), Given: true, At: sbatch.Word{Text: "--" + x.Name}}
		is := func(list []option) bool {
			return slices.ContainsFunc(list, func(y option) bool { return y.name == x.Name })
		}
		if is(honoured()) || is(switches()) && o.Value == "true" {
			out = append(out, o)
		}
	})
	return out
}

// batchJob is a script on its way to a job.
type batchJob struct {
	flags  *submitFlags
	set    *pflag.FlagSet // of flags
	cpus   int
	memory int    // MiB; 0: by default
	perCPU int    // MiB
	name   string // as the script has it
	wait   bool
	id     bool // print the id alone
	quiet  bool
}

func doSbatch(ctx context.Context, c *cli.Env, f *pflag.FlagSet, b *batchFlags, argv []string) error {
	given := givenOptions(f)
	text, name, argv, err := scriptOf(c, f, argv)
	if err != nil {
		return err
	}
	s, err := sbatch.Read(text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	options, rest, err := sbatch.Options(s.Words)
	if err == nil && len(rest) > 0 {
		err = cli.Usagef("line %d, column %d: %q is no option", rest[0].Line, rest[0].Col, rest[0].Text)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	j := &batchJob{flags: &submitFlags{send: b.send}, cpus: 1, name: filepath.Base(name)}
	j.set = j.flags.ofOneJob()
	j.flags.send, j.flags.export = b.send, "ALL"
	for _, list := range [][]sbatch.Option{options, given} {
		for i := range list {
			o := &list[i]
			if slices.Contains(b.ignore, o.Name) {
				continue
			}
			if err := j.apply(o); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	for _, n := range s.Notes {
		c.Note("%s: line %d %s", name, n.Line, n.Text)
	}
	return j.submit(ctx, c, text, s.Interpreter, argv)
}

// scriptOf returns the script, its name, and its arguments.
func scriptOf(c *cli.Env, f *pflag.FlagSet, argv []string) (text, name string, args []string, err error) {
	if wrap := f.Lookup("wrap"); wrap.Changed {
		if len(argv) > 0 {
			return "", "", nil, cli.Usagef("--wrap is in the place of a script, so %q has no use", argv[0])
		}
		return "#!/bin/sh\n" + wrap.Value.String() + "\n", "wrap", nil, nil
	}
	var in io.Reader = c.In
	if name = "sbatch"; len(argv) > 0 {
		file, err := os.Open(argv[0])
		if err != nil {
			return "", "", nil, fault.Wrap(err, fault.Invalid, fault.CodePath, "the script cannot be read")
		}
		defer file.Close()
		in, name, args = file, argv[0], argv[1:]
	}
	raw, err := io.ReadAll(io.LimitReader(in, sbatch.MaxScript+1))
	if err != nil {
		return "", "", nil, fault.Wrap(err, fault.Invalid, fault.CodePath, "the script cannot be read")
	}
	return string(raw), name, args, nil
}

// refused says of options of sbatch why they are not kept.
func refused() map[string]string {
	const none = "there is no such thing here"
	return map[string]string{
		"account": none, "qos": none, "reservation": none, "licenses": none, "mail-type": none, "mail-user": none,
		"priority": none, "nice": "use souk submit --priority", "partition": "there are no partitions; --constraint " +
			"names " +
			"attributes of workers",
		"exclude": "use --constraint", "nodelist": "use --constraint",
		"exclusive":  "a task has the CPUs that it asks for, beside others",
		"no-requeue": "a task is run again when its worker was lost", "prefer": "use souk submit --prefer",
	}
}

// apply applies an option, or refuses it.
func (j *batchJob) apply(o *sbatch.Option) error {
	if why := refused()[o.Name]; why != "" {
		return o.Wrong("--%s is not kept here: %s; --ignore %s leaves it out", o.Name, why, o.Name)
	}
	if err := j.setFlag(o); err != nil {
		return o.Wrong("--%s: %s", o.Name, err)
	}
	return nil
}

// setFlag does what an option says: by a field, or by a flag of souk submit.
func (j *batchJob) setFlag(o *sbatch.Option) error {
	if done, err := j.setField(o); done || err != nil {
		return err
	}
	flag, v, err := flagOf(o)
	if err != nil {
		return err
	}
	return j.set.Set(flag, v)
}

// setField sets the field that an option is about; done: there is one, or it has no effect.
func (j *batchJob) setField(o *sbatch.Option) (done bool, err error) {
	v := o.Value
	switch o.Name {
	case "comment", "requeue", "verbose", "wrap":
	case "wait":
		j.wait = true
	case "parsable":
		j.id = true
	case "quiet":
		j.quiet = true
	case "job-name":
		j.name = v
	case "nodes", "ntasks", "ntasks-per-node":
		if v != "1" && v != "1-1" {
			err = fmt.Errorf("a job's tasks are on one worker each, and start one by one; several that start "+
				"together are a gang: souk gang -n %s", v)
		}
	case "cpus-per-task":
		if j.cpus, err = strconv.Atoi(v); err != nil || j.cpus < 1 {
			err = fmt.Errorf("it is a number of CPUs, not %.40q", v)
		}
	case "mem":
		if j.memory, err = sbatch.Megabytes(v); err == nil && j.memory == 0 {
			err = errors.New("0, all memory of a worker, is nothing that a task can have: say how much it needs")
		}
	case "mem-per-cpu":
		j.perCPU, err = sbatch.Megabytes(v)
	case "dependency":
		j.flags.order.after, err = sbatch.Dependencies(v)
	case "constraint":
		if strings.ContainsAny(v, "|*[]()") {
			err = fmt.Errorf("attributes have & between them, and nothing else, not %.80q", v)
		}
		j.flags.require = strings.Split(v, "&")
	default:
		return false, nil
	}
	return true, err
}

// flagOf returns the flag of souk submit for an option, and its value.
func flagOf(o *sbatch.Option) (flag, v string, err error) {
	switch o.Name {
	case "hold":
		return "hold", "true", nil
	case "time":
		limit, err := sbatch.Minutes(o.Value)
		return "timeout", limit.String(), err
	case "gpus", "gpus-per-node", "gpus-per-task", "gres":
		kind, n, err := sbatch.GPUs(o.Value, o.Name == "gres")
		if v = strconv.Itoa(n); kind != "" {
			v = kind + ":" + v
		}
		return "gpus", v, err
	case "begin", "deadline":
		v, err = sbatch.Begin(o.Value)
		return o.Name, v, err
	case "kill-on-invalid-dep":
		if v = map[string]string{"yes": "cancel", "no": "wait"}[o.Value]; v == "" {
			err = errors.New("it is yes or no")
		}
		return "unmet", v, err
	}
	other := map[string]string{"error": "stderr", "input": "stdin", "output": "stdout"}
	return cmp.Or(other[o.Name], o.Name), o.Value, nil
}

// scriptFile is where what reads the script finds it.
const scriptFile = "/dev/fd/3"

// prelude sets the variables of Slurm that differ from task to task, and has the script read. It is read by /bin/sh.
const prelude = `export SLURM_JOB_ID="$SOUK_JOB" SLURM_JOBID="$SOUK_JOB" SLURMD_NODENAME="$SOUK_WORKER"
export SLURM_JOB_NODELIST="$SOUK_WORKER" SLURM_NODELIST="$SOUK_WORKER"
if [ -n "$SLURM_ARRAY_TASK_COUNT" ]; then export SLURM_ARRAY_JOB_ID="$SOUK_JOB" SLURM_ARRAY_TASK_ID="$SOUK_INDEX"; fi
if [ "$SOUK_ATTEMPT" -gt 1 ]; then export SLURM_RESTART_COUNT=$((SOUK_ATTEMPT - 1)); fi
script=$SOUK_SCRIPT
unset SOUK_SCRIPT
exec "$@" 3<<end-of-script
$script
end-of-script`

// commandText returns the command of a job for people: of a batch script, what reads it and its arguments.
func commandText(s *jobs.Spec) string {
	argv := s.Command
	if len(argv) > 4 && argv[2] == prelude {
		argv = slices.Clone(argv[4:])
		if i := slices.Index(argv, scriptFile); i > 0 {
			argv[i] = "(batch script)"
		}
	}
	return strings.Join(argv, " ")
}

// submit submits the job.
func (j *batchJob) submit(ctx context.Context, c *cli.Env, script string, interpreter, argv []string) error {
	if j.memory == 0 {
		j.memory = j.perCPU * j.cpus
	}
	set := map[string]string{"name": validName(j.name), "cpus": strconv.Itoa(j.cpus),
		"cpu-kind": machine.Performance}
	if j.memory > 0 {
		set["memory"] = strconv.Itoa(j.memory) + "m"
	}
	for name, v := range set {
		if err := j.set.Set(name, v); err != nil {
			return cli.Usagef("--%s: %s", name, err)
		}
	}
	parcels, done, err := parcelsOf(c, j.flags)
	defer done()
	if err != nil {
		return err
	}
	command := slices.Concat([]string{"/bin/sh", "-c", prelude, "sbatch"}, interpreter, []string{scriptFile}, argv)
	spec, err := specOf(c, j.flags, command, sentOf(parcels))
	if err != nil {
		return err
	}
	j.fillEnv(&spec, script)
	cl, err := c.Client()
	if err != nil {
		return err
	}
	if err := sendParcels(ctx, c, cl, parcels, &spec); err != nil {
		return err
	}
	x, err := cl.SubmitJob(ctx, "", spec)
	switch {
	case err != nil:
		return err
	case j.quiet:
	case c.JSON && !j.wait:
		c.JSONLine(c.Out, x)
	case j.id:
		c.Printf("%s\n", x.ID)
	default:
		c.Printf("Submitted batch job %s\n", x.ID)
	}
	if j.wait {
		return waitJob(ctx, c, cl, x, 0)
	}
	return nil
}

// fillEnv sets the variables of Slurm that all tasks share.
func (j *batchJob) fillEnv(s *jobs.Spec, script string) {
	dir, _ := os.Getwd()
	host, _ := os.Hostname()
	vars := map[string]string{"SOUK_SCRIPT": strings.TrimSuffix(script, "\n"), "SLURM_JOB_NAME": j.name,
		"SLURM_SUBMIT_DIR": dir, "SLURM_SUBMIT_HOST": host, "SLURM_CPUS_PER_TASK": strconv.Itoa(j.cpus),
		"SLURM_CPUS_ON_NODE": strconv.Itoa(j.cpus), "SLURM_JOB_CPUS_PER_NODE": strconv.Itoa(j.cpus),
		"SLURM_MEM_PER_NODE": strconv.Itoa(s.MemoryMB)}
	for _, one := range []string{"SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_NTASKS", "SLURM_NPROCS"} {
		vars[one] = "1"
	}
	for _, zero := range []string{"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"} {
		vars[zero] = "0"
	}
	if s.GPUs > 0 {
		vars["SLURM_GPUS"], vars["SLURM_GPUS_ON_NODE"] = strconv.Itoa(s.GPUs), strconv.Itoa(s.GPUs)
	}
	if j.flags.array != "" {
		all := s.Indices()
		vars["SLURM_ARRAY_TASK_COUNT"], vars["SLURM_ARRAY_TASK_MIN"] = strconv.Itoa(all.Len()),
			strconv.Itoa(all.First())
		vars["SLURM_ARRAY_TASK_MAX"], vars["SLURM_ARRAY_TASK_STEP"] = strconv.Itoa(all.Last()), strconv.Itoa(all.Step())
	}
	if s.Env == nil {
		s.Env = map[string]string{}
	}
	for name, v := range vars {
		s.Env[name] = v
	}
}

// validName makes a name of a job of one of Slurm's, which may have any characters.
func validName(name string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '-'
	}, strings.ToLower(name))
	clean = strings.Trim(clean, "-_.")
	if len(clean) > maxJobName {
		clean = strings.Trim(clean[:maxJobName], "-_.")
	}
	if clean == "" {
		return "sbatch"
	}
	return clean
}

const maxJobName = 63
