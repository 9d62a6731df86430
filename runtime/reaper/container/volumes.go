package container

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/rootfs"
	"github.com/soukhq/souk/runtime/reaper/spec"
	"github.com/soukhq/souk/runtime/reaper/users"
	"github.com/soukhq/souk/runtime/reaper/volumes"
)

// volumesDir is the directory in a machine's directory where its container's volumes are mounted, visible only to the
// container. Root owns it.
const volumesDir = "volumes"

// showVolumes mounts a container's volumes below its machine's directory, in the calling thread's namespace, with their
// owners mapped to the container's users, and changes the start's mounts to these paths.
func (p Plan) showVolumes(ctx context.Context, in inside) error {
	if err := os.RemoveAll(filepath.Join(p.Dir, volumesDir)); err != nil { // of the previous life
		return fault.Wrap(err, fault.Unavailable, fault.CodeVolume, "the directory to mount volumes in cannot be "+
			"made")
	}
	for i, v := range p.Volumes {
		m := &p.Start.Mounts[i]
		if err := in.showOwners(ctx, v, *m); err != nil {
			return err
		}
		at := filepath.Join(p.Dir, volumesDir, strconv.Itoa(i))
		if err := mountAt(v, at); err != nil {
			return fault.Wrap(err, fault.Unavailable, fault.CodeVolume, "volume %s cannot be mounted", m.Volume)
		}
		m.Dir = at
	}
	return nil
}

// showOwners maps a volume's owners to the container's users.
func (in inside) showOwners(ctx context.Context, v *volumes.Volume, m runtime.Mount) error {
	from, err := placeOf(in.root, m)
	if err != nil {
		return err
	}
	defer from.Close() // closing nil does nothing
	shown, err := v.Show(in.users, in.ids)
	if err != nil {
		return err
	}
	if !shown {
		return fault.New(fault.Precondition, fault.CodeVolume,
			"volume %s lies on a file system that the kernel cannot show "+
				"to a container's users (no idmapped mounts): keep souk's directory on ext4, xfs or btrfs", m.Volume)
	}
	return v.Take(func(empty bool) error { return in.beginVolume(ctx, v, from, empty) })
}

func mountAt(v *volumes.Volume, at string) error {
	if err := os.MkdirAll(at, 0o700); err != nil {
		return err
	}
	fd, err := unix.Open(at, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(v.MoveTo(fd), unix.Close(fd))
}

// dataDir is the directory in a machine's directory where directories of a read-only root are mounted again, writable,
// visible only to the container. Root owns it.
const dataDir = "data"

// keepData makes sure that the image's data directories (its VOLUMEs) exist, and, for a read-only root, returns mounts
// that make them writable: they write into the same layer, which is removed with this life. Sandboxes get no such
// mounts, because they do not start with them (runsc of 2022 exits with 128). Paths inside a mounted volume are left to
// that volume. A path that is not a directory in the image is left as it is.
func (p Plan) keepData(in inside, again bool) (out []spec.Mount, err error) {
	if err := os.RemoveAll(filepath.Join(p.Dir, dataDir)); err != nil { // of the previous life
		return nil, unmadeError(err, p.Name.ID)
	}
	for i, dir := range p.Start.Container.Volumes {
		if Brings(p.Start, dir) {
			continue
		}
		f, err := rootfs.MakeDir(in.root, dir, func(f *os.File, at string) error { return in.chownDir(f, at == dir) })
		if noDirectory(err) {
			continue
		}
		if err == nil && again && p.Start.Container.ReadOnly {
			at := filepath.Join(p.Dir, dataDir, strconv.Itoa(i))
			if err = os.MkdirAll(at, 0o700); err == nil {
				err = unix.Mount("/proc/thread-self/fd/"+strconv.Itoa(int(f.Fd())), at, "", unix.MS_BIND, "")
			}
			out = append(out, spec.Mount{From: at, To: dir})
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, unmadeError(err, p.Name.ID)
		}
	}
	return out, nil
}

// noDirectory reports whether an image has something other than a directory at a path.
func noDirectory(err error) bool {
	return errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ELOOP) ||
		errors.Is(err, unix.ENAMETOOLONG)
}

// chownDir gives a new directory to the container's user, or to its root.
func (in inside) chownDir(f *os.File, toUser bool) error {
	var who spec.User
	if toUser {
		who = in.who
	}
	uid, _ := users.Outside(in.ids, who.UID) // both exist: see checkRepresented
	gid, _ := users.Outside(in.ids, who.GID)
	return f.Chown(uid, gid)
}

// placeOf opens the image's directory at a volume's path, nil if it has none.
func placeOf(root string, m runtime.Mount) (*os.File, error) {
	f, err := rootfs.Open(root, m.Path, unix.O_RDONLY|unix.O_DIRECTORY)
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, unix.ENOENT):
		return nil, nil //nolint:nilnil // see the doc comment
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil, fault.New(fault.Precondition, fault.CodeVolume,
			"volume %s cannot be shown at %s, where the image has "+
				"a file, or a link that leads to none: mount it at another path", m.Volume, m.Path)
	}
	return nil, fault.Wrap(err, fault.Unavailable, fault.CodeVolume,
		"the path %s in the image cannot be examined", m.Path)
}

// beginVolume initializes a volume that no machine has used: it gets the owner and mode of the image's directory at its
// path, and, if it is empty, also that directory's content. If the image has no such directory, the volume belongs to
// the container's user.
func (in inside) beginVolume(ctx context.Context, v *volumes.Volume, from *os.File, empty bool) error {
	switch {
	case from == nil:
		return v.Give(in.who.UID, in.who.GID, 0o755)
	case empty:
		return v.Fill(ctx, from)
	}
	return v.Like(from)
}
