package batch

import (
	"context"
	"io"
	"path/filepath"
	"time"

	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/store/sent"
)

// keepTime is how long it may take to move away the files that a task left.
const keepTime = time.Minute

// giveFiles gives a task its directory, its input and output, and what its job was sent. The caller calls release when
// the task has begun.
func (r *Runner) giveFiles(s *runtime.Spec, g *jobs.Grant) (release func(), err error) {
	f := &g.Terms.Files
	if f.IsZero() {
		return func() {}, nil
	}
	named := func(pattern string) string {
		return g.Terms.ExpandPattern(pattern, g.Life.Index, string(r.o.Worker))
	}
	s.Dir = f.Dir
	s.Stdio = runtime.Stdio{In: named(f.Stdin), Out: named(f.Stdout), Err: named(f.Stderr), Append: f.Append}
	if s.Stdio.Err == "" {
		s.Stdio.Err = s.Stdio.Out // as with sbatch
	}
	var held []func()
	release = func() {
		for _, done := range held {
			done()
		}
	}
	for _, x := range f.Sent {
		dir, done, err := r.treeOf(g.Terms.App, x)
		if err != nil {
			release()
			return nil, err
		}
		held = append(held, done)
		if x.Name == jobs.StdinName {
			s.Stdio.In, s.Stdio.InByWorker = filepath.Join(dir, jobs.StdinName), true
		} else {
			s.Shown = append(s.Shown, runtime.Shown{Dir: dir})
		}
	}
	if len(f.Keep) > 0 {
		if err := r.promiseFiles(s.Machine, f.Keep); err != nil {
			release()
			return nil, err
		}
	}
	return release, nil
}

func (r *Runner) treeOf(app string, x jobs.Sent) (dir string, release func(), err error) {
	if r.o.Sent == nil {
		return "", nil, fault.New(fault.Unimplemented, fault.CodeFile, "this worker cannot be sent files")
	}
	return r.o.Sent.Tree(r.ctx, sent.Key{App: app, Digest: x.Digest}, x.At)
}

func (r *Runner) promiseFiles(task string, patterns []string) error {
	if _, is := r.o.Runtime.(runtime.FileKeeper); !is || r.o.Kept == nil {
		return fault.New(fault.Unimplemented, fault.CodeFile, "this worker keeps no files of tasks")
	}
	return r.o.Kept.Promise(task, patterns)
}

// keepFiles keeps the files of a task that has ended, as far as it was promised, and counts them in its result.
func (r *Runner) keepFiles(task string, res *jobs.Result) {
	keeper, is := r.o.Runtime.(runtime.FileKeeper)
	if !is || r.o.Kept == nil || r.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, keepTime)
	defer cancel()
	left, promised := r.o.Kept.Keep(task, func(patterns []string, to string) error {
		return keeper.KeepFiles(ctx, task, patterns, to)
	})
	if !promised {
		return
	}
	res.Left = &jobs.Left{Files: left.Files, Bytes: left.Bytes, Why: left.Why}
	if res.Attempt > 1 {
		r.forgetOlderFiles(res)
	}
}

// settleFiles forgets which files of a task were to be kept, when its result is recorded and it is removed.
func (r *Runner) settleFiles(task string) {
	if r.o.Kept != nil {
		r.o.Kept.Settle(task)
	}
}

// forgetOlderFiles removes what earlier attempts of a task left here.
func (r *Runner) forgetOlderFiles(res *jobs.Result) {
	for _, task := range r.o.Kept.Tasks() {
		l, is := jobs.ParseLife(task)
		if is && l.Job == res.Job && l.Index == res.Index && l.Attempt < res.Attempt {
			r.o.Kept.Forget(task)
		}
	}
}

// Files writes the files that an attempt left, as a tar stream.
func (r *Runner) Files(ctx context.Context, l jobs.Life, w io.Writer) error {
	if r.o.Kept == nil {
		return fault.New(fault.Unimplemented, fault.CodeFile, "this worker keeps no files of tasks")
	}
	return r.o.Kept.Pack(ctx, l.String(), w)
}
