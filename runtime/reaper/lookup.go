package reaper

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// findProgram finds the program of argv: a name with a slash is a path (relative to dir), others are looked up in env's
// PATH.
func findProgram(argv, env []string, dir string) (string, error) {
	if len(argv) == 0 || argv[0] == "" {
		return "", fault.New(fault.Invalid, runtime.CodeArgv,
			"no program is named: give a command to run, like /bin/sh -c '...'")
	}
	for _, s := range argv {
		if strings.ContainsRune(s, 0) {
			return "", fault.New(fault.Invalid, runtime.CodeArgv,
				"the command holds a zero byte, which no program can be given")
		}
	}
	name := argv[0]
	if strings.Contains(name, "/") {
		p := name
		if !filepath.IsAbs(p) {
			p = filepath.Join(dir, p)
		}
		return p, checkExecutable(p, name)
	}
	path := defaultPath
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	for _, d := range filepath.SplitList(path) {
		if !filepath.IsAbs(d) {
			d = filepath.Join(dir, d)
		}
		p := filepath.Join(d, name)
		if checkExecutable(p, name) == nil {
			return p, nil
		}
	}
	return "", fault.New(fault.Precondition, runtime.CodeNoProgram,
		"the program %q is not on the PATH %s of this worker: install it there, or name it by its full path", name,
		path)
}

func checkExecutable(p, name string) error {
	st, err := os.Stat(p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.Precondition, runtime.CodeNoProgram,
			"the program %s does not exist on this worker: install it, or name another", name)
	case err != nil:
		return fault.Wrap(err, fault.Precondition, runtime.CodeNoProgram,
			"the program %s cannot be looked at on this worker", name)
	case st.IsDir():
		return fault.New(fault.Precondition, runtime.CodeNotExecutable,
			"%s is a directory on this worker: name a program", name)
	case st.Mode()&0o111 == 0:
		return fault.New(fault.Precondition, runtime.CodeNotExecutable,
			"%s may not be executed on this worker: make it executable (chmod +x), or run it with its interpreter",
			name)
	}
	return nil
}

// execFault explains why exec(2) failed.
func execFault(err error, name, dir string, o *owner) error {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return fault.New(fault.Precondition, runtime.CodeNoProgram,
			"the program %s cannot be executed on this worker: the interpreter it names does not exist", name)
	case errors.Is(err, syscall.ENOEXEC):
		return fault.New(fault.Precondition, runtime.CodeNotExecutable,
			"%s is not a program for this worker (another architecture, or a script without a #! line)", name)
	case errors.Is(err, syscall.EINVAL): // before the fork: a string contains a zero byte
		return fault.New(fault.Invalid, runtime.CodeArgv,
			"the command or the environment holds a zero byte, which no program can be given: encode the value")
	case errors.Is(err, syscall.E2BIG):
		return fault.New(fault.Invalid, runtime.CodeArgv,
			"the command and environment are larger than the kernel takes (about 2 MB): make them smaller, or use "+
				"files")
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		if o != nil {
			return fault.New(fault.Precondition, runtime.CodeNotExecutable,
				"user %d may not execute %s or enter %s on this worker: let it in (chmod o+x) along both paths, or "+
					"give the machine a user who may (run --user)", o.uid, name, dir)
		}
		return fault.New(fault.Precondition, runtime.CodeNotExecutable, "souk may not execute %s on this worker", name)
	}
	return fault.Wrap(err, fault.Unavailable, codeFork, "the program %s cannot be started now", name)
}

// lookupUser returns the user and group to run a machine as: "", "name", "uid", "name:group", "uid:gid". nil: souk's
// own user.
func lookupUser(s string) (*owner, error) {
	if s == "" {
		return nil, nil
	}
	name, group, _ := strings.Cut(s, ":")
	o := &owner{uid: -1, gid: -1}
	u, err := user.Lookup(name)
	if err != nil {
		if n, nerr := strconv.ParseUint(name, 10, 31); nerr == nil {
			o.uid, o.gid = int(n), int(n)
			u, err = user.LookupId(name)
		}
	}
	if err == nil {
		if o.uid, o.gid, o.groups, err = userIDs(u); err != nil {
			return nil, err
		}
	} else if o.uid < 0 {
		return nil, fault.New(fault.Precondition, runtime.CodeUser,
			"the user %q does not exist on this worker: create it, or name another", name)
	}
	if group != "" {
		if o.gid, err = lookupGroup(group); err != nil {
			return nil, err
		}
	}
	if me := os.Geteuid(); me != 0 {
		if me == o.uid && (group == "" || o.gid == os.Getegid()) {
			return nil, nil
		}
		return nil, fault.New(fault.Precondition, runtime.CodeUser,
			"souk does not run as root here, so it cannot run a machine as user %q: run souk as root, or leave the "+
				"user out", s)
	}
	return o, nil
}

func userIDs(u *user.User) (uid, gid int, groups []uint32, err error) {
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, nil, fault.Wrap(err, fault.Precondition, runtime.CodeUser,
			"the entry of user %q is damaged", u.Username)
	}
	gs, err := u.GroupIds()
	if err != nil {
		return uid, gid, nil, nil // continue with the primary group
	}
	for _, g := range gs {
		if n, err := strconv.ParseUint(g, 10, 32); err == nil {
			groups = append(groups, uint32(n))
		}
	}
	return uid, gid, groups, nil
}

func lookupGroup(name string) (int, error) {
	id := name
	if g, err := user.LookupGroup(name); err == nil {
		id = g.Gid
	}
	n, err := strconv.ParseUint(id, 10, 31)
	if err != nil {
		return 0, fault.New(fault.Precondition, runtime.CodeUser,
			"the group %q does not exist on this worker: create it, or name another", name)
	}
	return int(n), nil
}
