// Package rootfs makes the root file system of a container from an image's layers, without changing them.
//
// # Mechanism
//
// The root is an overlay: the layers below, and a directory of the machine's own above, which receives all writes. The
// layers are stored once, with the owners of the image's files, and are shown to each container with its own users as
// owners (an idmapped mount), so a start copies and chowns nothing.
//
// # Namespace
//
// The mount is in a namespace that a thread makes and that the container's first process is forked in. When the thread
// ends, the container has moved into its root, and the kernel removes the mount with the container's last process: a
// kill at any moment leaves no mount behind, and the host's mount table does not grow.
//
// It needs Linux 5.19 or later (overlay of idmapped layers), and 6.8 for more layers than fit into one page.
package rootfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Plan describes what to mount.
type Plan struct {
	Layers []string // directories, topmost first; at least one
	Upper  string   // receives all writes; on the same file system as Work
	Work   string   // an empty directory for the overlay's internal use
	At     string   // the mount point
	Users  *os.File // user namespace for the idmapped mounts of the layers; nil: not mapped
}

// Apart moves the calling thread to a new mount namespace, which still follows the host's mounts. The thread must be
// locked, and must end afterwards.
func Apart() error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("have a mount namespace follow the host: %w", err)
	}
	return nil
}

// Mount mounts the overlay in the calling thread's namespace.
func Mount(p Plan) (err error) {
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("there is no overlay file system: %w", err)
	}
	defer unix.Close(fs)
	for _, dir := range p.Layers {
		layer, err := show(dir, p.Users)
		if err != nil {
			return err
		}
		defer unix.Close(layer) // open until the overlay is mounted
		if err := unix.FsconfigSetString(fs, "lowerdir+", "/proc/self/fd/"+strconv.Itoa(layer)); err != nil {
			return fmt.Errorf("lay %s into an overlay: %w", dir, said(fs, err))
		}
	}
	for _, o := range [][2]string{{"source", "souk"}, {"upperdir", p.Upper}, {"workdir", p.Work}} {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return fmt.Errorf("set %s of an overlay: %w", o[0], said(fs, err))
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return fmt.Errorf("make an overlay of %d layers: %w", len(p.Layers), said(fs, err))
	}
	m, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return fmt.Errorf("make an overlay: %w", said(fs, err))
	}
	defer unix.Close(m)
	if err := unix.MoveMount(m, "", unix.AT_FDCWD, p.At, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount an overlay: %w", err)
	}
	return nil
}

// show opens a directory as a detached mount, whose owners are mapped by a user namespace.
func show(dir string, users *os.File) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("open the layer %s: %w", dir, err)
	}
	if users == nil {
		return fd, nil
	}
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(users.Fd())}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, attr); err != nil {
		return -1, errors.Join(fmt.Errorf("show the layer %s with other users: %w", dir, err), unix.Close(fd))
	}
	return fd, nil
}

// said adds the kernel's own message about a refused mount to err.
func said(fs int, err error) error {
	buf := make([]byte, 512)
	if n, readErr := unix.Read(fs, buf); readErr == nil && n > 0 {
		return fmt.Errorf("%s: %w", buf[:n], err)
	}
	return err
}

// Open opens a file of a root as a process inside would: links are resolved inside the root, and nothing outside is
// reached.
func Open(root, path string, flags int) (*os.File, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: root, Err: err}
	}
	defer unix.Close(dir)
	if flags&unix.O_PATH == 0 {
		flags |= unix.O_NONBLOCK // it may be a FIFO
	}
	fd, err := unix.Openat2(dir, path, &unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC),
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// MakeDir opens a directory of a root, by an absolute and clean path that is resolved as by Open, and makes missing
// parts with mode 0755. made is called with each new part and its path. EEXIST: a dangling link is in the path.
func MakeDir(root, dir string, made func(f *os.File, at string) error) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY
	f, err := Open(root, "/", flags)
	at := ""
	for part := range strings.SplitSeq(strings.TrimPrefix(dir, "/"), "/") {
		if err != nil {
			return nil, err
		}
		at += "/" + part
		next, missing := Open(root, at, flags)
		if errors.Is(missing, unix.ENOENT) {
			if missing = unix.Mkdirat(int(f.Fd()), part, 0o755); missing == nil {
				next, missing = Open(root, at, flags)
			}
			if missing == nil {
				missing = errors.Join(next.Chmod(0o755), made(next, at)) // regardless of this process's umask
			}
		}
		err = errors.Join(missing, f.Close())
		f = next
	}
	return f, err
}

// ReadFile reads a regular file of a root of at most limit bytes; nil if there is none.
func ReadFile(root, path string, limit int64) ([]byte, error) {
	f, err := Open(root, path, unix.O_RDONLY)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() || st.Size() > limit {
		return nil, errors.Join(err, fmt.Errorf("%s is no file of up to %d bytes", path, limit))
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// Program finds a program as a process in a root would: by its path, relative to dir, or in the directories of pathEnv.
// It returns its path in the root; the error is like that of exec(2).
func Program(root, name, dir, pathEnv string) (string, error) {
	if strings.Contains(name, "/") {
		if !path.IsAbs(name) {
			name = path.Join("/", dir, name)
		}
		return name, executable(root, name)
	}
	wrong := error(unix.ENOENT)
	for d := range strings.SplitSeq(pathEnv, ":") {
		file := path.Join("/", dir, d, name)
		if path.IsAbs(d) {
			file = path.Join(d, name)
		}
		err := executable(root, file)
		if err == nil {
			return file, nil
		}
		if errors.Is(err, unix.EACCES) {
			wrong = err
		}
	}
	return "", wrong
}

func executable(root, name string) error {
	f, err := Open(root, name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Mode()&0o111 == 0 {
		return unix.EACCES
	}
	return nil
}
