package container

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/rootfs"
	"github.com/soukhq/souk/runtime/reaper/spec"
	"github.com/soukhq/souk/runtime/reaper/users"
)

// inside is the properties of a container whose root is mounted.
type inside struct {
	root  string // where the root is mounted
	ids   []users.ID
	users *os.File // a user namespace with ids
	who   spec.User
	data  []spec.Mount // directories that are writable although the root is not
}

// mountRoot mounts a machine's root and looks up its user there. The caller closes users.
func (p Plan) mountRoot() (in inside, err error) {
	in.root, in.ids = filepath.Join(p.Dir, RootfsDir), users.Numbers(p.UID)
	if err = p.clearRootDirs(); err != nil {
		return in, unmadeError(err, p.Name.ID)
	}
	if in.users, err = p.Users(in.ids); err != nil {
		return in, unmadeError(err, p.Name.ID)
	}
	err = rootfs.Mount(rootfs.Plan{Layers: p.Start.Container.Layers, Upper: filepath.Join(p.Dir, "upper"),
		Work: filepath.Join(p.Dir, "work"), At: in.root, Users: in.users})
	if err != nil {
		err = unmadeError(err, p.Name.ID)
	} else if in.who, err = userOf(in.root, p.Start.User, "image"); err == nil {
		err = in.checkRepresented()
	}
	if err != nil {
		err = errors.Join(err, in.users.Close())
	}
	return in, err
}

// unmountDir undoes mountRoot in a directory. EINVAL: nothing is mounted there.
func (in inside) unmountDir(dir string) error {
	if err := unix.Unmount(in.root, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return unmadeError(err, filepath.Base(dir)) // do not remove the image's files
	}
	if err := os.RemoveAll(dir); err != nil {
		return unmadeError(err, filepath.Base(dir))
	}
	return nil
}

func unmadeError(err error, container string) error {
	return fault.Wrap(err, fault.Unavailable, runtime.CodeRootfs, "the root file system of container %s cannot be made",
		container)
}

// checkRepresented refuses a user whose ids are not mapped to the host.
func (in inside) checkRepresented() error {
	for _, n := range append([]uint32{in.who.UID, in.who.GID}, in.who.Groups...) {
		if _, ok := users.Outside(in.ids, n); !ok {
			return fault.New(fault.Precondition, runtime.CodeUser,
				"this worker has no number for the user or group %d: "+
					"use one below 2147483648 (where souk itself is in a user namespace, one that it has)", n)
		}
	}
	return nil
}

// RootfsDir is the directory in a machine's directory where its container's root is mounted, visible only to the
// container. Root owns it.
const RootfsDir = "rootfs"

// clearRootDirs makes the directories for a machine's root. It removes the files of the previous life, unless this one
// resumes from a checkpoint.
func (p Plan) clearRootDirs() error {
	fresh := []string{"upper", "work", RootfsDir}
	if p.Checkpoint != "" {
		fresh = fresh[1:]
	}
	for _, d := range fresh {
		if err := os.RemoveAll(filepath.Join(p.Dir, d)); err != nil {
			return err
		}
		if err := os.Mkdir(filepath.Join(p.Dir, d), 0o755); err != nil {
			return err
		}
	}
	return os.Chown(filepath.Join(p.Dir, "upper"), p.UID, p.UID)
}
