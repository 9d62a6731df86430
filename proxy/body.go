package proxy

import (
	"errors"
	"io"
)

// maxReplayed bounds the body of a request that may be sent again, to another machine.
const maxReplayed = 1 << 20

// replayable is a request's body that remembers what was read of it, as long as that is little. nil is no body.
type replayable struct {
	from io.ReadCloser
	kept []byte
	lost bool // more was read than is remembered, or it broke off
	end  bool // all of it was read
	at   int  // in kept, of who reads now
}

// Read reads what was remembered first.
func (b *replayable) Read(to []byte) (int, error) {
	if b.at < len(b.kept) {
		n := copy(to, b.kept[b.at:])
		b.at += n
		return n, nil
	}
	n, err := b.from.Read(to)
	b.end = b.end || errors.Is(err, io.EOF)
	switch {
	case b.lost:
	case err != nil && !b.end:
		b.kept, b.lost, b.at = nil, true, 0
	case len(b.kept)+n > maxReplayed:
		b.kept, b.lost, b.at = nil, true, 0
	default:
		b.kept = append(b.kept, to[:n]...)
		b.at = len(b.kept)
	}
	return n, err
}

// Close closes the request's own.
func (b *replayable) Close() error { return b.from.Close() }

// whole reports whether nothing of it is left to be read.
func (b *replayable) whole() bool { return b == nil || b.end }

// rewind has it read from the beginning again, and reports whether it can be.
func (b *replayable) rewind() bool {
	if b == nil {
		return true
	}
	b.at = 0
	return !b.lost
}
