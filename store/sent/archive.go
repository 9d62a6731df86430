package sent

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
)

// An archive is a tar stream in one form only, so that the same files have the same digest: a file or a directory with
// all that is below it, sorted by path; of each entry the path, and of files the content and whether they may be
// executed. There are no owners, times or other modes. All paths begin with the name of the file or directory.

// WriteArchive writes the archive of the file or directory at path from; name is its name in the archive. It refuses
// what cannot be sent, with a sentence.
func WriteArchive(w io.Writer, from, name string) error {
	out := tar.NewWriter(w)
	entries := 0
	// "/." follows a link that names a directory; of a link to a file the content is sent
	start := from
	if st, err := os.Stat(from); err == nil && st.IsDir() {
		start = filepath.Clean(from) + string(filepath.Separator)
	}
	err := filepath.WalkDir(start, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return unreadable(err, p)
		}
		if entries++; entries > MaxEntries {
			return fault.New(fault.Invalid, fault.CodeTar, "%s has more than %d files and directories; pack them into "+
				"one file, such as a tar", from, MaxEntries)
		}
		rel, err := filepath.Rel(start, p)
		if err != nil {
			return unreadable(err, p)
		}
		return writeEntry(out, p, path.Join(name, filepath.ToSlash(rel)), p == start)
	})
	return errors.Join(err, out.Close())
}

func writeEntry(out *tar.Writer, p, name string, isTop bool) error {
	stat := os.Lstat
	if isTop {
		stat = os.Stat
	}
	st, err := stat(p)
	if err != nil {
		return unreadable(err, p)
	}
	h := &tar.Header{Name: name, Format: tar.FormatPAX, ModTime: time.Unix(0, 0)}
	switch mode := st.Mode(); {
	case mode.IsDir():
		h.Typeflag, h.Name, h.Mode = tar.TypeDir, name+"/", 0o755
		return out.WriteHeader(h)
	case mode&fs.ModeSymlink != 0:
		h.Typeflag, h.Mode = tar.TypeSymlink, 0o777
		if h.Linkname, err = os.Readlink(p); err != nil {
			return unreadable(err, p)
		}
		if err := checkEntry(h); err != nil {
			return err
		}
		return out.WriteHeader(h)
	case !mode.IsRegular():
		return fault.New(fault.Invalid, fault.CodeFileKind, "%s is a FIFO, a socket or a device, and only files, "+
			"directories and symlinks are sent", p)
	}
	f, err := os.Open(p)
	if err != nil {
		return unreadable(err, p)
	}
	defer f.Close()
	h.Typeflag, h.Size, h.Mode = tar.TypeReg, st.Size(), 0o444
	if st.Mode()&0o111 != 0 {
		h.Mode = 0o555
	}
	if err := out.WriteHeader(h); err != nil {
		return err
	}
	if _, err = io.CopyN(out, f, h.Size); errors.Is(err, io.EOF) {
		return fault.New(fault.Conflict, fault.CodeTar, "%s became shorter while it was read; try again when it is "+
			"complete", p)
	}
	return err
}

func unreadable(err error, p string) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.NotFound, fault.CodePath, "there is no file %s", p)
	case errors.Is(err, fs.ErrPermission):
		return fault.New(fault.Denied, fault.CodePath, "%s may not be read by this user", p)
	}
	return fault.Wrap(err, fault.Unavailable, fault.CodePath, "%s cannot be read", p)
}

// checkEntry refuses an entry that is not in an archive's form, or leads out of it.
func checkEntry(h *tar.Header) error {
	name := strings.TrimSuffix(h.Name, "/")
	no := func(why string) error {
		return fault.New(fault.Invalid, fault.CodeTar, "%.200q cannot be sent: %s", h.Name, why)
	}
	switch {
	case !filepath.IsLocal(name) || path.Clean(name) != name || name == ".":
		return no("its path leads out of what is sent")
	case h.Typeflag == tar.TypeReg, h.Typeflag == tar.TypeDir:
		return nil
	case h.Typeflag != tar.TypeSymlink:
		return no("only files, directories and symlinks are")
	case path.IsAbs(h.Linkname) || !filepath.IsLocal(path.Join(path.Dir(name), h.Linkname)) ||
		topOf(path.Join(path.Dir(name), h.Linkname)) != topOf(name):
		return no("it is a symlink to " + h.Linkname + ", which is not part of what is sent")
	}
	return nil
}

func topOf(name string) string {
	top, _, _ := strings.Cut(name, "/")
	return top
}

// checkArchive reads an archive to its end, and refuses one that is not in the form.
func checkArchive(r io.Reader) error {
	return eachEntry(r, func(*tar.Header, io.Reader) error { return nil })
}

// eachEntry calls f with each entry of an archive.
func eachEntry(r io.Reader, f func(*tar.Header, io.Reader) error) error {
	t := tar.NewReader(r)
	top := ""
	for entries := 1; ; entries++ {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			if entries == 1 {
				return fault.New(fault.Invalid, fault.CodeTar, "the archive has no files")
			}
			_, err = io.Copy(io.Discard, r) // what a tar writer adds behind the end
			return err
		}
		if err != nil {
			return fault.Wrap(err, fault.Invalid, fault.CodeTar, "what was sent is not a whole tar stream")
		}
		if entries > MaxEntries {
			return fault.New(fault.Invalid, fault.CodeTar, "the archive has more than %d files", MaxEntries)
		}
		if err := checkEntry(h); err != nil {
			return err
		}
		if entries == 1 {
			top = topOf(strings.TrimSuffix(h.Name, "/"))
		} else if topOf(h.Name) != top {
			return fault.New(fault.Invalid, fault.CodeTar, "the archive has both %.80q and %.80q at its top; send "+
				"them one by one", top, topOf(h.Name))
		}
		if err := f(h, t); err != nil {
			return err
		}
	}
}

// unpackArchive unpacks an archive into an empty directory: files that can only be read, or executed. dir must be on
// the disk before the archive counts as unpacked.
func unpackArchive(ctx context.Context, r io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var links []*tar.Header // made at the end, so that nothing is written through them
	err = eachEntry(r, func(h *tar.Header, content io.Reader) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		name := strings.TrimSuffix(h.Name, "/")
		if d := path.Dir(name); d != "." {
			if err := root.MkdirAll(d, 0o755); err != nil {
				return err
			}
		}
		switch h.Typeflag {
		case tar.TypeDir:
			return root.MkdirAll(name, 0o755)
		case tar.TypeSymlink:
			links = append(links, h)
			return nil
		}
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		mode := fs.FileMode(0o444)
		if h.Mode&0o111 != 0 {
			mode = 0o555
		}
		return errors.Join(err, f.Chmod(mode), f.Close())
	})
	if err != nil {
		return err
	}
	slices.SortFunc(links, func(a, b *tar.Header) int { return strings.Compare(a.Name, b.Name) })
	for _, h := range links {
		if err := root.Symlink(h.Linkname, h.Name); err != nil {
			return err
		}
	}
	return nil
}
