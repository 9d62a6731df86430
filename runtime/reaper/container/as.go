package container

import (
	"errors"
	"io/fs"
	"os"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/proc"
	"github.com/soukhq/souk/runtime/reaper/rootfs"
	"github.com/soukhq/souk/runtime/reaper/spec"
	"github.com/soukhq/souk/runtime/reaper/users"
)

// As is how a command differs from the container's program. The zero value means that it does not.
type As struct {
	User string   // in the format of userOf; "": the container's
	Dir  string   // absolute; "": the container's
	Root *os.File // root of the running container, to look up User; nil if both are ""
}

// applyTo returns the process with the changes. It fails if the container lacks the user or the directory.
func (a As) applyTo(p *specs.Process, in *specs.Linux) (*specs.Process, error) {
	if a.Root == nil {
		return p, nil
	}
	root := "/proc/self/fd/" + strconv.Itoa(int(a.Root.Fd()))
	if a.User != "" {
		who, err := userOf(root, a.User, "container")
		if err != nil {
			return nil, err
		}
		at := inside{who: who}
		for _, m := range in.UIDMappings {
			at.ids = append(at.ids, users.ID{Inside: m.ContainerID, Outside: m.HostID, Size: m.Size})
		}
		if err := at.checkRepresented(); err != nil {
			return nil, err
		}
		p = spec.As(p, who)
	}
	if a.Dir == "" {
		return p, nil
	}
	if err := checkDirectory(root, a.Dir); err != nil {
		return nil, err
	}
	there := *p
	there.Cwd = a.Dir
	return &there, nil
}

// checkDirectory refuses a directory in which a command must not start: a missing one, or one of the kernel's (/proc),
// where descriptors lead out of the container (CVE-2024-21626).
func checkDirectory(root, dir string) error {
	f, err := rootfs.Open(root, dir, unix.O_PATH|unix.O_DIRECTORY)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR):
		return NoDirectory(dir, "in the container", err)
	case errors.Is(err, unix.ELOOP): // also a magic link to a descriptor
		return fault.Wrap(err, fault.Precondition, runtime.CodeNotExecutable,
			"no command can begin in %s: the links there lead nowhere", dir)
	case err != nil:
		return fault.Wrap(err, fault.Unavailable, runtime.CodeDirectory,
			"the directory %s of the container cannot be opened", dir)
	}
	defer f.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return fault.Wrap(err, fault.Unavailable, runtime.CodeDirectory,
			"the directory %s of the container cannot be looked at", dir)
	}
	if st.Type == unix.PROC_SUPER_MAGIC {
		return fault.New(fault.Precondition, runtime.CodeNotExecutable,
			"no command can begin in %s, which is the kernel's: name another directory", dir)
	}
	return nil
}

// NoDirectory returns the error for a command's working directory that does not exist or, depending on err, is not a
// directory. where says where it was looked for ("in the container").
func NoDirectory(dir, where string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Precondition, runtime.CodeNoDirectory,
			"there is no directory %s %s to run the command in: make it, or name another", dir, where)
	}
	return fault.New(fault.Precondition, runtime.CodeNotExecutable,
		"%s is no directory %s, so that no command can begin there: name one", dir, where)
}

// gofer is the command name of the process that opens files for a sandbox; its root is the container's. The sandbox's
// own root is empty.
const gofer = "runsc-gofer"

// Gofer finds the process that opens files for a sandbox, among the machine's processes.
func Gofer(pids []int) (pid int, has bool) {
	for _, pid := range pids {
		if argv := proc.Command(pid); len(argv) > 0 && argv[0] == gofer {
			return pid, true
		}
	}
	return 0, false
}
