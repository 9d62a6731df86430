package layer

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/soukhq/souk/fault"
)

// Compression is how a layer's tar is compressed.
type Compression int

// The compressions of layers.
const (
	Plain Compression = iota
	Gzip
	Zstd
)

// A zstd stream states how much memory its reader needs; those of images need 8 MiB.
const zstdWindow = 128 << 20

// Decompress returns the decompressed stream. It detects the compression by the first bytes, not by the media type.
func Decompress(r io.Reader) (io.ReadCloser, Compression, error) {
	in := bufio.NewReaderSize(r, 128<<10)
	head, err := in.Peek(4)
	if err != nil && err != io.EOF { //nolint:errorlint // bufio returns it unwrapped
		return nil, Plain, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, Gzip, damagedError(err)
		}
		return z, Gzip, nil
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(zstdWindow), zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, Zstd, damagedError(err)
		}
		return z.IOReadCloser(), Zstd, nil
	}
	return io.NopCloser(in), Plain, nil
}

func damagedError(err error) error {
	return fault.Wrap(err, fault.Invalid, CodeImageLayer, "a layer cannot be decompressed; build or push the image "+
		"again")
}

// Digest returns the digest of a layer's tar, within limits; compressed is the size of its compressed form.
func Digest(ctx context.Context, tar io.Reader, l Limits, compressed int64) (v1.Hash, error) {
	sum := sha256.New()
	in := &meter{ctx: ctx, r: tar, limits: l, compressed: func() int64 { return compressed }}
	if _, err := io.CopyBuffer(sum, in, make([]byte, 128<<10)); err != nil {
		if _, ours := err.(*fault.Error); ours { //nolint:errorlint // from meter
			return v1.Hash{}, err
		}
		return v1.Hash{}, damagedError(err)
	}
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum.Sum(nil))}, nil
}
