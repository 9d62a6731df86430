package reaper

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/frame"
	"github.com/soukhq/souk/runtime/reaper/space"
	"github.com/soukhq/souk/runtime/reaper/users"
)

// owner is the user that a machine runs as and that owns its files; nil: the reaper's own user.
type owner struct {
	uid, gid int
	groups   []uint32
	umask    *uint32             // nil: the reaper's own
	limits   []runtime.SoftLimit // empty: the reaper's own
}

// apart isolates machines from souk and from each other: by users and by their view of the host.
type apart struct {
	dir     string // the reaper's directory
	log     *slog.Logger
	view    *space.View // the machines' view; nil: the host's own
	users   *users.Pool // nil: see noUsers, or not running as root
	noUsers error
	limits  bool // the reaper may set the limits of other users' processes
}

// isRoot reports whether it is root.
func (o *owner) isRoot() bool {
	if o == nil {
		return os.Geteuid() == 0
	}
	return o.uid == 0
}

// settleThread prepares a thread to fork machines of users other than root.
func (p *threads) settleThread() error {
	if err := space.Confine(os.Geteuid() == 0); err != nil {
		return err
	}
	return p.view.Enter()
}

// settleRoot prepares a thread to fork machines of root.
func (p *threads) settleRoot() error {
	if err := space.Confine(false); err != nil {
		return err
	}
	return p.view.Enter()
}

// openApart makes the machines' view. If there is none, letIn must make souk's directories passable for machines with
// their own users.
func openApart(dir string, log *slog.Logger) *apart {
	a := &apart{dir: dir, log: log, limits: mayLimitOthers()}
	if os.Geteuid() != 0 {
		return a
	}
	var err error
	if a.view, err = space.Open(machinesDir(dir)); err != nil {
		log.Warn("machines get no view of their own", "err", err)
	}
	return a
}

// seenView returns the view, nil if there is none.
func (a *apart) seenView() *space.View {
	if a == nil { // in tests
		return nil
	}
	return a.view
}

// mayLimit reports whether the reaper may set the limits of other users' processes.
func (a *apart) mayLimit() bool { return a == nil || a.limits } // nil: in tests

// openUsers opens the pool of machines' users, once the owners of their directories are known.
func (a *apart) openUsers(machines map[string]*machine) {
	if os.Geteuid() != 0 {
		return
	}
	var used []int
	for _, m := range machines {
		if users.Is(m.owned) {
			used = append(used, m.owned)
		}
	}
	if a.users, a.noUsers = users.Open(a.dir, used); a.noUsers != nil {
		a.log.Warn("machines get no users of their own", "err", a.noUsers)
		return
	}
	for _, m := range machines {
		if a.users.Keep(m.owned) {
			m.uid = m.owned
		}
	}
}

// dirOwner returns the owner of a directory, 0 if unknown.
func dirOwner(dir string) int {
	st, err := os.Lstat(dir)
	if err != nil {
		return 0
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return int(sys.Uid)
	}
	return 0
}

// ownerOf returns the user that a machine is to run as. The caller holds m.op.
func (a *apart) ownerOf(m *machine, s *frame.Start) (*owner, error) {
	if s.As != nil {
		return ownerAs(s.As, s.User)
	}
	if s.User == "" {
		if os.Geteuid() != 0 {
			return nil, nil
		}
		if m.uid == 0 {
			if a.noUsers != nil {
				return nil, a.noUsers
			}
			uid, err := a.users.Take()
			if err != nil {
				return nil, err
			}
			m.uid = uid
		}
		return &owner{uid: m.uid, gid: m.uid}, nil
	}
	o, err := lookupUser(s.User)
	if err != nil || o == nil {
		return o, err
	}
	if users.Is(o.uid) || users.Is(o.gid) {
		return nil, fault.New(fault.Precondition, runtime.CodeUser,
			"the user %q is kept for a machine of this host: leave the user out, and the machine gets one of its own",
			s.User)
	}
	privileged, person := o.uid == 0 || o.gid == 0, isPerson(o.uid) || isPerson(o.gid)
	for _, g := range o.groups {
		privileged, person = privileged || g == 0, person || cluster.IsPerson(g)
	}
	if person && s.NoPeople {
		return nil, fault.New(fault.Precondition, runtime.CodeUser,
			"this worker runs programs as the people of its host for themselves alone (--unix-users), and the user %q "+
				"is one, or in a group of people: leave the user out, or ask as that user", s.User)
	}
	if privileged && !s.Root {
		return nil, fault.New(fault.Precondition, fault.CodeRoot,
			"this worker runs no machine as root or in its group (user %q): leave the user out, name another with "+
				"--user, or start souk there with --allow-root", s.User)
	}
	return o, nil
}

