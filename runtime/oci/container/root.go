package container

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/oci/rootfs"
	"github.com/soukhq/souk/runtime/oci/spec"
	"github.com/soukhq/souk/runtime/process/users"
)

// inside is what is known of a container once its root is mounted.
type inside struct {
	root  string // where that is
	ids   []users.ID
	users *os.File // a user namespace of ids
	who   spec.User
}

// rooted mounts a machine's root and finds its user there. A user whose number stands for nothing on the host gets one,
// and the root is mounted anew, so that its files are seen as its own.
func (p Plan) rooted() (in inside, err error) {
	if err = p.clear(); err != nil {
		return in, unmade(err, p.Name.ID)
	}
	var singles []uint32
	for {
		in.ids = users.Numbers(p.UID, singles...)
		if in.users, err = p.Users(in.ids); err != nil {
			return in, unmade(err, p.Name.ID)
		}
		in.root = filepath.Join(p.Dir, RootfsDir)
		err = rootfs.Mount(rootfs.Plan{Layers: p.Start.Container.Layers, Upper: filepath.Join(p.Dir, "upper"),
			Work: filepath.Join(p.Dir, "work"), At: in.root, Users: in.users})
		if err != nil {
			return in, errors.Join(unmade(err, p.Name.ID), in.users.Close())
		}
		if in.who, err = userOf(in.root, p.Start.User); err != nil {
			return in, errors.Join(err, in.users.Close())
		}
		lacking := in.lacking()
		if len(lacking) == 0 {
			return in, nil
		}
		if err = in.users.Close(); err == nil {
			err = unix.Unmount(in.root, unix.MNT_DETACH)
		}
		if err != nil {
			return in, unmade(err, p.Name.ID)
		}
		if singles != nil {
			return in, fault.New(fault.Precondition, "user",
				"this worker has no number for the user or group %d of the image: use another", lacking[0])
		}
		singles = lacking
	}
}

func unmade(err error, container string) error {
	return fault.Wrap(err, fault.Unavailable, "rootfs", "the root file system of container %s cannot be made",
		container)
}

// lacking are the numbers of the container's user that stand for nothing on the host.
func (in inside) lacking() (out []uint32) {
	for _, n := range append([]uint32{in.who.UID, in.who.GID}, in.who.Groups...) {
		if _, ok := users.Outside(in.ids, n); !ok {
			out = append(out, n)
		}
	}
	return out
}

// RootfsDir is where a container's root is mounted in the directory of its machine, for itself only. It is root's.
const RootfsDir = "rootfs"

// clear makes the directories for a machine's root, empty but for its layers: what was written by the life before is
// gone. One that goes on finds what it has written.
func (p Plan) clear() error {
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
