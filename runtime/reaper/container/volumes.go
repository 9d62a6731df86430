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

// volumesDir is where a container's volumes are mounted in the directory of its machine, for itself only. It is root's.
const volumesDir = "volumes"

// showVolumes mounts a container's volumes below its machine's directory, in the namespace of the calling thread, with
// their owners as those of its users, and has the mounts of the start lead there.
func (p Plan) showVolumes(ctx context.Context, in inside) error {
	if err := os.RemoveAll(filepath.Join(p.Dir, volumesDir)); err != nil { // of the life before
		return fault.Wrap(err, fault.Unavailable, fault.CodeVolume, "there is no room to mount volumes in")
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

// showOwners has a volume show its owners as those of the container's users.
func (in inside) showOwners(ctx context.Context, v *volumes.Volume, m runtime.Mount) error {
	from, err := placeOf(in.root, m)
	if err != nil {
		return err
	}
	defer from.Close() // of nil, it does nothing
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

// dataDir is where directories of a container's root are mounted once more in the directory of its machine, for itself
// only, which it can write though it cannot write its root. It is root's.
const dataDir = "data"

// keepData sees to it that the directories in which the image keeps data are there, and returns mounts by which they can
// be written where the root cannot: into the same layer, which is gone with this life. A sandbox does not start with
// such mounts (runsc of 2022 ends with 128), so it has none. Paths inside a mounted volume are left to that volume. A
// path where the image has something else than a directory is left as it is.
func (p Plan) keepData(in inside, again bool) (out []spec.Mount, err error) {
	if err := os.RemoveAll(filepath.Join(p.Dir, dataDir)); err != nil { // of the life before
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

// noDirectory reports whether an image has something else where a directory was looked for.
func noDirectory(err error) bool {
	return errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ELOOP) ||
		errors.Is(err, unix.ENAMETOOLONG)
}

// chownDir gives a directory that was made to the container's user, or else to its root.
func (in inside) chownDir(f *os.File, toUser bool) error {
	var who spec.User
	if toUser {
		who = in.who
	}
	uid, _ := users.Outside(in.ids, who.UID) // there are: represented
	gid, _ := users.Outside(in.ids, who.GID)
	return f.Chown(uid, gid)
}

// placeOf opens the directory that the image has at a volume's path; nil: it has none.
func placeOf(root string, m runtime.Mount) (*os.File, error) {
	f, err := rootfs.Open(root, m.Path, unix.O_RDONLY|unix.O_DIRECTORY)
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, unix.ENOENT):
		return nil, nil //nolint:nilnil // said above
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil, fault.New(fault.Precondition, fault.CodeVolume,
			"volume %s cannot be shown at %s, where the image has "+
				"a file, or a link that leads to none: mount it at another path", m.Volume, m.Path)
	}
	return nil, fault.Wrap(err, fault.Unavailable, fault.CodeVolume,
		"what the image has at %s cannot be looked at", m.Path)
}

// beginVolume has a volume that no machine has had begin as the image has the directory at its path: with its owner and
// mode, and with what is in it if the volume is empty. Where the image has none it is the container's user's.
func (in inside) beginVolume(ctx context.Context, v *volumes.Volume, from *os.File, empty bool) error {
	switch {
	case from == nil:
		return v.Give(in.who.UID, in.who.GID, 0o755)
	case empty:
		return v.Fill(ctx, from)
	}
	return v.Like(from)
}