func isPerson(id int) bool { return id >= 0 && cluster.IsPerson(uint32(id)) } //nolint:gosec // not negative

// workDir is the path of a machine's directory as the machine sees it.
func (a *apart) workDir(id string) string {
	if a.view != nil {
		return space.Root(id)
	}
	return RootDir(a.dir, id)
}

// letIn gives a machine's directory to the machine's user, and to no other. The caller holds m.op.
func (a *apart) letIn(m *machine, o *owner) error {
	if o == nil {
		return nil
	}
	if a.view == nil {
		for _, d := range []string{a.dir, machinesDir(a.dir)} {
			if err := os.Chmod(d, 0o711); err != nil { // may be passed through, but not listed
				return fault.Wrap(err, fault.Unavailable, runtime.CodeDirectory,
					"the directory %s cannot be opened for user %d",
					d, o.uid)
			}
		}
	}
	if m.owned == o.uid && m.owned != 0 {
		return nil
	}
	dir := filepath.Clean(RootDir(a.dir, m.id))
	if err := users.HandOver(dir, o.uid, o.gid); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fault.Wrap(err, fault.Unavailable, runtime.CodeDirectory,
			"the mode of machine %s's directory cannot be changed to keep other users out",
			m.id)
	}
	m.owned = o.uid
	return nil
}

// planSpace returns the view for a machine with volumes or files; nil: only the host's files. Without root, volumes and
// files are only below the machine's directory.
func (a *apart) planSpace(m *machine, s *frame.Start, all held) (*space.Plan, error) {
	p, err := a.planShown(s)
	if p == nil || err != nil {
		return nil, err
	}
	p.Root = space.Root(m.id)
	for i := range p.Volumes {
		p.Volumes[i].Mount = all[i].MoveTo
	}
	return p, nil
}

// planShown is planSpace without opened volumes, so that invalid paths are refused before any is opened.
func (a *apart) planShown(s *frame.Start) (*space.Plan, error) {
	if len(s.Mounts)+len(s.Files) == 0 || os.Geteuid() != 0 {
		return nil, nil
	}
	if a.view == nil {
		return nil, fault.New(fault.Precondition, codeNamespace,
			"this worker can make no mount namespace, so that volumes and files cannot be shown at their paths: run "+
				"souk with CAP_SYS_ADMIN and a /run that can be written, or as a user other than root, where they are "+
				"below the machine's directory")
	}
	p := new(space.Plan)
	for _, v := range s.Mounts {
		rel, err := relativePath(v.Path, "mount")
		if err != nil {
			return nil, err
		}
		p.Volumes = append(p.Volumes, space.Volume{Path: rel})
	}
	for _, f := range s.Files {
		rel, err := relativePath(f.Path, "file")
		if err != nil {
			return nil, err
		}
		p.Files = append(p.Files, rel)
	}
	return p, nil
}

// programPath finds the program of a start without its own view, as the machine sees it.
func (a *apart) programPath(id string, s *frame.Start) (string, error) {
	dir := RootDir(a.dir, id)
	path, err := findProgram(s.Argv, s.Env, dir)
	if rest, below := strings.CutPrefix(path, dir+"/"); below {
		path = filepath.Join(a.workDir(id), rest)
	}
	return path, err
}

// dirOf is the directory of a life as its processes see it.
func (a *apart) dirOf(l *life) string {
	if l.rec.View {
		return space.Root(l.m.id)
	}
	return RootDir(a.dir, l.m.id)
}
