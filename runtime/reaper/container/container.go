// Package container makes a machine's container, from its image's layers to a first process that waits for its start.
//
// What is of one container lies in memory, below a Store's directory: its specification and what the OCI runtime keeps,
// which both have the environment in them, and the machine's files, among which secrets are. Its root is mounted in a
// namespace that nobody is in but itself (package rootfs).
package container

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/engine"
	"github.com/soukhq/souk/runtime/reaper/frame"
	"github.com/soukhq/souk/runtime/reaper/pty"
	"github.com/soukhq/souk/runtime/reaper/rootfs"
	"github.com/soukhq/souk/runtime/reaper/spec"
	"github.com/soukhq/souk/runtime/reaper/users"
	"github.com/soukhq/souk/runtime/reaper/volumes"
)

// Store is where a worker keeps what is of its containers.
type Store struct {
	Dir string // in memory
}

// Open makes the directory, below one that all workers of the host share.
func (s Store) Open() error {
	shared := filepath.Dir(s.Dir)
	err := os.MkdirAll(shared, 0o700)
	if err == nil {
		err = inMemory(shared)
	}
	for _, d := range []string{"bundles", "engines"} {
		if err == nil {
			err = os.MkdirAll(filepath.Join(s.Dir, d), 0o700)
		}
	}
	if err != nil {
		return fault.Wrap(err, fault.Precondition, runtime.CodeContainers,
			"%s cannot be made, which containers need", s.Dir)
	}
	return os.Setenv("XDG_RUNTIME_DIR", s.Dir) // where go-runc writes processes, with their environment
}

// Remove removes the directory. nil when there is none.
func (s Store) Remove() error { return os.RemoveAll(s.Dir) }

// Exists reports whether there ever was a container since the host is up.
func (s Store) Exists() bool {
	_, err := os.Lstat(s.Dir)
	return err == nil
}

