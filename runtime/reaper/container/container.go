// Package container makes a machine's container, from its image's layers to a first process that waits for its start.
//
// The files of one container are in memory, below a Store's directory: its specification and the OCI runtime's state,
// which both contain the environment, and the machine's files, some of them secrets. Its root is mounted in a namespace
// that only the container is in (package rootfs).
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

// Store is where a worker keeps the files of its containers.
type Store struct {
	Dir string // on a tmpfs
}

// Open makes the directory, below a directory that all workers of the host share.
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
			"the directory %s, which containers need, cannot be made", s.Dir)
	}
	return os.Setenv("XDG_RUNTIME_DIR", s.Dir) // where go-runc writes process specifications with their environment
}

// Remove removes the directory; nil if it does not exist.
func (s Store) Remove() error { return os.RemoveAll(s.Dir) }

// Exists reports whether a container has been made since the host booted.
func (s Store) Exists() bool {
	_, err := os.Lstat(s.Dir)
	return err == nil
}

// inMemory mounts a tmpfs at a directory unless it is on one. The lock lets one process at a time do so.
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
	// without noexec: a machine's files may be scripts
	return unix.Mount("souk", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0700")
}

func (s Store) bundleDir(name string) string { return filepath.Join(s.Dir, "bundles", name) }

// engineOf returns the runtime of a container. Its state is in a directory named after its program.
func (s Store) engineOf(n Name) engine.Engine {
	return engine.Engine{Path: n.Engine, State: filepath.Join(s.Dir, "engines", url.PathEscape(n.Engine)),
		Network: n.Network}
}

// Name identifies a container, and the program of its runtime.
type Name struct {
	ID, Engine string
	Network    bool // it has its own network
}

// List returns all containers, running or not, and the leftovers of containers that their runtime has removed; those
// have no Engine.
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

// Delete removes a container that has ended, or that was not completely made.
func (s Store) Delete(ctx context.Context, n Name) error {
	if n.Engine != "" {
		if err := s.engineOf(n).Delete(ctx, n.ID); err != nil {
			return err
		}
	}
	return os.RemoveAll(s.bundleDir(n.ID))
}

// Plan describes a container to be made.
type Plan struct {
	Name   Name
	Dir    string // the machine's directory, at a path that the container's root can reach
	Start  *frame.Start
	Data   []byte // contents of the machine's files
	UID    int    // the uid of its root on the host
	Cgroup string
	Into   *os.File     // Cgroup's directory in v2; nil: there is none
	Files  engine.Files // the program's

	// Checkpoint is a directory with a checkpoint to resume from; "": start the program.
	Checkpoint string

	// Volumes are those of Start.Mounts, in the same order.
	Volumes []*volumes.Volume

	// Users makes a user namespace.
	Users func(ids []users.ID) (*os.File, error)
}

// Create makes a container. It returns the container's first process, which waits for Start unless it resumes from a
// checkpoint, and the near end of its terminal if it has one. The calling thread must be in its own mount namespace,
// and must not end before Create returns.
func (s Store) Create(ctx context.Context, p Plan) (pid int, near *os.File, err error) {
	if err := s.Delete(ctx, p.Name); err != nil { // left by an earlier attempt
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
			"the config of container %s cannot be written",
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

// Start makes a container's first process execute its program.
func (s Store) Start(ctx context.Context, n Name) error {
	return s.engineOf(n).Start(ctx, n.ID, s.bundleDir(n.ID))
}

// Exec runs a command in a container, and returns its process. With a terminal, the command uses that instead of files;
// the terminal is made by the container's own devices, and near is the caller's end.
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
			"the config of container %s cannot be read",
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
	if e.Sandboxes() { // runsc expects an existing terminal
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

// Checkpoint writes a container's memory to a directory; see engine.Engine.
func (s Store) Checkpoint(ctx context.Context, n Name, dir string) error {
	return s.engineOf(n).Checkpoint(ctx, n.ID, dir)
}

// Checkpoints returns why a container cannot have a checkpoint, nil if it can.
func (s Store) Checkpoints(n Name) error { return s.engineOf(n).Checkpoints() }

// Kill kills a command that runs in a sandbox.
func (s Store) Kill(ctx context.Context, n Name, c engine.Command) error {
	return s.engineOf(n).Kill(ctx, n.ID, c.Inside)
}

// Sandbox returns how to query the processes in a container; nil if the host sees them itself.
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
			"the config of container %s cannot be written", p.Name.ID)
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
	uid, _ := users.Outside(ids, at.who.UID) // both exist: see checkRepresented
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
				"the mounts of machine %s cannot be shown to its sandbox", in.Hostname)
		}
	}
	full, err := spec.New(c)
	if err == nil && p.Start.Terminal != nil {
		full.Process = spec.Command(full.Process, full.Process.Args, p.Start.Terminal)
	}
	return full, err
}

// nearDir is the directory in a machine's directory where a sandbox finds its mounts.
const nearDir = "mounts"

// bringNear bind-mounts all sources of mounts below the machine's directory, in the calling thread's namespace, because
// a sandbox mounts them as the container's root (runc does it as the host's root). It removes nothing there
// recursively, since the content may be a volume's.
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

// Check refuses invalid paths of volumes and files, and a user of the host, before any work is done.
func Check(s *frame.Start) error {
	if err := s.As.Check(s.User, true); err != nil {
		return err
	}
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

// programIn refuses a program that the image lacks.
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

// Brings reports whether a path is in one of the machine's mounts, or is one of its files.
func Brings(s *frame.Start, path string) bool {
	below := func(dir string) bool { return strings.HasPrefix(path+"/", strings.TrimRight(dir, "/")+"/") }
	return slices.ContainsFunc(s.Mounts, func(m runtime.Mount) bool { return below(m.Path) }) ||
		slices.ContainsFunc(s.Files, func(f frame.File) bool { return below(f.Path) })
}

// checksDir is where the roots of containers are mounted for a check only.
const checksDir = "checks"

// Examine checks a machine's program and user like Create does, while another container of the machine may run. It
// needs the same kind of thread as Create.
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

// putFiles writes a machine's files in memory only, since some are secrets, and returns their mounts.
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
