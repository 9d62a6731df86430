package jobs

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

// Bounds of a file of jobs.
const (
	maxJobsFile = 1 << 20 // bytes
	maxFileJobs = 200
)

// fileJob is one job of a file of jobs that wait for each other.
type fileJob struct {
	name    string // in the file
	flags   *submitFlags
	argv    []string
	after   []jobs.Dependency // by names in the file, or by other jobs' names and ids
	parcels []parcel
	spec    jobs.Spec
	id      string
	first   bool // it waits for no other of the file
}

// readJobs reads a file with a table for each job. Its keys are the flags of souk submit, and command.
func readJobs(name string, text []byte) ([]*fileJob, error) {
	var tables map[string]any
	if err := toml.Unmarshal(text, &tables); err != nil {
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			row, column := at.Position()
			return nil, cli.Usagef("%s:%d:%d: %s", name, row, column, strings.TrimPrefix(at.Error(), "toml: "))
		}
		return nil, cli.Usagef("%s is no TOML: %s", name, err)
	}
	if n := len(tables); n == 0 || n > maxFileJobs {
		return nil, cli.Usagef("%s has %d jobs; a file has 1 to %d of them, each a table such as [sweep]", name, n,
			maxFileJobs)
	}
	var all []*fileJob
	for _, key := range slices.Sorted(maps.Keys(tables)) {
		table, is := tables[key].(map[string]any)
		if !is {
			return nil, cli.Usagef("%s has a table for each job, such as [sweep], and %s is none", name, key)
		}
		j, err := readJob(key, table)
		if err != nil {
			return nil, cli.Usagef("%s: [%s] %s", name, key, err)
		}
		all = append(all, j)
	}
	return inOrder(name, all)
}

// readJob reads the table of one job.
func readJob(name string, table map[string]any) (*fileJob, error) {
	j := &fileJob{name: name, flags: new(submitFlags)}
	f := j.flags.ofOneJob()
	for _, key := range slices.Sorted(maps.Keys(table)) {
		values, err := textsOf(table[key])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		if key == "command" {
			if _, list := table[key].([]any); !list {
				return nil, errors.New("command is a list, as [\"/bin/sh\", \"-c\", \"echo hello\"]: no shell reads it")
			}
			j.argv = values
			continue
		}
		flag := f.Lookup(key)
		if flag == nil {
			return nil, fmt.Errorf("%s is no key of a job; keys are command and the flags of souk submit, as array",
				key)
		}
		for _, v := range values {
			if err := f.Set(key, v); err != nil {
				return nil, fmt.Errorf("%s = %q is not understood; see \"souk submit --help\"", key, v)
			}
		}
	}
	if len(j.argv) == 0 && j.flags.image == "" {
		return nil, errors.New("has no command")
	}
	if j.flags.stdin == jobs.StdinName {
		return nil, errors.New("stdin: no job of a file reads what comes in")
	}
	if j.flags.name == "" {
		j.flags.name = name
	}
	for _, text := range j.flags.order.after {
		x, err := jobs.ParseDependency(text)
		if err != nil {
			return nil, fmt.Errorf("after: %w", err)
		}
		j.after = append(j.after, x)
	}
	j.flags.order.after = nil
	return j, nil
}

// textsOf returns a TOML value as the texts of a flag.
func textsOf(v any) (out []string, err error) {
	switch x := v.(type) {
	case string, bool, int64, float64:
		return []string{fmt.Sprint(x)}, nil
	case []any:
		for _, e := range x {
			texts, err := textsOf(e)
			if _, nested := e.([]any); err != nil || nested {
				return nil, errors.New("it is a list of texts or numbers")
			}
			out = append(out, texts...)
		}
		return out, nil
	}
	return nil, errors.New("it is a text, a number, true or false, or a list of them")
}