// inMemory sees to it that a directory does not lie on a disk. One process at a time does.
func inMemory(dir string) error {
	lock, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Type == unix.TMPFS_MAGIC && st.Flags&unix.ST_NOEXEC == 0 {
		return err
	}
	return unix.Mount("souk", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0700") // scripts are among files
}

func (s Store) bundleDir(name string) string { return filepath.Join(s.Dir, "bundles", name) }

// engineOf is the runtime of a container. What it keeps lies in a directory that is named after its program.
func (s Store) engineOf(n Name) engine.Engine {
	return engine.Engine{Path: n.Engine, State: filepath.Join(s.Dir, "engines", url.PathEscape(n.Engine)),
		Network: n.Network}
}

// Name is a container: what it is called, and the program of the runtime that has it.
type Name struct {
	ID, Engine string
	Network    bool // it has one of its own
}

// List gives all containers, running or not, and what is left of those that their runtime has removed; those have no
// Engine.
func (s Store) List() ([]Name, error) {
	es, err := os.ReadDir(filepath.Join(s.Dir, "engines"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []Name
	for _, e := range es {
		path, wrong := url.PathUnescape(e.Name())
		if wrong != nil {
			continue
		}
		ids, wrong := s.engineOf(Name{Engine: path}).Containers()
		err = errors.Join(err, wrong)
		for _, id := range ids {
			out = append(out, Name{ID: id, Engine: path})
		}
	}
	bundles, wrong := os.ReadDir(s.bundleDir(""))
	if errors.Is(wrong, fs.ErrNotExist) {
		wrong = nil
	}
	for _, b := range bundles {
		if !slices.ContainsFunc(out, func(n Name) bool { return n.ID == b.Name() }) {
			out = append(out, Name{ID: b.Name()})
		}
	}
	return out, errors.Join(err, wrong)
}

// Delete removes what is of a container that has ended, or that was not made.
func (s Store) Delete(ctx context.Context, n Name) error {
	if n.Engine != "" {
		if err := s.engineOf(n).Delete(ctx, n.ID); err != nil {
			return err
		}
	}
	return os.RemoveAll(s.bundleDir(n.ID))
}

// Plan is a container that is to be made.
type Plan struct {
	Name   Name
	Dir    string // of the machine, as its container's root may get to it
	Start  *frame.Start
	Data   []byte // of its files
	UID    int    // who its root is on the host
	Cgroup string
	Into   *os.File     // the same, of version 2; nil: there is none
	Files  engine.Files // of its program

	// Checkpoint is a directory that has one to go on from; "": it begins at its beginning.
	Checkpoint string

	// Volumes are those of Start.Mounts, in their order.
	Volumes []*volumes.Volume

	// Users makes a user namespace.
	Users func(ids []users.ID) (*os.File, error)
}

// Create makes a container and returns the process that will be its first, which waits for Start unless it goes on from
// a checkpoint, and the near end of its terminal where it has one. It runs on a thread that is in a mount namespace of
// its own, and that does not end before.
func (s Store) Create(ctx context.Context, p Plan) (pid int, near *os.File, err error) {
	if err := s.Delete(ctx, p.Name); err != nil { // of a try before
		return 0, nil, err
	}
	in, err := p.mountRoot()
	if err != nil {
		return 0, nil, err
	}
	defer in.users.Close()
	if p.Checkpoint == "" {
		if err := programIn(in.root, p.Start); err != nil {
			return 0, nil, err
		}
	}
	if err := p.showVolumes(ctx, in); err != nil {
		return 0, nil, err
	}
	if in.data, err = p.keepData(in, !s.engineOf(p.Name).Sandboxes()); err != nil {
		return 0, nil, err
	}
	full, err := s.describeContainer(p, in)
	if err != nil {
		return 0, nil, err
	}
	raw, err := json.Marshal(full)
	if err == nil {
		err = os.WriteFile(filepath.Join(s.bundleDir(p.Name.ID), configFile), raw, 0o600)
	}
	if err != nil {
		return 0, nil, fault.Wrap(err, fault.Unavailable, runtime.CodeContainers,
			"the container %s cannot be described",
			p.Name.ID)
	}
	e, bundle := s.engineOf(p.Name), s.bundleDir(p.Name.ID)
	if p.Checkpoint != "" {
		pid, err = e.Restore(ctx, p.Name.ID, bundle, p.Checkpoint, p.Files, p.Into)
		return pid, nil, err
	}
	if p.Start.Terminal == nil {
		pid, err = e.Create(ctx, p.Name.ID, bundle, p.Files, p.Into, "")
		return pid, nil, err
	}
	near, err = s.makeConsole(p.Start.Terminal.Size, func(at string) error {
		pid, err = e.Create(ctx, p.Name.ID, bundle, p.Files, p.Into, at)
		return err
	})
	return pid, near, err
}

const configFile = "config.json"

// Start has a container's first process execute its program.
func (s Store) Start(ctx context.Context, n Name) error {
	return s.engineOf(n).Start(ctx, n.ID, s.bundleDir(n.ID))
}

// Exec runs a command in a container, and returns its process. With a terminal it has that in the place of files, made
// by the container's own devices, and near is the end of it that is the caller's.
func (s Store) Exec(ctx context.Context, n Name, argv []string, as As, files engine.Files,
	t *machine.Terminal) (c engine.Command, near *os.File, err error) {
	if len(argv) == 0 || argv[0] == "" {
		return c, nil, fault.New(fault.Invalid, runtime.CodeArgv,
			"no command is named that should be run in container %s", n.ID)
	}
	var full specs.Spec
	raw, err := os.ReadFile(filepath.Join(s.bundleDir(n.ID), configFile))
	if err == nil {
		err = json.Unmarshal(raw, &full)
	}
	if err != nil || full.Process == nil {
		return c, nil, fault.Wrap(err, fault.Unavailable, runtime.CodeContainers,
			"what container %s runs as cannot be read",
			n.ID)
	}
	p := spec.Command(full.Process, argv, t)
	if p, err = as.applyTo(p, full.Linux); err != nil {
		return c, nil, err
	}
	e := s.engineOf(n)
	if t == nil {
		c, err = e.Exec(ctx, n.ID, s.bundleDir(n.ID), p, files, "")
		return c, nil, err
	}
	if e.Sandboxes() { // it takes one that there is already
		near, far, err := pty.Open(t.Size)
		if err != nil {
			return c, nil, fault.Wrap(
				err,
				fault.Unavailable,
				fault.CodeTerminal,
				"this worker has no terminal for the command now",
			)
		}
		defer far.Close()
		if c, err = e.Exec(ctx, n.ID, s.bundleDir(n.ID), p, engine.Files{far, far, far}, ""); err != nil {
			return c, nil, errors.Join(err, near.Close())
		}
		return c, near, nil
	}
	near, err = s.makeConsole(t.Size, func(at string) error {
		c, err = e.Exec(ctx, n.ID, s.bundleDir(n.ID), p, files, at)
		return err
	})
	return c, near, err
}

// Checkpoint has a container's memory written into a directory; see engine.Engine.
func (s Store) Checkpoint(ctx context.Context, n Name, dir string) error {
	return s.engineOf(n).Checkpoint(ctx, n.ID, dir)
}

// Checkpoints returns why a container can have no checkpoint; nil when it can.
func (s Store) Checkpoints(n Name) error { return s.engineOf(n).Checkpoints() }

// Kill ends a command that runs in a sandbox.
func (s Store) Kill(ctx context.Context, n Name, c engine.Command) error {
	return s.engineOf(n).Kill(ctx, n.ID, c.Inside)
}

// Sandbox says where it can be asked what runs in a container; nil where the host sees that itself.
func (s Store) Sandbox(n Name) *frame.Sandbox {
	e := s.engineOf(n)
	if n.ID == "" || !e.Sandboxes() {
		return nil
	}
	return &frame.Sandbox{Engine: e.Path, State: e.State, ID: n.ID}
}

// describeContainer makes the specification, and the files that it mounts.
func (s Store) describeContainer(p Plan, at inside) (*specs.Spec, error) {
	in, ids := p.Start.Container, at.ids
	bundle := s.bundleDir(p.Name.ID)
	if err := os.MkdirAll(bundle, 0o700); err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, runtime.CodeContainers,
			"the container %s cannot be described", p.Name.ID)
	}
	c := spec.Container{
		Hostname: in.Hostname, Init: in.Init, Argv: p.Start.Argv, Env: p.Start.Env, Dir: in.Dir, User: at.who,
		Rootfs: at.root, ReadOnly: in.ReadOnly, IDs: ids, Cgroup: p.Cgroup, HostNet: in.HostNet, Mounts: at.data,
	}
	for _, v := range p.Start.Mounts {
		var st unix.Statfs_t
		if err := unix.Statfs(v.Dir, &st); err != nil {
			return nil, fault.Wrap(err, fault.Unavailable, fault.CodeVolume,
				"the volume for %s cannot be looked at", v.Path)
		}
		c.Mounts = append(c.Mounts, spec.Mount{From: v.Dir, To: v.Path, ReadOnly: st.Flags&unix.ST_RDONLY != 0,
			NoExec: st.Flags&unix.ST_NOEXEC != 0})
	}
	uid, _ := users.Outside(ids, at.who.UID) // there are: represented
	gid, _ := users.Outside(ids, at.who.GID)
	files, err := putFiles(bundle, p.Start.Files, p.Data, uid, gid)
	if err != nil {
		return nil, err
	}
	c.Mounts = append(c.Mounts, files...)
	own, err := putUser(bundle, at, c.Mounts)
	if err != nil {
		return nil, err
	}
	c.Mounts = append(c.Mounts, own...)
	if err := s.giveDevices(p, bundle, &c); err != nil {
		return nil, err
	}
	if in.Network != nil || in.HostNet {
		names, err := putNames(bundle, in, c.Mounts, ids)
		if err != nil {
			return nil, err
		}
		c.Mounts = append(c.Mounts, names...)
	}
	if s.engineOf(p.Name).Sandboxes() {
		if err := p.bringNear(c.Mounts); err != nil {
			return nil, fault.Wrap(err, fault.Unavailable, spec.CodeMount,
				"what machine %s mounts cannot be shown to its sandbox", in.Hostname)
		}
	}
	full, err := spec.New(c)
	if err == nil && p.Start.Terminal != nil {
		full.Process = spec.Command(full.Process, full.Process.Args, p.Start.Terminal)
	}
	return full, err
}

// nearDir is where a sandbox finds what it mounts, in the directory of its machine.
const nearDir = "mounts"

// bringNear has all that is mounted lie where the container's root may get to, in the calling thread's namespace: a
// sandbox mounts as that, where runc is the host's root until it has mounted. Nothing there is removed with what is
// below it, for that may be a volume.
func (p Plan) bringNear(mounts []spec.Mount) error {
	dir := filepath.Join(p.Dir, nearDir)
	if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for i := range mounts {
		m := &mounts[i]
		st, err := os.Stat(m.From)
		if err != nil {
			return err
		}
		at := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if st.IsDir() {
			err = os.Mkdir(at, 0o711)
		} else {
			err = os.WriteFile(at, nil, 0o600)
		}
		if err == nil {
			err = unix.Mount(m.From, at, "", unix.MS_BIND|unix.MS_REC, "")
		}
		if err != nil {
			return err
		}
		m.From = at
	}
	return nil
}

// Check refuses volumes and files that cannot be shown, before anything is done for them.
func Check(s *frame.Start) error {
	for _, f := range s.Files {
		if _, err := spec.Target(f.Path); err != nil {
			return err
		}
	}
	for _, v := range s.Mounts {
		if _, err := spec.Target(v.Path); err != nil {
			return err
		}
	}
	return nil
}

// programIn refuses a program that the image does not have.
func programIn(root string, s *frame.Start) error {
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return fault.New(fault.Invalid, runtime.CodeArgv, "no program is named that the machine should run")
	}
	path := ""
	for _, kv := range s.Env {
		if v, is := strings.CutPrefix(kv, "PATH="); is {
			path = v
		}
	}
	at, err := rootfs.Program(root, s.Argv[0], s.Container.Dir, path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fault.New(fault.Precondition, runtime.CodeNotExecutable,
			"%s in the image cannot be executed: it is a directory, or nobody may (chmod +x)", s.Argv[0])
	case err != nil:
		return fault.New(fault.Precondition, runtime.CodeNoProgram,
			"there is no program %s in the image: name one that it has, with its path or in its PATH (%s)", s.Argv[0],
			path)
	}
	return Executable(root, at, s.Argv[0], "in the image", func(path string) bool { return Brings(s, path) })
}

