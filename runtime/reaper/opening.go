package reaper

import (
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/frame"
	"github.com/soukhq/souk/runtime/reaper/space"
	"github.com/soukhq/souk/runtime/reaper/stdio"
)

// openings opens the directories and files that users name for their programs. Each opening has a thread of its own,
// because it takes the user's rights, and because the file system may not answer: that of a dead NFS server, or one
// that a user has made (FUSE). Such a thread is left behind, and ends when the file system answers.
type openings struct {
	threads  *threads
	patience time.Duration

	places chan struct{} // a semaphore: held until the files are closed again, which may block too
	left   atomic.Int32  // threads left behind
}

const (
	// maxOpenings bounds the openings at once, and with them the threads left behind. More wait.
	maxOpenings = 8
	// openPatience is how long an opening may take, with the wait for its place.
	openPatience = 10 * time.Second
)

func newOpenings(t *threads) *openings {
	return &openings{threads: t, patience: openPatience, places: make(chan struct{}, maxOpenings)}
}

// opened is what an opening has opened.
type opened struct {
	*stdio.Opened
	space *os.File // the mount namespace that was built for the program; nil: its thread's view
	path  string   // the program's path, relative to the directory if it starts with "./"; "": not looked up
	named string   // the directory's path, for people

	release func() // frees its place
}

// close closes the files in the background: closing a file on NFS writes what others have written to it, and so waits
// for its server. o may be nil.
func (o *opened) close() {
	if o == nil {
		return
	}
	go func() {
		o.closeNow()
		o.release()
	}()
}

func (o *opened) closeNow() {
	o.Close()
	_ = o.space.Close() // closing nil only returns an error
}

// An opening's outcome is decided once: it is given up, or it may truncate files.
const (
	openingGivenUp = 1
	openingMayAct  = 2
)

// openFunc opens files on a thread in the machines' view, which ends afterwards. It calls begin before it changes the
// contents of a file; false: its caller has given up.
type openFunc func(begin func() bool) (*opened, error)

// openingResult is what an openFunc has returned.
type openingResult struct {
	got *opened
	err error
}

// run calls open, and waits for it no longer than p.patience. what names the files for people. The caller closes the
// result. If open is not called, unused is.
func (p *openings) run(what string, open openFunc, unused func()) (*opened, error) {
	timer := time.NewTimer(p.patience)
	defer timer.Stop()
	t, err := p.takePlace(what, timer.C)
	if err != nil {
		unused()
		return nil, err
	}
	var state atomic.Int32
	done := make(chan openingResult, 1)
	t.jobs <- func() {
		got, err := open(func() bool { return state.CompareAndSwap(0, openingMayAct) })
		done <- openingResult{got, err}
	}
	t.giveUpThread() // it ends after the job
	select {
	case r := <-done:
		if r.err != nil {
			p.release()
			return nil, r.err
		}
		r.got.release = p.release
		return r.got, nil
	case <-timer.C:
		state.CompareAndSwap(0, openingGivenUp)
		p.leaveBehind(done)
		return nil, p.lateFault(what)
	}
}

// takePlace waits for a place until late, and takes a thread.
func (p *openings) takePlace(what string, late <-chan time.Time) (*parkedThread, error) {
	if n := p.left.Load(); n >= maxOpenings {
		return nil, fault.New(fault.Unavailable, runtime.CodeStdio, "%s cannot be opened now on this worker: %d "+
			"threads wait already for file systems that do not answer; try again when they do", what, n)
	}
	select {
	case p.places <- struct{}{}:
	case <-late:
		return nil, p.lateFault(what)
	}
	t, err := p.threads.takeThread()
	if err != nil {
		p.release()
	}
	return t, err
}

func (p *openings) lateFault(what string) error {
	return fault.New(fault.Unavailable, runtime.CodeStdio, "%s cannot be opened in %v on this worker: the file system "+
		"does not answer, as that of a dead server; try again when it does, or name another", what, p.patience)
}

// leaveBehind counts a thread that is left behind until it has ended.
func (p *openings) leaveBehind(done <-chan openingResult) {
	p.left.Add(1)
	go func() {
		if r := <-done; r.err == nil {
			r.got.closeNow()
		}
		p.left.Add(-1)
		p.release()
	}()
}

func (p *openings) release() { <-p.places }

