package process

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// tree is the files of a machine or a volume. Nothing outside of it can be reached: os.Root guarantees that, whatever
// the machine does meanwhile.
type tree struct {
	*os.Root
	whole bool // it is a container's root, so absolute symlinks start there
}

// maxLinks is how many symlinks are followed for one path, as in Linux.
const maxLinks = 40

// resolvePath resolves the symlinks of a path as a process of the container would: an absolute link starts at the
// container's root, and ".." stops there. Names that do not exist stay as they are. The last name is followed only if
// last is set. Safety does not depend on it, since the machine may change a link at any time: os.Root opens the result,
// and refuses links that lead outside.
//
// If the tree is not a whole root, p is returned unchanged: os.Root follows symlinks that stay inside.
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
