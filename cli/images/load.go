package images

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

func load(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "load FILE", Short: "Give a worker the images of a file",
		Long: `Give a worker the images of a file: what "docker save" or "podman save" wrote, or an OCI layout as a
tar, also compressed; or the directory of an OCI layout. "-" is stdin. The file is on this host, and is sent.`,
		Example: "  souk image load app.tar\n  docker save app:v2 | souk image load - --worker fra-1",
		Args:    cli.Args(1, 1, "a file, the directory of an OCI layout, or -")}
	worker := cmd.Flags().String("worker", "", "the worker (default: the only one)")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if err := named(cmd); err != nil {
			return err
		}
		from, long, err := archive(c, given[0])
		if err != nil {
			return err
		}
		defer from.Close()
		cl, err := c.Client()
		if err != nil {
			return err
		}
		at, err := target(cmd.Context(), c, cl, *worker, "")
		if err != nil {
			return err
		}
		b := newBoard(c, "")
		name := given[0]
		if name == "-" {
			name = "what came in on stdin"
		}
		images, err := cl.LoadImages(cmd.Context(), at.at(), name, &counted{from, b.lines[0],
			cluster.ImageProgress{Blob: name, Size: long}})
		b.close()
		if err != nil {
			return err
		}
		var out []brought
		for _, i := range images {
			out = append(out, brought{Workers: at.workers, StoredImage: i})
			if !c.JSON {
				c.Printf("%s is at %s (%s): %s\n", label(i), at, shortDigest(i.Digest), cli.Bytes(i.Size))
			}
		}
		if c.JSON {
			cli.JSONList(c, out)
		}
		return nil
	}
	return cmd
}

// counted is a reader that reports how much was read.
type counted struct {
	from io.Reader
	to   *line
	p    cluster.ImageProgress
}

func (r *counted) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.p.Done += int64(n)
	r.to.tell(r.p)
	return n, err
}

// archive opens the archive to load, and returns its size; 0: unknown.
func archive(c *cli.Env, path string) (io.ReadCloser, int64, error) {
	if path == "-" {
		if f, is := c.In.(*os.File); is && cli.IsTerminal(f) {
			return nil, 0, cli.Usagef("an archive is to come in on stdin, and that is a terminal: name a file, " +
				"or pipe one in")
		}
		return io.NopCloser(c.In), 0, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, unreadable(err, path)
	}
	if info.IsDir() {
		if _, err := os.Stat(filepath.Join(path, "index.json")); err != nil {
			return nil, 0, fault.New(fault.Invalid, fault.CodeImageFile,
				"the directory %s has no index.json, so it is no "+
					"OCI layout; name one, or a file that docker save wrote", path)
		}
		return layout(path), 0, nil
	}
	if !info.Mode().IsRegular() && info.Mode()&fs.ModeNamedPipe == 0 {
		return nil, 0, fault.New(fault.Invalid, fault.CodeImageFile,
			"%s is neither a file nor a directory; name one, or - for stdin", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, unreadable(err, path)
	}
	return f, info.Size(), nil
}

func unreadable(err error, path string) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.NotFound, fault.CodeImageFile, "there is no file %s", path)
	case errors.Is(err, fs.ErrPermission):
		return fault.New(fault.Denied, fault.CodeImageFile, "the file %s may not be read by this user", path)
	}
	return fault.Wrap(err, fault.Invalid, fault.CodeImageFile, "the file %s cannot be read", path)
}

// layout returns the directory of an OCI layout as a tar stream. Nothing outside of it is read.
func layout(dir string) io.ReadCloser {
	r, w := io.Pipe()
	go func() { w.CloseWithError(writeLayout(w, dir)) }()
	return r
}

func writeLayout(w io.Writer, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return unreadable(err, dir)
	}
	defer root.Close()
	out := tar.NewWriter(w)
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return unreadable(err, filepath.Join(dir, name))
		}
		if !d.Type().IsRegular() {
			return nil
		}
		return addFile(out, root, name)
	})
	return errors.Join(err, out.Close())
}

func addFile(out *tar.Writer, root *os.Root, name string) error {
	f, err := root.Open(name)
	if err != nil {
		return unreadable(err, filepath.Join(root.Name(), name))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return unreadable(err, filepath.Join(root.Name(), name))
	}
	head := tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: info.Size()}
	if err := out.WriteHeader(&head); err != nil {
		return err
	}
	_, err = io.Copy(out, f)
	return err
}