// openFor opens the directory and the files of a start, where its program will see them. It calls closeVolumes once
// they are shown there, in any case.
func (r *Reaper) openFor(m *machine, s *frame.Start, o *owner, shown *space.Plan, closeVolumes func()) (*opened,
	error) {
	q := &stdio.Request{User: o.fileUser(), Dir: s.Dir, Files: s.Stdio}
	what := strings.Join(named(s), ", ")
	if q.Dir == "" {
		q.Dir = r.apart.workDir(m.id)
	}
	return r.openings.run(what, func(begin func() bool) (got *opened, err error) {
		defer closeVolumes()
		got = &opened{named: q.Dir}
		if shown != nil {
			if got.space, err = buildSpace(shown); err != nil {
				return nil, err
			}
		}
		q.Begin, q.Find = begin, func(dir string) error {
			got.path, err = findBelow(s.Argv, s.Env, dir)
			return err
		}
		if got.Opened, err = stdio.Open(q); err != nil {
			return nil, errors.Join(err, closeSpace(got.space))
		}
		return got, nil
	}, closeVolumes)
}

// named returns the paths that a start names, for people.
func named(s *frame.Start) (paths []string) {
	for _, p := range []string{s.Dir, s.Stdio.In, s.Stdio.Out, s.Stdio.Err} {
		if p != "" {
			paths = append(paths, p)
		}
	}
	return paths
}

// buildSpace builds a machine's mount namespace on the calling thread, which stays in it.
func buildSpace(p *space.Plan) (*os.File, error) {
	if err := space.Build(p); err != nil {
		return nil, spaceFault(err)
	}
	f, err := os.Open("/proc/thread-self/ns/mnt")
	if err != nil {
		return nil, spaceFault(err)
	}
	return f, nil
}

func spaceFault(err error) error {
	return fault.Wrap(err, fault.Precondition, codeNamespace,
		"volumes and files cannot be shown to the machine at their paths: %s", err)
}

func closeSpace(f *os.File) error {
	if f == nil {
		return nil
	}
	return f.Close()
}

// findBelow is findProgram for a program that starts in the directory that dir leads to on this thread alone. A path
// below it is returned relative to it: the interpreter of a script opens it again.
func findBelow(argv, env []string, dir string) (string, error) {
	path, err := findProgram(argv, env, dir)
	if err == nil {
		err = stdio.CheckProgram(path, argv[0])
	}
	if rest, below := strings.CutPrefix(path, dir+"/"); below {
		path = "./" + rest
	}
	return path, err
}

// fileUser returns the user whose rights to files count; nil: the reaper's own.
func (o *owner) fileUser() *stdio.User {
	if o == nil {
		return nil
	}
	return &stdio.User{UID: o.uid, GID: o.gid, Groups: o.groups, Umask: o.umask}
}

// openDir opens a directory for a command, where a life sees it, and looks for its program. space is the life's mount
// namespace; nil: there is one for all. Without argv no program is looked for.
func (r *Reaper) openDir(dir string, o *owner, in *os.File, argv, env []string) (*opened, error) {
	return r.openings.run(dir, func(func() bool) (got *opened, err error) {
		got = &opened{named: dir}
		q := &stdio.Request{User: o.fileUser(), Dir: dir}
		if argv != nil {
			q.Find = func(dir string) error {
				got.path, err = findBelow(argv, env, dir)
				return err
			}
		}
		if in != nil {
			if err := r.apart.seenView().Join(in); err != nil {
				return nil, joinFault(err)
			}
		}
		if got.Opened, err = stdio.Open(q); err != nil {
			return nil, err
		}
		return got, nil
	}, func() {})
}

func joinFault(err error) error {
	return fault.Wrap(err, fault.Unavailable, codeNamespace, "the machine's mount namespace cannot be entered")
}

// findDir reports whether a program could start in a directory now: of the user of the host that s names, or of a user
// of its own.
func findDir(r *Reaper, dir string, s *frame.Start) error {
	if s == nil || dir == "" {
		return fault.New(fault.Invalid, fault.CodePath, "no directory is named that is to be looked for")
	}
	if err := new(runtime.Stdio).Check(dir, false, false); err != nil {
		return err
	}
	m := new(machine)
	o, err := r.apart.ownerOf(m, s)
	if err != nil {
		return err
	}
	if m.uid != 0 {
		defer r.apart.users.Give(m.uid)
	}
	got, err := r.openDir(dir, o, nil, nil, nil)
	got.close()
	return err
}
