package layer

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
)

// Options configure how layers are unpacked.
type Options struct {
	Limits Limits
	Form   Form
}

// Tally is the content of a directory: the number of names, and the bytes of regular files, hard links counted once.
type Tally struct {
	Entries int   `json:"entries"`
	Bytes   int64 `json:"bytes"`
}

// Result is the result of unpacking one layer.
type Result struct {
	Tally
	// hides all layers below; overlayfs has no mark for that on a root, so the layers below are not mounted
	OpaqueRoot bool
}

// Whiteouts are identified by their names.
const (
	whiteoutPrefix = ".wh."
	opaqueName     = ".wh..wh..opq"
	auxPrefix      = ".wh..wh." // aufs's own files, which are ignored
	maxLinks       = 40         // symbolic links followed for one name
	openDirs       = 128
	maxID          = 1<<32 - 2 // 1<<32 - 1 means "no change" to chown
)

// unpacker unpacks one layer.
type unpacker struct {
	ctx    context.Context //nolint:containedctx // for this layer only
	o      Options
	root   *os.Root // to remove trees
	top    int      // descriptor of this layer's directory
	lowers []int    // descriptors of the layers below, the topmost first; none if flat

	flat bool            // top contains the layers below
	own  map[string]bool // paths that this layer has written; only if flat

	dirs    map[string]int      // cached descriptors of directories, by path
	devices map[string]bool     // paths of this layer's devices, which are left out
	finish  map[string]metadata // metadata of directories, set at the end
	buf     []byte
	entries int   // entries of the tar so far
	written int64 // bytes of files so far
	result  Result
	removed bool // entries were removed, so result must be counted again
}

// metadata is what is set on a directory at the end.
type metadata struct {
	mode uint32
	time time.Time
}

// Unpack unpacks a layer's tar into an empty directory, to be used as an overlayfs lower directory on top of lowers,
// the topmost of which comes first.
func Unpack(ctx context.Context, r io.Reader, dir string, lowers []string, o Options) (Result, error) {
	u := &unpacker{ctx: ctx, o: o}
	for _, l := range lowers {
		fd, err := unix.Open(l, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err != nil {
			u.close()
			return Result{}, onDisk(err, "open the layer %s", l)
		}
		u.lowers = append(u.lowers, fd)
	}
	return u.unpackLayer(r, dir)
}

// Apply unpacks a layer's tar over the result of the layers below it in a directory.
func Apply(ctx context.Context, r io.Reader, dir string, o Options) (Result, error) {
	u := &unpacker{ctx: ctx, o: o, flat: true, own: map[string]bool{}}
	return u.unpackLayer(r, dir)
}

func (u *unpacker) unpackLayer(r io.Reader, dir string) (Result, error) {
	u.o.Limits = u.o.Limits.Or()
	u.dirs, u.finish, u.buf = map[string]int{}, map[string]metadata{}, make([]byte, 256<<10)
	u.devices = map[string]bool{}
	defer u.close()
	var err error
	if u.root, err = os.OpenRoot(dir); err != nil {
		return Result{}, onDisk(err, "open %s", dir)
	}
	if u.top, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0); err != nil {
		return Result{}, onDisk(err, "open %s", dir)
	}
	u.dirs[""] = u.top
	if err := u.beginRoot(); err != nil {
		return Result{}, err
	}
	if err := u.readAll(r); err != nil {
		return Result{}, err
	}
	if err := u.finishDirs(); err != nil {
		return Result{}, err
	}
	if u.removed || u.flat {
		u.result.Tally, err = Count(dir)
	}
	return u.result, err
}

func (u *unpacker) close() {
	for name, fd := range u.dirs {
		_ = unix.Close(fd)
		delete(u.dirs, name)
	}
	for _, fd := range u.lowers {
		_ = unix.Close(fd)
	}
	if u.root != nil {
		_ = u.root.Close()
	}
}

// readAll reads the tar to its end, and any data after it, which is part of the digest.
func (u *unpacker) readAll(r io.Reader) error {
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return unreadableError(err)
		}
		if u.entries++; u.entries > u.o.Limits.Entries {
			return tooLarge("it has more than %d entries", u.o.Limits.Entries)
		}
		if err := u.unpackEntry(h, in); err != nil {
			return err
		}
	}
	if _, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{r}, u.buf); err != nil {
		return unreadableError(err)
	}
	return nil
}

