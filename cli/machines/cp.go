package machines

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Copy makes the command "souk cp".
func Copy(c *cli.Env) *cobra.Command {
	return &cobra.Command{Use: "cp FROM TO", Short: "Copy files out of a machine or into it",
		Long: `Copy a file or a directory between a machine and here. One of the two is written MACHINE:PATH. A TO of "-" prints the
file on stdout.

The copy keeps its name below a TO that ends with "/" (or, here, is a directory); else it gets the name that TO ends
with. Paths of a machine lie below its own directory. Symlinks are copied as such; modes and times are kept, but no
setuid, setgid or sticky bit. A FIFO, socket or device is left out of a directory, named, and the exit code is not 0.`,
		Example: "  souk cp web:/var/log/app.log .\n  souk cp ./conf web:/etc/",
		Args:    cli.Args(2, 2, "two paths, one of them MACHINE:PATH"),
		RunE: func(cmd *cobra.Command, given []string) error {
			for _, g := range given {
				ref, is := strings.CutSuffix(g, ":")
				if is && (machine.IsSlot(ref) || !strings.ContainsAny(ref, "/:")) {
					return cli.Usagef("%s names a machine and no path: write %s/ for the machine's own directory, or "+
						"%s/PATH", g, g, g)
				}
			}
			fromRef, fromPath, out := splitPath(given[0])
			toRef, toPath, in := splitPath(given[1])
			if out == in {
				return cli.Usagef("exactly one of FROM and TO is MACHINE:PATH; a path of this host with a colon is " +
					"written ./a:b")
			}
			if out {
				cl, m, err := c.One(cmd, fromRef)
				if err != nil {
					return err
				}
				if given[1] == "-" {
					return printFile(cmd.Context(), c, cl, m, fromPath)
				}
				return copyOut(cmd.Context(), c, cl, m.App, m.ID, fromPath, given[1])
			}
			cl, m, err := c.One(cmd, toRef)
			if err != nil {
				return err
			}
			return copyIn(cmd.Context(), c, cl, m.App, m.ID, given[0], toPath)
		}}
}

// printFile writes a machine's file on stdout.
func printFile(ctx context.Context, c *cli.Env, cl *client.Client, m *machine.Machine, from string) error {
	pr, pw := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := cl.CopyOut(ctx, m.App, m.ID, from, pw)
		pw.CloseWithError(err)
		sent <- err
	}()
	tr := tar.NewReader(pr)
	h, err := tr.Next()
	switch {
	case err != nil:
	case h.Typeflag != tar.TypeReg:
		err = fault.New(fault.Invalid, fault.CodePath,
			"%s is no file, and only a file goes to stdout: copy it to a directory",
			from)
	default:
		_, err = io.Copy(cli.Raw(c.Out), tr)
	}
	pr.CloseWithError(err)
	if serr := <-sent; serr != nil && !errors.Is(serr, io.ErrClosedPipe) &&
		(err == nil || fault.KindOf(serr) != fault.Unavailable) {
		return serr
	}
	return err
}

func files(n int) string {
	if n == 1 {
		return "1 file"
	}
	return fmt.Sprintf("%d files", n)
}

// splitPath takes MACHINE:PATH apart. A path that begins with "/" or "." is always one of this host.
func splitPath(s string) (ref, p string, is bool) {
	if strings.HasPrefix(s, "/") || strings.HasPrefix(s, ".") {
		return "", s, false
	}
	ref, p, is = strings.Cut(s, ":")
	return ref, p, is && ref != "" && p != ""
}

func copyOut(ctx context.Context, c *cli.Env, cl *client.Client, app, id, from, to string) error {
	// The stream is unpacked as it comes, confined to one directory.
	dir, name := to, ""
	if st, err := os.Stat(to); err != nil || !st.IsDir() {
		dir, name = filepath.Dir(to), filepath.Base(to)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fault.Wrap(err, fault.NotFound, fault.CodePath, "the directory %s cannot be written to", dir)
	}
	defer root.Close()
	in := &untarring{root: root}
	n, err := in.receive(path.Base(path.Clean("/"+from)), name, func(w io.Writer) error {
		return cl.CopyOut(ctx, app, id, from, w)
	})
	if err != nil {
		return err
	}
	c.Say("copied", to, "%s copied", files(n))
	return notCopied(in.left)
}

// receive unpacks the tar stream that send writes, as all does.
func (u *untarring) receive(top, name string, send func(io.Writer) error) (int, error) {
	pr, pw := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := send(pw)
		pw.CloseWithError(err) // never fails
		sent <- err
	}()
	n, err := u.all(pr, top, name)
	pr.CloseWithError(err) // never fails
	if serr := <-sent; serr != nil && !errors.Is(serr, io.ErrClosedPipe) &&
		(err == nil || fault.KindOf(serr) != fault.Unavailable) {
		return n, serr
	}
	return n, err
}

// notCopied is the error for what was left out of a directory; nil for nothing.
func notCopied(left []string) error {
	const most = 5
	switch n := len(left); {
	case n == 0:
		return nil
	case n > most:
		left = append(left[:most:most], fmt.Sprintf("and %d more", n-most))
	}
	return fault.New(fault.Precondition, fault.CodeFileKind,
		"everything was copied except %s: only files, directories and symlinks can be", strings.Join(left, ", "))
}

// Receive unpacks below root the tar stream that send writes, and counts the files. An error of fault.CodeFileKind
// names what is neither a file nor a directory nor a symlink, and was left out: all else is there.
func Receive(root *os.Root, send func(io.Writer) error) (count int, err error) {
	in := &untarring{root: root}
	if count, err = in.receive("", "", send); err == nil {
		err = notCopied(in.left)
	}
	return count, err
}