// Brings reports whether a path of a machine is in one of its mounts, or one of its files.
func Brings(s *frame.Start, path string) bool {
	below := func(dir string) bool { return strings.HasPrefix(path+"/", strings.TrimRight(dir, "/")+"/") }
	return slices.ContainsFunc(s.Mounts, func(m runtime.Mount) bool { return below(m.Path) }) ||
		slices.ContainsFunc(s.Files, func(f frame.File) bool { return below(f.Path) })
}

// checksDir is where the roots of containers are mounted that are only looked at.
const checksDir = "checks"

// Examine refuses what Create would of a machine's program and user, while another container of it runs. It is called as
// Create is.
func (s Store) Examine(id string, p Plan) (err error) {
	p.Dir = filepath.Join(s.Dir, checksDir, id)
	if err := os.MkdirAll(p.Dir, 0o700); err != nil {
		return unmadeError(err, id)
	}
	in, err := p.mountRoot()
	defer func() { err = errors.Join(err, in.unmountDir(p.Dir)) }()
	if err != nil {
		return err
	}
	defer in.users.Close()
	return programIn(in.root, p.Start)
}

// putFiles writes a machine's files where they are in memory only, for secrets are among them, and says where they are
// to be seen.
func putFiles(bundle string, files []frame.File, data []byte, uid, gid int) ([]spec.Mount, error) {
	dir := filepath.Join(bundle, "files")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, fault.CodeFile, "the machine's files cannot be written")
	}
	out := make([]spec.Mount, 0, len(files))
	for i, f := range files {
		if f.Size < 0 || f.Size > len(data) {
			return nil, fault.New(fault.Invalid, fault.CodeFile, "the file %s is said to have %d bytes but %d came",
				f.Path, f.Size, len(data))
		}
		name := filepath.Join(dir, strconv.Itoa(i))
		err := os.WriteFile(name, data[:f.Size], 0o600)
		if err == nil {
			err = errors.Join(os.Chown(name, uid, gid), os.Chmod(name, os.FileMode(f.Mode&0o777)))
		}
		if err != nil {
			return nil, fault.Wrap(err, fault.Unavailable, fault.CodeFile, "the file %s cannot be written", f.Path)
		}
		out = append(out, spec.Mount{From: name, To: f.Path})
		data = data[f.Size:]
	}
	return out, nil
}
