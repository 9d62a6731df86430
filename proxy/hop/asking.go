package hop

import (
	"io"
	"syscall"
)

// asking sends a request without a body over a connection within one wait for its answer: it checks that nothing has
// come since the last answer, writes the request, and waits for the answer. A separate read before the request, as
// peekIdle does, would cost a proxy 2% of its throughput; this one replaces the read that net tries before it waits.
type asking struct {
	step func(fd uintptr) (done bool) // askAt; nil: the connection is not plain TCP

	holds bool   // writes are kept in head until the next read
	head  []byte // the part of the request that was not sent yet
	sent  bool   // some of the request was sent

	to  []byte // the reader's buffer
	n   int
	err error
}

// maxHeldHead bounds the memory that a connection keeps for the heads of its requests.
const maxHeldHead = 8 << 10

// looksWhenItAsks reports whether a request without a body may be sent without a peek before: askAt peeks.
func (c *Conn) looksWhenItAsks() bool { return c.asks.step != nil && c.br.Buffered() == 0 }

// holdWrites makes writes wait for the next read, if wanted and the connection supports it.
func (c *Conn) holdWrites(wanted bool) {
	c.asks.holds, c.asks.sent = wanted && c.asks.step != nil, false
	if c.asks.head = c.asks.head[:0]; cap(c.asks.head) > maxHeldHead {
		c.asks.head = nil
	}
}

// isUnsent reports whether none of the held bytes were sent.
func (c *Conn) isUnsent() bool { return c.asks.holds && !c.asks.sent }

// outgoing is the write side of a connection, which holds writes while holdWrites is on.
type outgoing Conn

func (o *outgoing) Write(b []byte) (int, error) {
	if o.asks.holds {
		o.asks.head = append(o.asks.head, b...)
		return len(b), nil
	}
	return o.Conn.Write(b)
}

// readOrAsk sends the held bytes, if any, and reads from the connection.
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
	case len(a.head) > 0 && a.err == nil: // the socket took a part
		rest := a.head
		a.head, a.sent = rest[:0], true
		if _, err := b.Conn.Write(rest); err != nil {
			return 0, err
		}
		return b.Conn.Read(to)
	}
	return a.n, a.err
}

// askAt does the next step of readOrAsk without blocking: it peeks and sends, and then reads. It is a method so that no
// request allocates. The runtime's poller watches the socket before the first call, so an answer that comes during a
// call is not missed.
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

// atOnce makes a system call that does not block; blocks says that the socket was not ready.
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