// untarring unpacks what a machine sends.
type untarring struct {
	root *os.Root
	dirs []tarDir // directories, in the order of the stream
	left []string // skipped: FIFOs and the like
}

// tarDir is a directory's mode and times, which are set after its content was written.
type tarDir struct {
	name string
	mode fs.FileMode
	time time.Time
}

// all unpacks r and counts the files. If the topmost name is top, it becomes name ("": unchanged).
func (u *untarring) all(r io.Reader, top, name string) (int, error) {
	tr := tar.NewReader(r)
	count := 0
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return count, u.finish()
		}
		if err != nil {
			return count, fault.Wrap(err, fault.Unavailable, fault.CodeTar, "the stream of files broke off")
		}
		p := strings.Trim(path.Clean("/"+h.Name), "/")
		if name != "" {
			if rest, is := strings.CutPrefix(p+"/", top+"/"); is {
				p = path.Join(name, rest)
			} else {
				p = path.Join(name, p)
			}
		}
		if p == "" {
			continue
		}
		kept, err := u.entry(tr, h, p)
		if err != nil {
			return count, err
		}
		if kept && h.Typeflag != tar.TypeDir {
			count++
		}
	}
}

// finish gives directories their modes and times, in reverse order, so that no mode blocks access to another directory.
func (u *untarring) finish() error {
	for _, d := range slices.Backward(u.dirs) {
		err := u.root.Chmod(d.name, d.mode)
		if err == nil {
			err = u.root.Chtimes(d.name, d.time, d.time)
		}
		if err != nil {
			return fault.Wrap(err, fault.Invalid, fault.CodeWrite, "the mode of %s could not be set", d.name)
		}
	}
	return nil
}

// entry unpacks one entry; kept is false for entries that are not copied.
func (u *untarring) entry(tr *tar.Reader, h *tar.Header, p string) (kept bool, err error) {
	mode := fs.FileMode(h.Mode).Perm()
	switch h.Typeflag {
	case tar.TypeDir:
		if err = u.root.MkdirAll(p, mode|0o700); err == nil {
			u.dirs = append(u.dirs, tarDir{p, mode, h.ModTime})
		}
	case tar.TypeSymlink:
		if err = u.root.Remove(p); err == nil || errors.Is(err, fs.ErrNotExist) {
			err = u.root.Symlink(h.Linkname, p)
		}
	case tar.TypeReg:
		err = u.file(tr, h, p, mode)
	default:
		u.left = append(u.left, h.Name)
		return false, nil
	}
	if err != nil {
		return false, fault.Wrap(err, fault.Invalid, fault.CodeWrite, "%s could not be written", p)
	}
	return true, nil
}

func (u *untarring) file(tr *tar.Reader, h *tar.Header, p string, mode fs.FileMode) error {
	if d := path.Dir(p); d != "." {
		if err := u.root.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	f, err := u.root.OpenFile(p, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	if _, err = io.Copy(f, tr); err == nil {
		err = f.Chmod(mode)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return u.root.Chtimes(p, h.ModTime, h.ModTime)
}

func copyIn(ctx context.Context, c *cli.Env, cl *client.Client, app, id, from, to string) error {
	st, err := os.Lstat(from)
	if err != nil {
		return fault.Wrap(err, fault.NotFound, fault.CodePath, "%s cannot be read", from)
	}
	if !copied(st.Mode()) {
		return fault.New(fault.Precondition, fault.CodeFileKind,
			"%s is a FIFO, a socket or a device, and only files, directories and symlinks are copied", from)
	}
	// PATH names a directory of the machine when it ends with "/", else the copy itself.
	dir, name := path.Split(to)
	if name == "" {
		name = filepath.Base(filepath.Clean(from))
	}
	if dir == "" {
		dir = "."
	}
	pr, pw := io.Pipe()
	done := make(chan *packing, 1)
	go func() {
		p := &packing{out: tar.NewWriter(pw)}
		pw.CloseWithError(p.all(from, name))
		done <- p
	}()
	err = cl.CopyIn(ctx, app, id, dir, pr)
	pr.Close()
	p := <-done
	if err != nil {
		return err
	}
	if len(p.bits) > 0 {
		c.Note("the setuid and setgid bits are not kept: %s", strings.Join(p.bits[:min(len(p.bits), 5)], ", "))
	}
	c.Say("copied", to, "%s copied", files(p.count))
	return notCopied(p.left)
}

// copied reports whether files of this type are copied.
func copied(m fs.FileMode) bool { return m.IsRegular() || m.IsDir() || m&fs.ModeSymlink != 0 }

// packing sends files to a machine.
type packing struct {
	out   *tar.Writer
	count int
	bits  []string // files with a mode bit that is not kept
	left  []string // skipped: FIFOs and the like
}

// all writes from, a file or a tree, as a tar stream whose topmost name is name.
func (k *packing) all(from, name string) error {
	err := filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		return k.entry(p, path.Join(name, filepath.ToSlash(rel)), info)
	})
	return errors.Join(err, k.out.Close())
}

func (k *packing) entry(p, name string, info fs.FileInfo) error {
	if !copied(info.Mode()) {
		k.left = append(k.left, p)
		return nil
	}
	if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
		k.bits = append(k.bits, p)
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		var err error
		if link, err = os.Readlink(p); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return fmt.Errorf("%s: %w", p, err)
	}
	h.Name, h.Mode = name, int64(info.Mode().Perm()) // only permission bits are kept
	if err := k.out.WriteHeader(h); err != nil {
		return err
	}
	if !info.IsDir() {
		k.count++
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(p)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(k.out, f)
	return err
}
