// Package blobs stores content under its digest. A blob is hashed before it is stored, and again whenever it is read. A
// blob that is still being written is kept separately, and continued after an interruption.
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

// Dir is a directory of blobs. Several processes may use it at once; a process that writes a blob holds its lock.
type Dir struct{ whole, partial string }

// Open opens the directories below root, and makes them if they do not exist.
func Open(root string) (*Dir, error) {
	d := &Dir{whole: filepath.Join(root, "blobs", "sha256"), partial: filepath.Join(root, "partial")}
	for _, dir := range []string{d.whole, d.partial} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, Disk(err, "make the directory of images")
		}
	}
	return d, nil
}

// Check refuses digests other than SHA-256, because a digest becomes part of a path.
func Check(h v1.Hash) error {
	if raw, err := hex.DecodeString(h.Hex); h.Algorithm != "sha256" || err != nil || len(raw) != sha256.Size {
		return fault.New(fault.Unimplemented, fault.CodeImageDigest,
			"the digest %s is not one that souk can verify; it takes \"sha256:\" and 64 hexadecimal digits", h)
	}
	return nil
}

// Path returns the path of a blob, whether it exists or not.
func (d *Dir) Path(h v1.Hash) string { return filepath.Join(d.whole, h.Hex) }

// Size returns a blob's size in bytes, and whether it exists.
func (d *Dir) Size(h v1.Hash) (int64, bool) {
	info, err := os.Lstat(d.Path(h))
	if err != nil || !info.Mode().IsRegular() {
		return 0, false
	}
	return info.Size(), true
}

// Remove removes a blob, for instance a damaged one.
func (d *Dir) Remove(h v1.Hash) error {
	if err := os.Remove(d.Path(h)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Disk(err, "remove the blob %s", h)
	}
	return nil
}

// Read returns a blob of at most most bytes, verified.
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

// Reader reads a blob. At the end it fails if the content does not match the digest.
type Reader struct {
	f    *os.File
	d    *Dir
	want v1.Hash
	sum  hash.Hash
	read atomic.Int64
}

// Open opens a blob. Reading ends with io.EOF only if the content matches the digest.
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

// Read reads the next bytes.
func (r *Reader) Read(p []byte) (int, error) {
	n, err := r.f.Read(p)
	r.sum.Write(p[:n])
	r.read.Add(int64(n))
	if err == io.EOF { //nolint:errorlint // os.File returns it unwrapped
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

// Verify reads the rest. It returns nil if the whole content matches the digest.
func (r *Reader) Verify() error {
	_, err := io.Copy(io.Discard, struct{ io.Reader }{r})
	return err
}

// Count returns the number of bytes read.
func (r *Reader) Count() int64 { return r.read.Load() }

// Close closes the file.
func (r *Reader) Close() error { return r.f.Close() }

// Damaged is the error for a blob whose bytes changed on disk.
func Damaged(want, have v1.Hash) *fault.Error {
	return fault.New(fault.Unavailable, CodeImageDamaged,
		"the blob %s is damaged on disk: its bytes have the digest %s; pull or load the image again", want, have)
}

// Add moves a file into the store under its digest h, which the caller computed while it wrote the file. The file is on
// the same file system.
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
		if _, err := d.Read(h, size); err == nil { // a damaged blob is written again
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

// settleBlob syncs the file at path and renames it to its blob's path.
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

// Disk returns the error for a failed operation on the store's file system.
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
