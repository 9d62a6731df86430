package space

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Plan describes a machine's view. Paths are relative to "/". The machine's directory has the same paths: empty
// directories for Volumes, and the contents of Files.
type Plan struct {
	Root    string // the machine's directory, in the worker's view
	Volumes []Volume
	Files   []string
}

// Volume is a detached mount to show at a path.
type Volume struct {
	Mount func(dir int) error // attaches it at the directory with this descriptor
	Path  string
}

// maxEntries bounds the entries that are mounted again to make room for a missing path.
const maxEntries = 2048

// Build makes a machine's own namespace from the view that the calling thread is in, and leaves the thread in it.
func Build(p *Plan) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	root, err := unix.Open(p.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the machine's directory: %w", err)
	}
	defer unix.Close(root)
	var paths []string
	for _, v := range p.Volumes {
		if err := v.mountAt(root); err != nil {
			return fmt.Errorf("mount a volume: %w", err)
		}
		paths = append(paths, v.Path)
	}
	return p.show(root, append(paths, p.Files...))
}

// mountAt mounts the volume below a directory. It follows no links there: the machine may have made some.
func (v *Volume) mountAt(dir int) error {
	fd, err := beneath(dir, v.Path)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return v.Mount(fd)
}

// beneath opens a path below a directory, and never outside of it.
func beneath(dir int, path string) (int, error) {
	return unix.Openat2(dir, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS})
}

// name returns a path for an open file.
func name(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// show makes each path of the machine's directory also appear at the same path of the root.
func (p *Plan) show(root int, paths []string) error {
	heads := make(map[string]bool) // the part of each path to mount: up to the first name that the host lacks
	lacking := make(map[string][]string)
	slices.Sort(paths) // a directory before its content
	for _, path := range paths {
		head, parent, err := headOf(path)
		if err != nil {
			return err
		}
		if covered(heads, head) {
			continue
		}
		heads[head] = true
		if parent != "" {
			lacking[parent] = append(lacking[parent], head)
		}
	}
	parents := make([]string, 0, len(lacking))
	for d := range lacking {
		parents = append(parents, d)
	}
	slices.Sort(parents)
	for _, d := range parents {
		if err := p.widen(root, d, lacking[d]); err != nil {
			return fmt.Errorf("make room in %s: %w", d, err)
		}
	}
	// After a change of the root, the earlier descriptor refers to a directory outside of it.
	root, err := unix.Open(p.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the machine's directory: %w", err)
	}
	defer unix.Close(root)
	all := make([]string, 0, len(heads))
	for h := range heads {
		all = append(all, h)
	}
	slices.Sort(all)
	for _, h := range all {
		fd, err := beneath(root, h)
		if err != nil {
			return fmt.Errorf("open %s in the machine's directory: %w", h, err)
		}
		err = unix.Mount(name(fd), "/"+h, "", unix.MS_BIND|unix.MS_REC, "")
		_ = unix.Close(fd)
		if err != nil {
			return fmt.Errorf("mount /%s: %w", h, err)
		}
	}
	return nil
}

// covered reports whether a path is one of heads, or below one.
func covered(heads map[string]bool, path string) bool {
	for h := range heads {
		if path == h || strings.HasPrefix(path, h+"/") {
			return true
		}
	}
	return false
}

// headOf returns how much of a path must be mounted. parent is the host's directory that lacks the next name; "" if the
// path exists.
func headOf(path string) (head, parent string, err error) {
	at := "/"
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if _, err := os.Stat(filepath.Join(at, part)); none(err) {
			if at, err = filepath.EvalSymlinks(at); err != nil {
				return "", "", err
			}
			return strings.Join(parts[:i+1], "/"), at, nil
		} else if err != nil {
			return "", "", err
		}
		at = filepath.Join(at, part)
	}
	return path, "", nil
}

// widen replaces a directory of the host by a tmpfs with the same entries, plus mount points for heads.
func (p *Plan) widen(root int, dir string, heads []string) error {
	es, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(es) > maxEntries {
		return fmt.Errorf("it holds %d entries, and with more than %d it takes too long: make the path on the host, "+
			"or use another", len(es), maxEntries)
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return err
	}
	options := fmt.Sprintf("size=4m,mode=%o,uid=%d,gid=%d", st.Mode&0o7777, st.Uid, st.Gid)
	if err := unix.Mount("souk", stage, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return err
	}
	// so that the stage does not contain itself
	if err := unix.Mount("", stage, "", unix.MS_UNBINDABLE, ""); err != nil {
		return err
	}
	for _, e := range es {
		if err := again(filepath.Join(dir, e.Name()), filepath.Join(stage, e.Name()), e); err != nil {
			return err
		}
	}
	for _, h := range heads {
		if err := p.place(root, h); err != nil {
			return err
		}
	}
	if dir == "/" {
		return pivot()
	}
	if err := unix.Mount(stage, dir, "", unix.MS_MOVE, ""); err != nil {
		return err
	}
	return unix.Mount("", dir, "", unix.MS_PRIVATE, "")
}

// again makes an entry of a directory appear in another. It leaves out an entry that is gone meanwhile.
func again(from, to string, e os.DirEntry) error {
	var err error
	switch {
	case e.Type()&os.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if none(err) {
			return nil
		}
		return errors.Join(err, unix.Symlink(target, to))
	case e.IsDir():
		err = unix.Mkdir(to, 0o755)
	default:
		err = touch(to)
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil && !none(err) {
		return fmt.Errorf("mount %s: %w", from, err)
	}
	return nil
}

func touch(path string) error {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// place makes a mount point.
func (p *Plan) place(root int, head string) error {
	fd, err := beneath(root, head)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	to := filepath.Join(stage, filepath.Base(head))
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return unix.Mkdir(to, 0o755)
	}
	return touch(to)
}

// old is where the previous root stays, accessible only to root: unmounting it would wait for every processor.
const old = "/.souk"

// pivot makes the stage the root.
func pivot() error {
	if err := unix.Mkdir(stage+old, 0o700); err != nil {
		return err
	}
	if err := unix.PivotRoot(stage, stage+old); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	return unix.Mount("", "/", "", unix.MS_PRIVATE, "")
}
