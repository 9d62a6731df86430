package reaper

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/frame"
	"github.com/soukhq/souk/runtime/reaper/spec"
)

// relativePath converts a machine's path to one below its root: "/etc/app.conf" -> "etc/app.conf". It refuses paths
// that would lead outside.
func relativePath(p, what string) (string, error) {
	if p == "" || strings.ContainsRune(p, 0) {
		return "", fault.New(fault.Invalid, fault.CodePath,
			"a %s has no usable path (%q): name one below the machine's directory, like /etc/app.conf", what, p)
	}
	rel := strings.TrimLeft(p, "/")
	if !filepath.IsLocal(rel) || path.Clean(rel) == "." {
		return "", fault.New(fault.Invalid, fault.CodePath,
			"the %s path %q does not lie below the machine's directory: use one without '..' that names something "+
				"in it", what, p)
	}
	return path.Clean(rel), nil
}

// placeFiles writes files and mounts below dir, through os.Root: nothing outside is touched, whatever symlinks the
// machine has left there. Mounts come first, so that a file inside one is refused and not hidden. A mount is a link to
// the volume or, if spaced, an empty directory to mount the volume on.
func placeFiles(dir string, files []frame.File, data []byte, mounts []runtime.Mount, o *owner, spaced bool) error {
	if len(files) == 0 && len(mounts) == 0 {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "", "the machine's directory cannot be opened")
	}
	defer root.Close()
	for _, m := range mounts {
		if err := placeMount(root, m, o, spaced); err != nil {
			return err
		}
	}
	for _, f := range files {
		if err := checkOutsideVolumes(f.Path, mounts); err != nil && spaced {
			return err
		}
		if f.Size < 0 || f.Size > len(data) {
			return fault.New(fault.Invalid, fault.CodeFile,
				"the file %s is said to have %d bytes but %d came", f.Path, f.Size,
				len(data))
		}
		if err := placeFile(root, f, data[:f.Size], o); err != nil {
			return err
		}
		data = data[f.Size:]
	}
	return nil
}

// placeFile removes what is there and creates the file. It never opens an existing file: that may be a FIFO, which
// would block the reaper, or a hard link to something else.
func placeFile(root *os.Root, f frame.File, data []byte, o *owner) error {
	name, err := relativePath(f.Path, "file")
	if err != nil {
		return err
	}
	refuse := func(err error) error {
		return fault.Wrap(err, fault.Precondition, fault.CodeFile,
			"the file %s cannot be written below the machine's directory; a part of its path may be a symlink that "+
				"leads out of it, a mount, or not a directory", f.Path)
	}
	if err := mkdirs(root, path.Dir(name), o); err != nil {
		return refuse(err)
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return refuse(err)
	}
	mode := fs.FileMode(f.Mode & 0o777)
	if mode == 0 {
		mode = 0o644
	}
	w, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return refuse(err)
	}
	_, err = w.Write(data)
	if err == nil && o != nil {
		err = w.Chown(o.uid, o.gid)
	}
	if err == nil {
		err = w.Chmod(mode)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return refuse(err)
	}
	return nil
}

// checkOutsideVolumes refuses a file inside a volume.
func checkOutsideVolumes(file string, mounts []runtime.Mount) error {
	file = path.Clean("/" + file)
	for _, m := range mounts {
		if at := path.Clean("/" + m.Path); file == at || strings.HasPrefix(file, at+"/") {
			return fault.New(fault.Precondition, fault.CodeFile,
				"the file %s would lie in the volume that is mounted at %s: name a path outside of it", file, m.Path)
		}
	}
	return nil
}

// mkdirs makes the missing directories of a path and gives them to the machine.
func mkdirs(root *os.Root, dir string, o *owner) error {
	at := ""
	for part := range strings.SplitSeq(dir, "/") {
		at = path.Join(at, part)
		err := root.Mkdir(at, 0o755)
		if err == nil && o != nil {
			err = root.Lchown(at, o.uid, o.gid)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// placeMount makes the symlink root/PATH -> volume, or the directory root/PATH.
func placeMount(root *os.Root, m runtime.Mount, o *owner, spaced bool) error {
	name, err := relativePath(m.Path, "mount")
	if err != nil {
		return err
	}
	if !filepath.IsAbs(m.Dir) {
		return fault.New(fault.Invalid, spec.CodeMount,
			"the directory of volume %s is %q, which is not absolute", m.Volume,
			m.Dir)
	}
	refuse := func(err error) error {
		return fault.Wrap(err, fault.Precondition, spec.CodeMount,
			"volume %s cannot be shown at %s; empty that path in the machine's directory, or mount elsewhere", m.Volume,
			m.Path)
	}
	if err := mkdirs(root, path.Dir(name), o); err != nil {
		return refuse(err)
	}
	st, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return refuse(err)
	case spaced && st.IsDir():
		return nil
	case st.Mode()&fs.ModeSymlink != 0:
		if to, err := root.Readlink(name); err == nil && to == m.Dir && !spaced {
			return nil
		}
		fallthrough
	default: // remove an empty directory or a stale link, but nothing that holds data
		if !st.IsDir() && st.Mode()&fs.ModeSymlink == 0 {
			return refuse(fs.ErrExist)
		}
		if err := root.Remove(name); err != nil {
			return refuse(err)
		}
	}
	if spaced {
		err = mkdirs(root, name, o)
	} else {
		err = root.Symlink(m.Dir, name)
	}
	if err != nil {
		return refuse(err)
	}
	return nil
}
