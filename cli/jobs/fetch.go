package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cli/machines"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

func cmdJobFetch(c *cli.Env) *cobra.Command {
	var to string
	cmd := &cobra.Command{Use: "fetch JOB [INDEX...]", Short: "Fetch the files that tasks left",
		Long: `Fetch the files that tasks left and that "souk submit --out" keeps: of all tasks that have ended, or of these.
They are written to a directory named after the job, each task's to one named after its index there; those of a job
with one task to the directory itself. What was fetched before is left as it is, so a fetch can be repeated while tasks
run; a directory with anything else is not touched.`,
		Example: "  souk job fetch sweep\n  souk job fetch sweep 17 20-29 --to results",
		Args:    cli.Args(1, -1, "a job, by id or name, and any number of indices of tasks")}
	cmd.Flags().StringVar(&to, "to", "", "the directory to write to; it is made (default: one with the name of the "+
		"job)")
	_ = cmd.MarkFlagDirname("to") // there is such a flag
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		var list jobs.Indices
		for _, text := range given[1:] {
			more, err := jobs.ParseIndices(text)
			if err != nil {
				return cli.Usagef("%q is no index of a task; write INDEX or FIRST-LAST, as 7 or 10-20", text)
			}
			list = list.With(more)
		}
		return fetchJob(cmd.Context(), c, given[0], list, to)
	}
	return cmd
}

// fetched is what was fetched of one task.
type fetched struct {
	Index int    `json:"index"`
	Dir   string `json:"dir,omitempty"`
	Files int    `json:"files"`
	Here  bool   `json:"here,omitempty"` // it was fetched before
	Error string `json:"error,omitempty"`
}

func fetchJob(ctx context.Context, c *cli.Env, ref string, list jobs.Indices, to string) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	j, err := cl.Job(ctx, ref)
	if err != nil {
		return err
	}
	// before anything is said of the job: who may not read it learns nothing, not even that it keeps files
	tasks, err := cl.JobTasks(ctx, j.ID)
	if err != nil {
		return err
	}
	if len(j.Spec.Keep) == 0 {
		return fault.New(fault.Precondition, fault.CodeJob, "%s keeps no files of its tasks: submit it with --out "+
			"PATTERN",
			jobLabel(&j))
	}
	if list != nil {
		if index, is := j.Spec.Indices().Missing(list); is {
			return fault.New(fault.NotFound, fault.CodeJobNotFound, "%s has the tasks %s, and no task %d",
				jobLabel(&j), j.Spec.Indices(), index)
		}
		tasks = slices.DeleteFunc(tasks, func(t jobs.Task) bool { return !list.Has(t.Index) })
	}
	to = cmp.Or(to, jobRef(&j))
	var out []fetched
	var failed []error
	unended, files := 0, 0
	for i := range tasks {
		t := &tasks[i]
		if t.Files == nil && t.ExitCode == nil && list == nil {
			if t.State != "cancelled" { // those have nothing to fetch
				unended++
			}
			continue
		}
		x := fetched{Index: t.Index, Dir: to}
		if j.Tasks > 1 {
			x.Dir = filepath.Join(to, strconv.Itoa(t.Index))
		}
		err := fetchTask(ctx, cl, j.ID, t, &x)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			x.Dir, x.Error = "", err.Error()
			failed = append(failed, fmt.Errorf("task %d: %w", t.Index, err))
		}
		files += x.Files
		out = append(out, x)
	}
	if c.JSON {
		cli.JSONList(c, out)
	} else {
		if n := len(out) - len(failed); n > 0 {
			c.Printf("%s of %s in %s\n", countOf(files, "file", "files"), countOf(n, "task", "tasks"), to)
		}
		if unended > 0 {
			c.Note("%s not ended yet; fetch again later", countOf(unended, "task has", "tasks have"))
		}
	}
	return severalErrors(c, failed)
}

// severalErrors prints errors, but for one alone, which is returned.
func severalErrors(c *cli.Env, failed []error) error {
	if len(failed) < 2 {
		return errors.Join(failed...)
	}
	const most = 10
	for _, err := range failed[:min(len(failed), most)] {
		c.PrintError(err)
	}
	return cli.Several{Errs: failed}
}

// fetchTask fetches the files of one task into x.Dir, which is there only once it has all of them.
func fetchTask(ctx context.Context, cl *client.Client, job string, t *jobs.Task, x *fetched) error {
	if t.Files == nil || t.Files.Files == 0 {
		why := "it left none"
		switch {
		case t.Files != nil:
			why = cmp.Or(t.Files.Why, why)
		case t.ExitCode == nil:
			why = "it is " + t.State
		}
		return fault.New(fault.NotFound, fault.CodePath, "no files are kept: %s", why)
	}
	if here, err := wasFetched(x.Dir, t); here || err != nil {
		x.Files, x.Here = countFiles(x.Dir), here
		return err
	}
	above := filepath.Dir(x.Dir)
	if err := os.MkdirAll(above, 0o755); err != nil {
		return fault.Wrap(err, fault.Precondition, fault.CodeWrite, "the directory %s cannot be made", above)
	}
	part, err := os.MkdirTemp(above, ".souk-fetch-")
	if err != nil {
		return fault.Wrap(err, fault.Precondition, fault.CodeWrite, "the directory %s cannot be written to", above)
	}
	defer os.RemoveAll(part)
	whole := filepath.Join(part, "files") // with the modes of a directory that the user makes
	if err := os.Mkdir(whole, 0o755); err != nil {
		return fault.Wrap(err, fault.Precondition, fault.CodeWrite, "the directory %s cannot be made", whole)
	}
	root, err := os.OpenRoot(whole)
	if err != nil {
		return fault.Wrap(err, fault.Precondition, fault.CodeWrite, "the directory %s cannot be used", whole)
	}
	defer root.Close()
	n, left := machines.Receive(root, func(w io.Writer) error { return cl.TaskFiles(ctx, job, t.Index, w) })
	if left != nil && fault.CodeOf(left) != fault.CodeFileKind {
		return left
	}
	if err := root.WriteFile(fetchedMark, []byte(t.Files.Life+"\n"), 0o644); err != nil {
		return fault.Wrap(err, fault.Precondition, fault.CodeWrite, "%s cannot be written to", whole)
	}
	if err := os.Rename(whole, x.Dir); err != nil {
		return fault.Wrap(err, fault.Precondition, fault.CodeWrite, "%s cannot be renamed to %s", whole, x.Dir)
	}
	x.Files = n
	return left
}

// fetchedMark is the file in a directory with fetched files that says which attempt left them.
const fetchedMark = ".souk-fetched"

// wasFetched reports whether a directory has what a task left. It is a Conflict if it has something else: nothing of
// that is taken for what the task left, or written over.
func wasFetched(dir string, t *jobs.Task) (bool, error) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	raw, err := os.ReadFile(filepath.Join(dir, fetchedMark))
	if err == nil && strings.TrimSpace(string(raw)) == t.Files.Life {
		return true, nil
	}
	return false, fault.New(fault.Conflict, fault.CodePath, "%s is there already, and was not fetched of this "+
		"attempt: "+
		"move it away, or name another directory (--to)", dir)
}

func countFiles(dir string) (n int) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != fetchedMark {
			n++
		}
		return nil
	})
	return n
}