// inOrder sorts jobs so that each comes after those of the file that it waits for.
func inOrder(file string, all []*fileJob) (out []*fileJob, err error) {
	named := map[string]*fileJob{}
	for _, j := range all {
		named[j.name] = j
	}
	const begun, done = 1, 2
	state := map[*fileJob]int{}
	var visit func(j *fileJob, path []string) error
	visit = func(j *fileJob, path []string) error {
		path = append(path, j.name)
		switch state[j] {
		case begun:
			path = path[slices.Index(path, j.name):]
			return cli.Usagef("%s: these jobs wait for each other, so that none could ever start: %s", file,
				strings.Join(path, " after "))
		case done:
			return nil
		}
		state[j] = begun
		for _, x := range j.after {
			if other := named[x.Job]; other != nil {
				if err := visit(other, path); err != nil {
					return err
				}
			}
		}
		state[j] = done
		out = append(out, j)
		return nil
	}
	for _, j := range all {
		if err := visit(j, nil); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// submitFile submits the jobs of a file: all, or none.
func submitFile(ctx context.Context, c *cli.Env, name string, wait bool) error {
	text, err := readJobsFile(c, name)
	if err != nil {
		return err
	}
	all, err := readJobs(name, text)
	if err != nil {
		return err
	}
	ids := map[string]string{}
	for _, j := range all {
		done := func() {}
		if j.parcels, done, err = parcelsOf(c, j.flags); err != nil {
			return err
		}
		defer done()
		if j.spec, err = specOf(c, j.flags, j.argv, sentOf(j.parcels)); err == nil {
			err = checkProgram(j.argv, j.parcels)
		}
		if err != nil {
			return fmt.Errorf("%s: [%s] %w", name, j.name, err)
		}
		var random [8]byte
		_, _ = rand.Read(random[:]) // it never fails
		j.id = jobs.ID(binary.BigEndian.Uint64(random[:]))
		j.first = true
		for _, x := range j.after {
			if id := ids[x.Job]; id != "" {
				x.Job, j.first = id, false
			}
			j.spec.After = append(j.spec.After, x)
		}
		ids[j.name] = j.id
	}
	cl, err := c.Client()
	if err != nil {
		return err
	}
	made, err := submitAll(ctx, c, cl, all)
	if err != nil {
		return err
	}
	return answerFile(ctx, c, made, wait)
}

func readJobsFile(c *cli.Env, name string) ([]byte, error) {
	f := io.NopCloser(c.In)
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, fault.Wrap(err, fault.Invalid, fault.CodePath, "the file of jobs cannot be read")
		}
		f = file
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxJobsFile+1))
	switch {
	case err != nil:
		return nil, fault.Wrap(err, fault.Invalid, fault.CodePath, "the file of jobs cannot be read")
	case len(text) > maxJobsFile:
		return nil, cli.Usagef("%s is larger than %d bytes, and a file of jobs is not", name, maxJobsFile)
	}
	return text, nil
}

// submitAll submits jobs. Those that wait for no other are on hold until all are accepted; if one is not, the others
// are cancelled.
func submitAll(ctx context.Context, c *cli.Env, cl *client.Client, all []*fileJob) (made []jobs.Job, err error) {
	for _, j := range all {
		if err = sendParcels(ctx, c, cl, j.parcels, &j.spec); err != nil {
			break
		}
		spec := j.spec
		spec.Hold = spec.Hold || j.first
		var x jobs.Job
		if x, err = cl.SubmitJob(ctx, j.id, spec); err != nil {
			err = fmt.Errorf("[%s] %w", j.name, err)
			break
		}
		made = append(made, x)
	}
	if err != nil {
		for _, x := range made {
			if _, again := cl.CancelJob(context.WithoutCancel(ctx), x.ID); again != nil {
				c.Note("%s is on hold, and could not be cancelled: %s", jobLabel(&x), again)
			}
		}
		return nil, fmt.Errorf("none of the jobs was started: %w", err)
	}
	for i := range made {
		if all[i].spec.Hold || !all[i].first {
			continue
		}
		x, err := cl.ReleaseJob(ctx, made[i].ID)
		if err != nil {
			return nil, fmt.Errorf("%s is on hold: %w", jobLabel(&made[i]), err)
		}
		made[i] = x
	}
	return made, nil
}

// answerFile says which jobs are accepted, or waits for their ends.
func answerFile(ctx context.Context, c *cli.Env, made []jobs.Job, wait bool) error {
	if wait {
		refs := make([]string, len(made))
		for i := range made {
			refs[i] = made[i].ID
		}
		return waitJobs(ctx, c, refs, 0)
	}
	for i := range made {
		j := &made[i]
		if c.JSON {
			c.JSONLine(c.Out, j)
			continue
		}
		c.Printf("%s is accepted: %s\n", jobLabel(j), countOf(j.Tasks, "task", "tasks"))
	}
	if !c.JSON {
		c.Printf("  next   souk job ls\n         souk job wait %s\n", jobRef(&made[len(made)-1]))
	}
	return nil
}

// checkFile refuses what is of no use beside --file.
func (o *submitFlags) checkFile(argv []string) error {
	if len(argv) > 0 {
		return cli.Usagef("with --file the commands are in the file, so %q has no use", argv[0])
	}
	var lost error
	own := new(submitFlags).ofOneJob()
	o.set.Visit(func(f *pflag.Flag) {
		if own.Lookup(f.Name) != nil {
			lost = cli.Usagef("with --file, --%s has no effect: say it in the table of a job", f.Name)
		}
	})
	return lost
}

// ofOneJob returns the flags of one job.
func (o *submitFlags) ofOneJob() *pflag.FlagSet {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.register(f)
	return f
}
