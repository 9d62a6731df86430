package image

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/image/blobs"
	"github.com/soukhq/souk/runtime/image/layer"
)

const (
	maxArchived = 100_000 // files in an archive of images
	maxLinks    = 8       // links from one name to another, in sequence
)

// archive is the content of an archive or a layout: its files, copied and hashed. Names in it are never used as paths
// on this host.
type archive struct {
	files map[string]*archived
	links map[string]string // docker save writes a repeated layer as a link
	what  string
}

type archived struct {
	path      string
	size      int64
	digest    v1.Hash
	moved     bool
	diffID    v1.Hash
	mediaType types.MediaType
}

func (a *archive) resolveLink(name string) string {
	for range maxLinks {
		to, ok := a.links[path.Clean(name)]
		if !ok {
			break
		}
		name = to
	}
	return path.Clean(name)
}

func (a *archive) hasFile(name string) bool { return a.files[a.resolveLink(name)] != nil }

// readDocument returns the content of a small file.
func (a *archive) readDocument(name string) ([]byte, error) {
	f := a.files[a.resolveLink(name)]
	if f == nil {
		return nil, fault.New(fault.Invalid, fault.CodeImageFile,
			"%s is not whole: %q is missing; save the image again",
			a.what,
			fault.Clip(name, 200))
	}
	if f.size > maxDocument {
		return nil, fault.New(fault.Invalid, fault.CodeImageSize,
			"%s has a document of %d bytes, which no image needs: %q", a.what,
			f.size, fault.Clip(name, 200))
	}
	raw, err := os.ReadFile(f.path)
	if err != nil {
		return nil, blobs.Disk(err, "read what was loaded of %s", a.what)
	}
	return raw, nil
}

// copyFile copies one file into dir and hashes it.
func (a *archive) copyFile(ctx context.Context, dir, name string, r io.Reader) error {
	if len(a.files) == maxArchived {
		return fault.New(fault.Invalid, fault.CodeImageFile,
			"%s has more than %d files; is it an image?", a.what, maxArchived)
	}
	f, err := os.Create(filepath.Join(dir, fmt.Sprint(len(a.files))))
	if err != nil {
		return blobs.Disk(err, "load %s", a.what)
	}
	defer f.Close()
	sum := sha256.New()
	w := &diskWriter{w: io.MultiWriter(f, sum), ctx: ctx, what: a.what}
	n, err := io.CopyBuffer(w, struct{ io.Reader }{r}, make([]byte, 128<<10))
	if err != nil {
		if _, ours := errors.AsType[*fault.Error](err); ours {
			return err
		}
		return a.brokenError(err)
	}
	a.files[path.Clean(name)] = &archived{path: f.Name(), size: n,
		digest: v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum.Sum(nil))}}
	return nil
}

func (a *archive) brokenError(err error) error {
	return fault.Wrap(err, fault.Invalid, fault.CodeImageFile,
		"%s breaks off or is damaged; save the image again, or copy the file again", a.what)
}

// diskWriter distinguishes errors of the disk from those of the reader, and stops when its ctx ends.
type diskWriter struct {
	w    io.Writer
	ctx  context.Context //nolint:containedctx // for this copy only
	what string
}

func (d *diskWriter) Write(b []byte) (int, error) {
	if d.ctx.Err() != nil {
		return 0, fault.Wrap(d.ctx.Err(), fault.Timeout, fault.CodeImageCanceled, "loading %s was given up", d.what)
	}
	n, err := d.w.Write(b)
	if err != nil {
		return n, blobs.Disk(err, "load %s", d.what)
	}
	return n, nil
}

// readArchive copies the files of a tar, which may be compressed, into a directory.
func readArchive(ctx context.Context, dir string, r io.Reader, what string) (*archive, error) {
	a := &archive{files: map[string]*archived{}, links: map[string]string{}, what: what}
	plain, packed, err := layer.Decompress(r)
	if err != nil {
		return nil, a.brokenError(err)
	}
	defer plain.Close()
	in := tar.NewReader(plain)
	for first := true; ; first = false {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return a, nil
		}
		short := errors.Is(err, io.ErrUnexpectedEOF) && packed == layer.Plain // shorter than one tar header
		if first && (short || errors.Is(err, tar.ErrHeader)) {
			return nil, fault.New(fault.Invalid, fault.CodeImageFile,
				"%s is no archive of images: it is no tar, also not a compressed one; load what docker save wrote, or "+
					"an OCI layout", what)
		}
		if err != nil {
			return nil, a.brokenError(err)
		}
		switch h.Typeflag {
		case tar.TypeReg:
			if err := a.copyFile(ctx, dir, h.Name, in); err != nil {
				return nil, err
			}
		case tar.TypeSymlink:
			a.links[path.Clean(h.Name)] = path.Join(path.Dir(path.Clean(h.Name)), h.Linkname)
		case tar.TypeLink:
			a.links[path.Clean(h.Name)] = path.Clean(h.Linkname)
		}
		if len(a.links) > maxArchived {
			return nil, fault.New(fault.Invalid, fault.CodeImageFile,
				"%s has more than %d links; is it an image?", what,
				maxArchived)
		}
	}
}

// copyLayout copies the directory of an OCI layout. It reads nothing outside of it.
func copyLayout(ctx context.Context, dir, from string) (*archive, error) {
	a := &archive{files: map[string]*archived{}, what: from}
	root, err := os.OpenRoot(from)
	if err != nil {
		return nil, fault.Wrap(err, fault.Denied, fault.CodeImageFile, "the directory %s cannot be read", from)
	}
	defer root.Close()
	names := []string{"index.json"}
	list, err := fs.ReadDir(root.FS(), "blobs/sha256")
	if err != nil {
		return nil, fault.New(fault.Invalid, fault.CodeImageFile,
			"%s is a directory without blobs/sha256, so it is no OCI layout; name one, or an image's file", from)
	}
	for _, e := range list {
		if e.Type().IsRegular() { // opening a fifo would block
			names = append(names, "blobs/sha256/"+e.Name())
		}
	}
	for _, n := range names {
		f, err := root.Open(n)
		if err != nil {
			return nil, a.brokenError(err)
		}
		err = a.copyFile(ctx, dir, n, f)
		_ = f.Close()
		if err != nil {
			return nil, err
		}
	}
	return a, nil
}
