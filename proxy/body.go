package proxy

import (
	"errors"
	"io"
	"sync"
)

// maxReplayed bounds the body of a request that may be sent again, to another machine.
const maxReplayed = 1 << 20

// replayable is a request's body that remembers what was read of it, up to maxReplayed bytes. nil is no body.
type replayable struct {
	from io.ReadCloser
	kept []byte
	lost bool // more was read than kept holds, or the body broke off
	end  bool // all of it was read
	at   int  // offset in kept of the current reader

	mu      sync.Mutex
	reading bool
	closed  bool // the request's own body is closed
}

// Read reads what was remembered first.
func (b *replayable) Read(to []byte) (int, error) {
	if b.at < len(b.kept) {
		n := copy(to, b.kept[b.at:])
		b.at += n
		return n, nil
	}
	if b.end { // the first reader may have closed from
		return 0, io.EOF
	}
	if !b.beginReading() {
		return 0, errReadOn
	}
	n, err := b.from.Read(to)
	b.mu.Lock()
	b.reading = false
	b.mu.Unlock()
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

// Again returns the body from its beginning, to send it once more over another connection. Nobody reads it at that
// time.
func (b *replayable) Again() (io.ReadCloser, error) {
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	if closed && !b.end || !b.rewindBody() {
		return nil, errReadOn
	}
	return b, nil
}

var errReadOn = errors.New("the body was broken off, or is too large to be kept") //nolint:gochecknoglobals // a constant

// beginReading reports whether the request's own body may be read, and marks it as being read.
func (b *replayable) beginReading() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = !b.closed
	return b.reading
}

// Close makes a waiting Read return. Otherwise the request's own body stays open: its server closes it, and another
// connection may need it before.
func (b *replayable) Close() error {
	b.mu.Lock()
	reading := b.reading
	b.closed = b.closed || reading
	b.mu.Unlock()
	if reading {
		return b.from.Close()
	}
	return nil
}

// isRead reports whether nothing of the body is left to be read.
func (b *replayable) isRead() bool { return b == nil || b.end }

// rewindBody lets the body be read from its beginning again, and reports whether that is possible.
func (b *replayable) rewindBody() bool {
	if b == nil {
		return true
	}
	b.at = 0
	return !b.lost
}
