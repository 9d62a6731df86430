package hop

import (
	"io"
	"syscall"
)

// asking is how a request without a body goes over a connection: within one wait for the answer it is looked whether
// nothing has come since the last one, the request is written, and the answer is waited for. A read of its own before
// the request, as peek does it, would cost a proxy a fiftieth of what it can do; this one takes the place of the read
// that net makes in vain behind each request, before it waits.
type asking struct {
	step func(fd uintptr) (done bool) // askAt; nil: the connection is none of plain TCP

	holds bool   // what is written is kept in head until it is read
	head  []byte // of the request, as far as it was not sent yet
	sent  bool   // some of it was

	to  []byte // for what is read
	n   int
	err error
}

// maxHeldHead bounds the memory that a connection keeps for the heads of its requests.
const maxHeldHead = 8 << 10

// looksWhenItAsks reports whether a request without a body may go over the connection without a look before.
func (c *Conn) looksWhenItAsks() bool { return c.asks.step != nil && c.br.Buffered() == 0 }

// holdWrites has what is written wait for the next read, if that is wanted and the connection can do it.
func (c *Conn) holdWrites(wanted bool) {
	c.asks.holds, c.asks.sent = wanted && c.asks.step != nil, false
	if c.asks.head = c.asks.head[:0]; cap(c.asks.head) > maxHeldHead {
		c.asks.head = nil
	}
}

// isUnsent reports whether nothing has been sent of what was held.
func (c *Conn) isUnsent() bool { return c.asks.holds && !c.asks.sent }

// outgoing is a connection that holds what is written to it while that is wanted.
type outgoing Conn

func (o *outgoing) Write(b []byte) (int, error) {
	if o.asks.holds {
		o.asks.head = append(o.asks.head, b...)
		return len(b), nil
	}
	return o.Conn.Write(b)
}

// readOrAsk reads from the connection, and sends before what is held.
func (b *bounded) readOrAsk(to []byte) (int, error) {
	a := &b.asks
	if !a.holds || len(a.head) == 0 {
		return b.Conn.Read(to)
	}
	a.to, a.n, a.err = to, 0, nil
	err := b.raw.Read(a.step)
	a.to = nil
	switch {
	case err != nil:
		return 0, err
	case len(a.head) > 0 && a.err == nil: // the socket took some of it
		rest := a.head
		a.head, a.sent = rest[:0], true
		if _, err := b.Conn.Write(rest); err != nil {
			return 0, err
		}
		return b.Conn.Read(to)
	}
	return a.n, a.err
}

// askAt does what is next for read, as far as the socket lets it: to look and to send, and then to read. It is a method
// so that no request allocates. net has begun to watch for what comes before it is called first, so that an answer which
// comes before it returns is not missed.
func (c *Conn) askAt(fd uintptr) (done bool) {
	a := &c.asks
	if len(a.head) > 0 {
		if c.used {
			if c.peekAt(fd); c.seen != silent {
				a.err = io.EOF
				if c.seen == spoke {
					a.err, c.strange = errLeft, true
				}
				return true
			}
		}
		n, _, err := atOnce(syscall.Write, fd, a.head)
		if err != nil {
			a.err = err
			return true
		}
		a.sent = n > 0
		a.head = a.head[:copy(a.head, a.head[n:])]
		return len(a.head) > 0
	}
	n, blocks, err := atOnce(syscall.Read, fd, a.to)
	if !blocks && n == 0 && err == nil {
		err = io.EOF
	}
	a.n, a.err = n, err
	return !blocks
}

// atOnce does what a socket can do at once; blocks: that is nothing.
func atOnce(do func(fd int, b []byte) (int, error), fd uintptr, b []byte) (n int, blocks bool, err error) {
	for {
		n, err = do(int(fd), b)
		switch err { //nolint:errorlint // errnos as they are
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return 0, true, nil
		}
		return max(n, 0), false, err
	}
}