// unreadableError returns the error for a tar that is truncated or invalid. It keeps an existing fault.Error.
func unreadableError(err error) error {
	if f, ours := errors.AsType[*fault.Error](err); ours {
		return f
	}
	return fault.Wrap(err, fault.Invalid, CodeImageLayer,
		"a layer is not a tar, or breaks off; build or push the image again")
}

// refuseEntry returns the error for an entry that is not allowed.
func refuseEntry(name, why string, args ...any) error {
	return fault.New(fault.Invalid, codeImageEntry, "souk refused a layer for its entry %q, %s; nothing of the "+
		"layer was kept",
		fault.Clip(name, 200), fmt.Sprintf(why, args...))
}

// splitName splits a name of the layer into its parts. It refuses names that lead out of the tree.
func (u *unpacker) splitName(name string) ([]string, error) {
	if len(name) > u.o.Limits.Path {
		return nil, refuseEntry(name, "whose name has %d bytes, more than the %d that are allowed", len(name),
			u.o.Limits.Path)
	}
	if strings.ContainsRune(name, 0) {
		return nil, refuseEntry(name, "whose name has a zero byte")
	}
	clean := path.Clean(strings.TrimLeft(name, "/"))
	if clean == "." {
		return nil, nil
	}
	all := strings.Split(clean, "/")
	if all[0] == ".." {
		return nil, refuseEntry(name, "which leads out of the image")
	}
	for _, p := range all {
		if len(p) > 255 {
			return nil, refuseEntry(name, "of which a part has more than 255 bytes")
		}
	}
	return all, nil
}

// unpackEntry unpacks one entry.
func (u *unpacker) unpackEntry(h *tar.Header, body io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if len(u.dirs) > openDirs { // only between entries: one entry may use several descriptors
		u.closeDirs()
	}
	if h.Uid < 0 || h.Gid < 0 || h.Uid > maxID || h.Gid > maxID {
		return refuseEntry(h.Name, "which belongs to the user %d and the group %d, and there are none", h.Uid, h.Gid)
	}
	all, err := u.splitName(h.Name)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		if h.Typeflag != tar.TypeDir {
			return refuseEntry(h.Name, "which is the image's root and no directory")
		}
		return u.describeDir("", u.top, h)
	}
	for _, p := range all[:len(all)-1] {
		if strings.HasPrefix(p, auxPrefix) {
			return nil
		}
		if strings.HasPrefix(p, whiteoutPrefix) {
			return refuseEntry(h.Name, "which is in a whiteout")
		}
	}
	parent, base := all[:len(all)-1], all[len(all)-1]
	if strings.HasPrefix(base, whiteoutPrefix) {
		return u.applyWhiteout(h.Name, parent, base)
	}
	dir, err := u.resolveDir(h.Name, parent)
	if err != nil {
		return err
	}
	fd, err := u.makeDir(h.Name, dir)
	if err != nil {
		return err
	}
	at := joinPath(dir, base)
	if len(at) > u.o.Limits.Path {
		return refuseEntry(h.Name, "which is more than %d bytes deep", u.o.Limits.Path)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		err = u.unpackDir(h, fd, at, base)
	case tar.TypeReg:
		err = u.unpackFile(h, body, fd, at, base)
	case tar.TypeSymlink:
		err = u.unpackSymlink(h, fd, at, base)
	case tar.TypeLink:
		if left, err := u.linkOfDevice(h, fd, at, base); left || err != nil {
			return err
		}
		err = u.unpackLink(h, fd, at, base)
	case tar.TypeFifo:
		err = u.unpackFifo(h, fd, at, base)
	case tar.TypeChar, tar.TypeBlock:
		return u.leaveOut(h.Name, fd, at, base)
	default:
		return refuseEntry(h.Name, "which is of the unknown type %q", h.Typeflag)
	}
	if err == nil && u.flat {
		u.own[at] = true
	}
	return err
}

func joinPath(dir, base string) string {
	if dir == "" {
		return base
	}
	return dir + "/" + base
}

func splitPath(at string) (dir, base string) {
	i := strings.LastIndexByte(at, '/')
	if i < 0 {
		return "", at
	}
	return at[:i], at[i+1:]
}
