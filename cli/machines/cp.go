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
	"strings"

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
with. Paths of a machine lie below its own directory.`,
		Example: "  souk cp web:/var/log/app.log .\n  souk cp ./conf web:/etc/",
		Args:    cli.Args(2, 2, "two paths, one of them MACHINE:PATH"),
		RunE: func(cmd *cobra.Command, given []string) error {
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
		err = fault.New(fault.Invalid, "path", "%s is no file, and only a file goes to stdout: copy it to a directory",
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

// splitPath takes MACHINE:PATH apart. A path that begins with "/" or "." is of this host whatever it holds.
func splitPath(s string) (ref, p string, is bool) {
	if strings.HasPrefix(s, "/") || strings.HasPrefix(s, ".") {
		return "", s, false
	}
	ref, p, is = strings.Cut(s, ":")
	return ref, p, is && ref != "" && p != ""
}

func copyOut(ctx context.Context, c *cli.Env, cl *client.Client, app, id, from, to string) error {
	// What the server sends is unpacked as it comes, below one directory that it cannot leave.
	dir, name := to, ""
	if st, err := os.Stat(to); err != nil || !st.IsDir() {
		dir, name = filepath.Dir(to), filepath.Base(to)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fault.Wrap(err, fault.NotFound, "path", "the directory %s cannot be written to", dir)
	}
	defer root.Close()
	pr, pw := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := cl.CopyOut(ctx, app, id, from, pw)
		pw.CloseWithError(err)
		sent <- err
	}()
	n, err := untar(pr, root, path.Base(path.Clean("/"+from)), name)
	pr.CloseWithError(err)
	if serr := <-sent; serr != nil && !errors.Is(serr, io.ErrClosedPipe) &&
		(err == nil || fault.KindOf(serr) != fault.Unavailable) {
		return serr
	}
	if err != nil {
		return err
	}
	c.Say("copied", to, "%s copied", files(n))
	return nil
}

// untar unpacks r below root and counts the files. The topmost name, when it is top, becomes name ("" keeps it).
// Devices and the like are refused: a machine's files are files.
func untar(r io.Reader, root *os.Root, top, name string) (int, error) {
	tr := tar.NewReader(r)
	count := 0
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return count, nil
		}
		if err != nil {
			return count, fault.Wrap(err, fault.Unavailable, "tar", "the stream of files broke off")
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
		if err := unpack(tr, h, root, p); err != nil {
			return count, err
		}
		if h.Typeflag != tar.TypeDir {
			count++
		}
	}
}

func unpack(tr *tar.Reader, h *tar.Header, root *os.Root, p string) error {
	mode := fs.FileMode(h.Mode).Perm()
	var err error
	switch h.Typeflag {
	case tar.TypeDir:
		err = root.MkdirAll(p, mode|0o700)
	case tar.TypeSymlink:
		if err = root.Remove(p); err == nil || errors.Is(err, fs.ErrNotExist) {
			err = root.Symlink(h.Linkname, p)
		}
	case tar.TypeReg:
		if d := path.Dir(p); d != "." {
			err = root.MkdirAll(d, 0o755)
		}
		var f *os.File
		if err == nil {
			f, err = root.OpenFile(p, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
		}
		if err == nil {
			_, err = io.Copy(f, tr)
			err = errors.Join(err, f.Close())
		}
	default:
		return fault.New(fault.Unimplemented, "file_kind",
			"%q is neither a file, a directory nor a symbolic link, so it is not copied", h.Name)
	}
	if err != nil {
		return fault.Wrap(err, fault.Invalid, "write", "%s could not be written", p)
	}
	return nil
}

func copyIn(ctx context.Context, c *cli.Env, cl *client.Client, app, id, from, to string) error {
	if _, err := os.Lstat(from); err != nil {
		return fault.Wrap(err, fault.NotFound, "path", "%s cannot be read", from)
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
	packed := make(chan int, 1)
	go func() {
		n, err := pack(pw, from, name)
		pw.CloseWithError(err)
		packed <- n
	}()
	err := cl.CopyIn(ctx, app, id, dir, pr)
	pr.Close()
	n := <-packed
	if err != nil {
		return err
	}
	c.Say("copied", to, "%s copied", files(n))
	return nil
}

// pack writes from, a file or a tree, as a tar stream whose topmost name is name, and counts the files.
func pack(w io.Writer, from, name string) (int, error) {
	tw := tar.NewWriter(w)
	count := 0
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
		link := ""
		if info.Mode()&fs.ModeSymlink != 0 {
			if link, err = os.Readlink(p); err != nil {
				return err
			}
		}
		h, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		h.Name = path.Join(name, filepath.ToSlash(rel))
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return nil
		}
		count++
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(tw, f)
		return err
	})
	return count, errors.Join(err, tw.Close())
}
