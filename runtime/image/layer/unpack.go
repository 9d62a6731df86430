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

// Options say how layers are unpacked.
type Options struct {
	Limits Limits
	Form   Form
}

// Tally is what is in a directory: names, and bytes of regular files, each once whatever it is called.
type Tally struct {
	Entries int   `json:"entries"`
	Bytes   int64 `json:"bytes"`
}

// Result is what came of unpacking one layer.
type Result struct {
	Tally
	OpaqueRoot bool // nothing of the layers below is seen; overlayfs has no mark for that, so they are not mounted
}

// Whiteouts are marked by their names.
const (
	whiteoutPrefix = ".wh."
	opaqueName     = ".wh..wh..opq"
	auxPrefix      = ".wh..wh." // of aufs's own files, which say nothing
	maxLinks       = 40         // symbolic ones, on the way to one name
	openDirs       = 128
	maxID          = 1<<32 - 2 // the next one means none
)

// unpacker unpacks one layer.
type unpacker struct {
	ctx    context.Context //nolint:containedctx // of this one layer
	o      Options
	root   *os.Root // for removing trees
	top    int      // this layer's directory
	lowers []int    // those below, the topmost first; none when flat

	flat bool            // top has what the layers below left
	own  map[string]bool // when flat: what this layer has said

	dirs    map[string]int      // descriptors of directories that are in use, by path
	devices map[string]bool     // names at which this layer has a device, which is left out
	finish  map[string]metadata // of directories, when nothing is written into them any more
	buf     []byte
	entries int   // of the tar
	written int64 // bytes of files
	result  Result
	removed bool // so the counters do not hold
}

// metadata is what is set on a file last.
type metadata struct {
	mode uint32
	time time.Time
}

// Unpack writes a layer's tar into an empty directory which then is an overlayfs's lower one on those below it, the
// topmost first.
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

// Apply writes a layer's tar over what the layers below it left in a directory.
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

// readAll reads the tar to its end, and what is behind that: it is part of what was hashed.
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

// unreadableError is the error for a tar that ends early or is none. What is known of why stays.
func unreadableError(err error) error {
	if f, ours := errors.AsType[*fault.Error](err); ours {
		return f
	}
	return fault.Wrap(err, fault.Invalid, CodeImageLayer,
		"a layer is not a tar, or breaks off; build or push the image again")
}

// refuseEntry is the error for an entry that no layer may have.
func refuseEntry(name, why string, args ...any) error {
	return fault.New(fault.Invalid, codeImageEntry, "a layer has the entry %q, %s; nothing of it was kept",
		fault.Clip(name, 200), fmt.Sprintf(why, args...))
}

// splitName splits a name of the layer. It may not lead above the tree.
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

// unpackEntry does what one entry says.
func (u *unpacker) unpackEntry(h *tar.Header, body io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if len(u.dirs) > openDirs { // between entries, for one may use several
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
