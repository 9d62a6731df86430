package layer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Stream is the tar of a compressed layer: decompressed in a goroutine, hashed, and within limits.
type Stream struct {
	meter
	sum   hash.Hash
	ahead *ahead
}

// NewStream reads a compressed layer; count returns how many compressed bytes have been read. The caller must close the
// stream.
func NewStream(ctx context.Context, r io.Reader, l Limits, count func() int64) *Stream {
	s := &Stream{sum: sha256.New(), ahead: readAhead(r)}
	s.meter = meter{ctx: ctx, r: s.ahead, limits: l.Or(), compressed: count}
	return s
}

// Read reads the next bytes.
func (s *Stream) Read(p []byte) (int, error) {
	n, err := s.meter.Read(p)
	s.sum.Write(p[:n])
	return n, err
}

// DiffID returns the digest of the bytes read; after the whole tar it is the layer's DiffID.
func (s *Stream) DiffID() v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(s.sum.Sum(nil))}
}

// Close ends the goroutine. After it returns, the compressed layer is no longer read.
func (s *Stream) Close() error {
	s.ahead.close()
	return nil
}

// chunk is a piece of decompressed data.
type chunk struct {
	b   []byte
	err error
}

// ahead decompresses ahead of its reader.
type ahead struct {
	full  chan chunk
	empty chan []byte
	quit  chan struct{}
	done  chan struct{}
	now   chunk
	whole []byte // the whole buffer of now
}

const (
	aheadChunks = 4
	aheadBytes  = 256 << 10
)

func readAhead(r io.Reader) *ahead {
	a := &ahead{full: make(chan chunk, aheadChunks), empty: make(chan []byte, aheadChunks), quit: make(chan struct{}),
		done: make(chan struct{})}
	for range aheadChunks {
		a.empty <- make([]byte, aheadBytes)
	}
	go func() {
		defer close(a.done)
		a.decompressAhead(r)
	}()
	return a
}

func (a *ahead) decompressAhead(compressed io.Reader) {
	r, _, err := Decompress(compressed)
	if err != nil {
		a.full <- chunk{err: err} // does not block: the channel is empty
		return
	}
	defer r.Close()
	for err == nil {
		var b []byte
		select {
		case b = <-a.empty:
		case <-a.quit:
			return
		}
		var n int
		n, err = io.ReadFull(r, b)
		if err == io.ErrUnexpectedEOF { //nolint:errorlint // a true end or a truncated layer: see endReason
			err = a.endReason(r)
		}
		a.full <- chunk{b: b[:n], err: err} // does not block: full has as many places as there are buffers
	}
}

// endReason reads again to find why the data ended: ReadFull returns the same error for a true end and for a truncated
// layer.
func (a *ahead) endReason(r io.Reader) error {
	_, err := r.Read(make([]byte, 1))
	return err
}

// Read reads decompressed data.
func (a *ahead) Read(p []byte) (int, error) {
	for len(a.now.b) == 0 {
		if a.now.err != nil {
			return 0, a.now.err
		}
		if a.whole != nil {
			a.empty <- a.whole[:aheadBytes]
		}
		a.now = <-a.full
		a.whole = a.now.b
	}
	n := copy(p, a.now.b)
	a.now.b = a.now.b[n:]
	return n, nil
}

func (a *ahead) close() {
	close(a.quit)
	<-a.done
}
