package process

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// tree is the files of a machine or a volume, of which nothing outside can be reached: os.Root sees to that, whatever
// the machine does meanwhile.
type tree struct {
	*os.Root
	whole bool // it is a container's root, so that an absolute symlink begins there
}

// maxLinks is how many symlinks may be on the way to one file, as in Linux.
const maxLinks = 40

// resolvePath returns a path below the tree with no symlink on the way, as a process of the container would go it: an
// absolute one begins at the container's root, and ".." ends there. What is not there is as its name says. The last
// name is followed where last is set. It decides nothing about safety, since the machine may change a link right behind
// it: what it returns is opened by os.Root, which then refuses.
//
// Where the tree is not a whole root, p is returned as it is: os.Root follows symlinks that stay inside.
func (t *tree) resolvePath(p string, last bool) (string, error) {
	if !t.whole {
		return p, nil
	}
	at, rest, links := ".", strings.Split(path.Clean(p), "/"), 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, name)
		st, err := t.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) {
			at = next
			continue
		}
		if err != nil {
			return "", err
		}
		if st.Mode()&fs.ModeSymlink == 0 || len(rest) == 0 && !last {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", &fs.PathError{Op: "resolve", Path: p, Err: syscall.ELOOP}
		}
		to, err := t.Readlink(next)
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(to, "/") {
			at = "."
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return at, nil
}
