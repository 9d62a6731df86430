package blobs

import (
	"crypto/sha256"
	"hash"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/soukhq/souk/fault"
)

// Partial is a blob that is being written. What was written stays after Close, so that a later Partial can continue it.
type Partial struct {
	d       *Dir
	f       *os.File
	want    v1.Hash
	size    int64
	offset  int64
	resumed int64
	sum     hash.Hash
}

// Partial opens what exists of a blob, possibly nothing. The caller holds the blob's lock.
func (d *Dir) Partial(h v1.Hash, size int64) (*Partial, error) {
	if err := Check(h); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(d.partial, h.Hex), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, Disk(err, "write the blob %s", h)
	}
	p := &Partial{d: d, f: f, want: h, size: size, sum: sha256.New()}
	if p.offset, err = io.Copy(p.sum, f); err != nil {
		_ = f.Close()
		return nil, Disk(err, "read what there is of the blob %s", h)
	}
	p.resumed = p.offset
	if p.offset > size {
		if err := p.Reset(); err != nil {
			_ = f.Close()
			return nil, err
		}
	}
	return p, nil
}

// Offset returns the number of bytes written so far.
func (p *Partial) Offset() int64 { return p.offset }

// Resumed reports whether some bytes were there before this Partial was opened.
func (p *Partial) Resumed() bool { return p.resumed > 0 }

// Write appends to the blob. It refuses more bytes than the blob's size.
func (p *Partial) Write(b []byte) (int, error) {
	if p.offset+int64(len(b)) > p.size {
		return 0, fault.New(fault.Invalid, fault.CodeImageSize,
			"the blob %s is longer than the %d bytes that its manifest says", p.want, p.size)
	}
	n, err := p.f.Write(b)
	p.sum.Write(b[:n])
	p.offset += int64(n)
	if err != nil {
		e := Disk(err, "write the blob %s", p.want)
		if e.Kind == fault.Exhausted {
			_ = p.Reset() // do not fill the disk with an unfinished blob
		}
		return n, e
	}
	return n, nil
}

// Reset discards everything written.
func (p *Partial) Reset() error {
	p.offset, p.resumed = 0, 0
	p.sum.Reset()
	if _, err := p.f.Seek(0, io.SeekStart); err != nil {
		return Disk(err, "write the blob %s", p.want)
	}
	if err := p.f.Truncate(0); err != nil {
		return Disk(err, "write the blob %s", p.want)
	}
	return nil
}

// Commit stores the blob if its size and digest match. If only the digest is wrong, it discards everything and returns
// an error.
func (p *Partial) Commit() error {
	if p.offset != p.size {
		return fault.New(fault.Unavailable, fault.CodeImageCut,
			"the blob %s has %d bytes, and only %d came; pull again, and the pull continues there",
			p.want, p.size, p.offset)
	}
	if have := sumOf(p.sum); have != p.want {
		if err := p.Reset(); err != nil {
			return err
		}
		return fault.New(fault.Invalid, fault.CodeImageDigest,
			"the data received as the blob %s has the digest %s: it was changed on the way; nothing of it was kept",
			p.want, have)
	}
	return p.d.settleBlob(p.f, p.f.Name(), p.want)
}

// Close closes the file, and removes it if it is empty.
func (p *Partial) Close() error {
	if p.offset == 0 {
		_ = os.Remove(p.f.Name())
	}
	return p.f.Close()
}
