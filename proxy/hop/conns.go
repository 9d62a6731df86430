// Package hop carries requests over one hop: to a machine, or to the member that has it, by HTTP/1.1 over connections
// that are kept.
//
// It does what net/http's Transport does, in the goroutine of the request and without a goroutine for each end of each
// connection, which is half of what a proxy costs; parsing is net/http's. What a request is, it is again at the other
// end: it is framed anew by what was read of it (RFC 9112, 6), so that no two readers see another end of it.
package hop

import (
	"bufio"
	"cmp"
	"errors"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Bounds of kept connections.
const (
	maxKept  = 512              // for one key
	keptFor  = 30 * time.Second // unused, unless Conns or the other end says another
	sweepMin = time.Second      // between two sweeps
)

// Conn is a connection to a backend. One request is on it at a time.
type Conn struct {
	net.Conn
	key  string
	br   *bufio.Reader
	bw   *bufio.Writer
	left int64     // bytes that may be read yet
	used bool      // a request was answered on it
	idle time.Time // since when it is kept
	keep time.Duration
}

// NewConn returns a connection that was just made. key is what it leads to.
func NewConn(key string, c net.Conn) *Conn {
	out := &Conn{Conn: c, key: key, left: math.MaxInt64, bw: bufio.NewWriterSize(c, 4<<10)}
	out.br = bufio.NewReaderSize((*bounded)(out), 4<<10)
	return out
}

// bounded is a connection of which no more is read than may be: who answers with a head without end is not kept in
// memory.
type bounded Conn

// MaxHead bounds the bytes of the heads of one answer, those of 1xx with it.
const MaxHead = 64 << 10

const readAhead = 4 << 10 // bytes of a body that may be read with a head

// ErrLargeHead is wrapped where the head of an answer is larger than MaxHead.
var ErrLargeHead = errors.New("the head of its answer is too large") //nolint:gochecknoglobals // a constant

func (b *bounded) Read(to []byte) (int, error) {
	if b.left <= 0 {
		return 0, ErrLargeHead
	}
	n, err := b.Conn.Read(to)
	b.left -= int64(n)
	return n, err
}

// Used reports whether a request was answered on it before: it may have been closed at the other end since.
func (c *Conn) Used() bool { return c.used }

// Conns keeps connections that are not in use, by what they lead to. Its zero value is ready, and its methods may be
// called from many goroutines.
type Conns struct {
	// Unused is how long a connection is kept without a request: less than its other end keeps it, for a request that
	// meets the close is lost. 0: half a minute.
	Unused time.Duration
	// Once is how recently a connection was used that a request goes over which cannot be sent twice. 0: that is all
	// the same.
	Once time.Duration

	mu     sync.Mutex
	kept   map[string][]*Conn // used last at the end
	swept  time.Time
	closed bool
}

// fresh is how long a connection is taken to be as it was. To be sure costs a call of the kernel's for each request.
const fresh = 10 * time.Millisecond

// Get returns a kept connection that is open at its other end, as far as the kernel knows; nil: there is none. One that
// was put back just now is looked at only for a request that cannot be sent twice (once).
func (k *Conns) Get(key string, once bool) *Conn {
	for {
		k.mu.Lock()
		list := k.kept[key]
		if len(list) == 0 {
			k.mu.Unlock()
			return nil
		}
		c := list[len(list)-1] // used last of all
		unused := time.Since(c.idle)
		if once && k.Once > 0 && unused > k.Once {
			k.mu.Unlock()
			return nil
		}
		list[len(list)-1] = nil
		k.kept[key] = list[:len(list)-1]
		k.mu.Unlock()
		if unused <= k.keep(c) && (!once && unused < fresh || c.alive()) {
			return c
		}
		c.Close()
	}
}

// keep returns how long a connection is kept without a request.
func (k *Conns) keep(c *Conn) time.Duration {
	most := cmp.Or(k.Unused, keptFor)
	if c.keep > 0 {
		return min(most, c.keep)
	}
	return most
}

// learn takes what the other end says of how long it keeps a connection (Keep-Alive: timeout=N): souk keeps it for a
// second less, since the two clocks do not begin together.
func (c *Conn) learn(h http.Header) {
	for _, v := range h["Keep-Alive"] {
		for part := range strings.SplitSeq(v, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			if n, err := strconv.Atoi(strings.TrimSpace(value)); err == nil && strings.EqualFold(name, "timeout") {
				c.keep = max(time.Nanosecond, time.Duration(min(n, 3600)-1)*time.Second)
			}
		}
	}
}

// Put keeps a connection for the next request, or closes it.
func (k *Conns) Put(c *Conn) {
	now := time.Now()
	c.idle = now
	k.mu.Lock()
	if list := k.kept[c.key]; !k.closed && len(list) < maxKept {
		if k.kept == nil {
			k.kept = map[string][]*Conn{}
		}
		k.kept[c.key] = append(list, c)
		c = nil
	}
	old := k.sweep(now)
	k.mu.Unlock()
	if c != nil {
		c.Close()
	}
	for _, x := range old {
		x.Close()
	}
}

// Sweep closes the connections that nobody has used for a while. Whoever keeps Conns calls it now and then.
func (k *Conns) Sweep() {
	k.mu.Lock()
	old := k.sweep(time.Now())
	k.mu.Unlock()
	for _, x := range old {
		x.Close()
	}
}

// sweep takes out what is old. It is called with the lock.
func (k *Conns) sweep(now time.Time) (old []*Conn) {
	if now.Sub(k.swept) < sweepMin {
		return nil
	}
	k.swept = now
	for key, list := range k.kept {
		n := 0
		for n < len(list) && now.Sub(list[n].idle) > k.keep(list[n]) {
			n++
		}
		old = append(old, list[:n]...)
		if n == len(list) {
			delete(k.kept, key)
		} else if n > 0 {
			k.kept[key] = append([]*Conn(nil), list[n:]...)
		}
	}
	return old
}

// Drop closes what is kept for the keys that begin with prefix: what they led to is gone.
func (k *Conns) Drop(prefix string) {
	var gone []*Conn
	k.mu.Lock()
	for key, list := range k.kept {
		if strings.HasPrefix(key, prefix) {
			gone = append(gone, list...)
			delete(k.kept, key)
		}
	}
	k.mu.Unlock()
	for _, c := range gone {
		c.Close()
	}
}

// Close closes all that is kept, and all that is put back later.
func (k *Conns) Close() {
	k.mu.Lock()
	all := k.kept
	k.kept, k.closed = nil, true
	k.mu.Unlock()
	for _, list := range all {
		for _, c := range list {
			c.Close()
		}
	}
}

// Len returns how many connections are kept.
func (k *Conns) Len() (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, list := range k.kept {
		n += len(list)
	}
	return n
}

// alive reports whether nothing has come on a connection that is not in use: neither its end, nor an answer to nothing.
func (c *Conn) alive() bool {
	if c.br.Buffered() > 0 {
		return false
	}
	under := c.Conn
	if t, is := under.(interface{ NetConn() net.Conn }); is { // of TLS: whatever comes unasked is its end
		under = t.NetConn()
	}
	sc, ok := under.(syscall.Conn)
	if !ok { // what its end says is found out when it is used
		return true
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	open := false
	var one [1]byte
	err = raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		open = err == syscall.EAGAIN || err == syscall.EWOULDBLOCK //nolint:errorlint // errnos as they are
		return true
	})
	return err == nil && open
}

// Rest returns the connection for who goes on with it himself, behind what was read of it.
func (c *Conn) Rest() net.Conn {
	if c.br.Buffered() == 0 {
		return c.Conn
	}
	return &rest{c.Conn, c.br}
}

// rest is a connection of which some was read ahead.
type rest struct {
	net.Conn
	br *bufio.Reader
}

func (r *rest) Read(b []byte) (int, error) { return r.br.Read(b) }

// CloseWrite passes on that nothing more is said.
func (r *rest) CloseWrite() error {
	if half, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return r.Conn.Close()
}
