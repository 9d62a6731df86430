// Package blobs keeps content under its digest. What stands under a digest was hashed before it got there, and is
// hashed again whenever it is read; what is being written stands apart, and is gone on with after an interruption.
package blobs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
)

// The codes of this package's errors.
const (
	CodeImageBlob    fault.Code = "image_blob"    // the blob is not in the store
	CodeImageDamaged fault.Code = "image_damaged" // the image is damaged on disk
)

// Dir is a directory of blobs. Several processes may use it at once; who writes a blob holds its lock.
type Dir struct{ whole, partial string }

// Open takes the directories below root, which are made when there are none.
func Open(root string) (*Dir, error) {
	d := &Dir{whole: filepath.Join(root, "blobs", "sha256"), partial: filepath.Join(root, "partial")}
	for _, dir := range []string{d.whole, d.partial} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, Disk(err, "make the directory of images")
		}
	}
	return d, nil
}

// Check refuses digests that are not of SHA-256, for they would be paths of something else.
func Check(h v1.Hash) error {
	if raw, err := hex.DecodeString(h.Hex); h.Algorithm != "sha256" || err != nil || len(raw) != sha256.Size {
		return fault.New(fault.Unimplemented, fault.CodeImageDigest,
			"the digest %s is not one that souk can verify; it takes \"sha256:\" and 64 hexadecimal digits", h)
	}
	return nil
}

// Path returns where a blob stands, or would.
func (d *Dir) Path(h v1.Hash) string { return filepath.Join(d.whole, h.Hex) }

// Size returns how many bytes a blob has, and whether it is there.
func (d *Dir) Size(h v1.Hash) (int64, bool) {
	info, err := os.Lstat(d.Path(h))
	if err != nil || !info.Mode().IsRegular() {
		return 0, false
	}
	return info.Size(), true
}

// Remove removes a blob, as when it is damaged.
func (d *Dir) Remove(h v1.Hash) error {
	if err := os.Remove(d.Path(h)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Disk(err, "remove the blob %s", h)
	}
	return nil
}

// Read returns a small blob whole, verified.
func (d *Dir) Read(h v1.Hash, most int64) ([]byte, error) {
	r, err := d.Open(h)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	raw, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(raw)) > most {
		return nil, fault.New(fault.Invalid, fault.CodeImageSize,
			"the document %s has more than %d bytes, which no manifest or config of an image needs", h, most)
	}
	return raw, nil
}

// Reader reads a blob and fails where it ends if it is not what its digest says.
type Reader struct {
	f    *os.File
	d    *Dir
	want v1.Hash
	sum  hash.Hash
	read atomic.Int64
}

// Open opens a blob. Its end is only io.EOF when all of it was what its digest says.
func (d *Dir) Open(h v1.Hash) (*Reader, error) {
	if err := Check(h); err != nil {
		return nil, err
	}
	f, err := os.Open(d.Path(h))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.NotFound, CodeImageBlob,
			"the blob %s is not in this store; pull the image again", h)
	}
	if err != nil {
		return nil, Disk(err, "open the blob %s", h)
	}
	return &Reader{f: f, d: d, want: h, sum: sha256.New()}, nil
}

// Read reads on.
func (r *Reader) Read(p []byte) (int, error) {
	n, err := r.f.Read(p)
	r.sum.Write(p[:n])
	r.read.Add(int64(n))
	if err == io.EOF { //nolint:errorlint // os.File says so itself
		if have := sumOf(r.sum); have != r.want {
			return n, Damaged(r.want, have)
		}
		return n, io.EOF
	}
	if err != nil {
		return n, Disk(err, "read the blob %s", r.want)
	}
	return n, nil
}

// Verify reads what was not read yet. Nil: all of it is what its digest says.
func (r *Reader) Verify() error {
	_, err := io.Copy(io.Discard, struct{ io.Reader }{r})
	return err
}

// Count returns how many bytes were read.
func (r *Reader) Count() int64 { return r.read.Load() }

// Close closes it.
func (r *Reader) Close() error { return r.f.Close() }

// Damaged is the error for a blob whose bytes changed on disk.
func Damaged(want, have v1.Hash) *fault.Error {
	return fault.New(fault.Unavailable, CodeImageDamaged,
		"the blob %s is damaged on disk: its bytes have the digest %s; pull or load the image again", want, have)
}

// Add puts a file whose digest was computed while it was written, and which is on the same file system, under it.
func (d *Dir) Add(path string, h v1.Hash) error {
	f, err := os.Open(path)
	if err != nil {
		return Disk(err, "open %s", path)
	}
	defer f.Close()
	return d.settleBlob(f, path, h)
}

// Put writes a small blob and returns its digest.
func (d *Dir) Put(raw []byte) (v1.Hash, error) {
	sum := sha256.Sum256(raw)
	h := v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}
	if size, there := d.Size(h); there && size == int64(len(raw)) {
		if _, err := d.Read(h, size); err == nil { // written anew when it is damaged
			return h, nil
		}
	}
	f, err := os.CreateTemp(d.partial, "put-")
	if err != nil {
		return h, Disk(err, "write %s", h)
	}
	defer f.Close()
	if _, err := f.Write(raw); err != nil {
		_ = os.Remove(f.Name())
		return h, Disk(err, "write %s", h)
	}
	return h, d.settleBlob(f, f.Name(), h)
}

// settleBlob makes what is at path durable, and then a blob.
func (d *Dir) settleBlob(f *os.File, path string, h v1.Hash) error {
	err := f.Sync()
	if err == nil {
		err = os.Rename(path, d.Path(h))
	}
	if err == nil {
		err = SyncDir(d.whole)
	}
	if err != nil {
		_ = os.Remove(path)
		return Disk(err, "write %s", h)
	}
	return nil
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// Disk is the error for what the file system of the store would not do.
func Disk(err error, format string, args ...any) *fault.Error {
	what := fmt.Sprintf(format, args...)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return &fault.Error{Kind: fault.Exhausted, Code: fault.CodeImageDisk, Scope: fault.ScopeHost, Resource: "disk",
			Text: fmt.Sprintf("the disk of the images is full, so souk cannot %s; remove images or give it more "+
				"disk", what),
			Err: err}
	}
	return fault.Wrap(err, fault.Unavailable, fault.CodeImageDisk, "cannot %s", what)
}

func sumOf(h hash.Hash) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(h.Sum(nil))}
}
