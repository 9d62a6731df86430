package reaper

import (
	"errors"
	"os"
	"strings"
	"sync"
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

	mu    sync.Mutex
	all   openingCount
	users map[int]openingCount // by uid
	freed chan struct{}        // closed, and replaced, when a place becomes free
	later map[int]func()       // by uid: called when none of the user's programs hangs any more
}

// openingCount counts places: each is held until the files are closed again, which may block too.
type openingCount struct {
	held, left int // left: those whose thread was left behind
	hanging    int // programs that hang in exec, which hold no place; for one user alone
}

const (
	// maxOpenings bounds the openings at once, and with them the threads left behind. More wait.
	maxOpenings = 8
	// maxUserOpenings bounds those of one user, who can have a file system that does not answer on purpose.
	maxUserOpenings = 6
	// openPatience is how long an opening may take, with the wait for its place.
	openPatience = 10 * time.Second
)

func newOpenings(t *threads) *openings {
	return &openings{threads: t, patience: openPatience, users: make(map[int]openingCount), freed: make(chan struct{})}
}

// opened is what an opening has opened.
type opened struct {
	*stdio.Opened
	space *os.File // the mount namespace that was built for the program; nil: its thread's view
	path  string   // the program's path, relative to the directory if it starts with "./"; "": not looked up
	env   []string // of the program that was looked up
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
func (p *openings) run(o *owner, what string, open openFunc, unused func()) (*opened, error) {
	timer := time.NewTimer(p.patience)
	defer timer.Stop()
	user := o.number()
	t, err := p.takeThread(user, what, timer.C)
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
			p.count(user, -1, 0)
			return nil, r.err
		}
		r.got.release = func() { p.count(user, -1, 0) }
		return r.got, nil
	case <-timer.C:
		state.CompareAndSwap(0, openingGivenUp)
		p.count(user, 0, 1)
		go func() {
			if r := <-done; r.err == nil {
				r.got.closeNow()
			}
			p.count(user, -1, -1)
		}()
		return nil, p.lateFault(what)
	}
}

// takeThread waits for a place until late, and takes a thread.
func (p *openings) takeThread(user int, what string, late <-chan time.Time) (*parkedThread, error) {
	for {
		got, left, freed := p.tryPlace(user)
		if got {
			break
		}
		if left > 0 {
			return nil, fault.New(fault.Unavailable, runtime.CodeStdio, "%s cannot be opened now on this worker: %d "+
				"threads or programs wait already for file systems that do not answer; try again when they do", what,
				left)
		}
		select {
		case <-freed:
		case <-late:
			return nil, p.lateFault(what)
		}
	}
	t, err := p.threads.takeThread()
	if err != nil {
		p.count(user, -1, 0)
	}
	return t, err
}

// tryPlace takes a place for a user if one is free. left is the number of threads left behind, if they have all places
// that the user could have; otherwise, freed is closed when a place becomes free.
func (p *openings) tryPlace(user int) (got bool, left int, freed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.users[user]
	switch {
	case u.left+u.hanging >= maxUserOpenings:
		return false, u.left + u.hanging, nil
	case p.all.left >= maxOpenings:
		return false, p.all.left, nil
	case p.all.held >= maxOpenings || u.held >= maxUserOpenings:
		return false, 0, p.freed
	}
	p.countLocked(user, 1, 0)
	return true, 0, nil
}

// count adds to the places of a user.
func (p *openings) count(user, held, left int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.countLocked(user, held, left)
	if held < 0 {
		close(p.freed)
		p.freed = make(chan struct{})
	}
}

func (p *openings) countLocked(user, held, left int) {
	u := p.users[user]
	u.held, u.left = u.held+held, u.left+left
	p.all.held, p.all.left = p.all.held+held, p.all.left+left
	p.setLocked(user, u)
}

func (p *openings) setLocked(user int, u openingCount) {
	p.users[user] = u
	if u == (openingCount{}) {
		delete(p.users, user)
	}
}

// countHanging adds to a user's programs that hang in exec.
func (p *openings) countHanging(user, n int) {
	p.mu.Lock()
	u := p.users[user]
	u.hanging += n
	p.setLocked(user, u)
	var f func()
	if u.hanging == 0 {
		f = p.later[user]
		delete(p.later, user)
	}
	p.mu.Unlock()
	if f != nil {
		f()
	}
}

// whenNoneHangs calls f once, when none of a user's programs hangs in exec any more. A user has one f at a time.
func (p *openings) whenNoneHangs(user int, f func()) {
	p.mu.Lock()
	hangs := p.users[user].hanging > 0
	if hangs {
		if p.later == nil {
			p.later = make(map[int]func())
		}
		p.later[user] = f
	}
	p.mu.Unlock()
	if !hangs {
		f()
	}
}

// number is the uid; -1: the reaper's own user.
func (o *owner) number() int {
	if o == nil {
		return -1
	}
	return o.uid
}

func (p *openings) lateFault(what string) error {
	return fault.New(fault.Unavailable, runtime.CodeStdio, "%s cannot be opened in %v on this worker: the file system "+
		"does not answer, as that of a dead server; try again when it does, or name another", what, p.patience)
}

// openFor opens the directory and the files of a start, where its program will see them. It calls closeVolumes once
// they are shown there, in any case.
func (r *Reaper) openFor(m *machine, s *frame.Start, o *owner, shown *space.Plan, closeVolumes func()) (*opened,
	error) {
	q := &stdio.Request{User: o.fileUser(), Dir: s.Dir, Files: s.Stdio}
	what := strings.Join(named(s), ", ")
	if q.Dir == "" {
		q.Dir = r.apart.workDir(m.id)
	}
	return r.openings.run(o, what, func(begin func() bool) (got *opened, err error) {
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

// opensFirst reports whether a start opens something on a thread of openings: files, or a program that a user of the
// host has chosen, who can have a file system that does not answer.
func opensFirst(s *frame.Start) bool {
	return s.OpensFiles() || s.Container == nil && (s.As != nil || s.User != "")
}

// named returns the paths that a start names, for people.
func named(s *frame.Start) (paths []string) {
	for _, p := range []string{s.Dir, s.Stdio.In, s.Stdio.Out, s.Stdio.Err} {
		if p != "" {
			paths = append(paths, p)
		}
	}
	if len(paths) == 0 && len(s.Argv) > 0 {
		paths = append(paths, s.Argv[0])
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

// openDir opens the directory of q with a user's rights, where a life sees it, and looks for a program. in is the life's
// mount namespace, which it closes; nil: there is one for all. Without argv no program is looked for. environ returns
// its environment; nil: it has none.
func (r *Reaper) openDir(o *owner, q *stdio.Request, in *os.File, argv []string, environ func() ([]string, error)) (
	*opened, error) {
	q.User = o.fileUser()
	closeIn := func() { _ = in.Close() } // closing nil only returns an error
	return r.openings.run(o, q.Dir, func(func() bool) (got *opened, err error) {
		defer closeIn()
		got = &opened{named: q.Dir}
		if argv != nil {
			q.Find = func(dir string) error {
				got.path, err = findBelow(argv, got.env, dir)
				return err
			}
		}
		if environ != nil {
			if got.env, err = environ(); err != nil {
				return nil, err
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
	}, closeIn)
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
	got, err := r.openDir(o, &stdio.Request{Dir: dir}, nil, nil, nil)
	got.close()
	return err
}
