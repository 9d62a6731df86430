// Package hop carries requests over one hop: to a machine, or to the member that has it, by HTTP/1.1 over connections
// that are kept.
//
// It does what net/http's Transport does, in the request's goroutine: a reader and a writer goroutine for each
// connection would be half of a proxy's cost; parsing is net/http's. Each request is framed anew from what was parsed
// (RFC 9112, 6), so that both ends agree on where it ends.
package hop

import (
	"bufio"
	"cmp"
	"errors"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Bounds of kept connections.
const (
	maxKept  = 512              // for one key
	keptFor  = 30 * time.Second // unused, unless Conns.Unused or the other end sets another time
	sweepMin = time.Second      // between two sweeps

	maxTied   = 256                   // tied ones, for one key
	restFor   = 60 * time.Millisecond // a doubtful connection rests before it is used again
	maxRests  = 64                    // for one key: then the one that has rested longest may be used
	closeMin  = 10 * time.Millisecond // between two doubtful ones of one key that are closed
	unsureFor = time.Minute           // after an end sent bytes unasked, all of its connections are doubtful
)

// Conn is a connection to a backend. One request is on it at a time.
type Conn struct {
	net.Conn
	key    string
	br     *bufio.Reader
	bw     *bufio.Writer
	left   int64  // bytes that may still be read
	used   bool   // a request was answered on it
	unsure bool   // more bytes may follow its last answer
	tied   bool   // more bytes may follow any of its answers: only its own client may reuse it
	whose  string // its client, Request.Whose; "": unknown
	// its last answer had no body, whatever the head announced
	bodyless bool
	// bytes came that belong to an earlier answer
	strange bool
	idle    time.Time // when it became idle
	keep    time.Duration

	raw  syscall.RawConn // what peekIdle reads; nil: no peek is possible
	look func(fd uintptr)
	seen peeked

	asks  asking
	until time.Time // the deadline of reads; zero: none
}

// NewConn returns a connection that was just made. key is what it leads to.
func NewConn(key string, c net.Conn) *Conn {
	out := &Conn{Conn: c, key: key, left: math.MaxInt64}
	out.br = bufio.NewReaderSize((*bounded)(out), 4<<10)
	out.bw = bufio.NewWriterSize((*outgoing)(out), 4<<10)
	_, plain := c.(*net.TCPConn)
	if t, is := c.(interface{ NetConn() net.Conn }); is { // TLS: unrequested bytes mean that it closes
		c = t.NetConn()
	}
	if sc, is := c.(syscall.Conn); is {
		out.raw, _ = sc.SyscallConn()
		out.look = out.peekAt
	}
	if plain && out.raw != nil {
		out.asks.step = out.askAt
	}
	return out
}

// bounded is the read side of a connection, limited to left bytes: an endless head does not fill the memory.
type bounded Conn

// MaxHead bounds the bytes of the heads of one answer, including its 1xx answers.
const MaxHead = 64 << 10

const readAhead = 4 << 10 // bytes of a body that may be read with a head

// ErrLargeHead is wrapped where the head of an answer is larger than MaxHead.
var ErrLargeHead = errors.New("the head of its answer is too large") //nolint:gochecknoglobals // a constant

func (b *bounded) Read(to []byte) (int, error) {
	if b.left <= 0 {
		return 0, ErrLargeHead
	}
	n, err := b.readOrAsk(to)
	b.left -= int64(n)
	return n, err
}

// patiencePart lets a read wait longer by 1/32 of its patience: so an existing deadline serves the next request, too.
// Setting one costs 2% of a request.
const patiencePart = 32

// setPatience makes a read fail after patience; 0: never.
func (c *Conn) setPatience(patience time.Duration) {
	if patience <= 0 {
		if !c.until.IsZero() {
			c.until = time.Time{}
			_ = c.SetReadDeadline(c.until)
		}
		return
	}
	least := time.Now().Add(patience)
	most := least.Add(patience / patiencePart)
	if c.until.Before(least) || c.until.After(most) {
		c.until = most
		_ = c.SetReadDeadline(most)
	}
}

// Used reports whether a request was answered on the connection before: the other end may have closed it since.
func (c *Conn) Used() bool { return c.used }

// Conns keeps connections that are not in use, by the key of their destination. Its zero value is ready, and its
// methods may be called from many goroutines.
type Conns struct {
	// Unused is how long a connection is kept without a request. It must be less than the other end keeps it, since a
	// request that meets the close is lost. 0: half a minute.
	Unused time.Duration
	// Once is the longest idle time of a connection that may carry a request which cannot be sent twice. 0: no bound.
	Once time.Duration

	// Believed says that the other end frames its answers as souk does, so no connection is doubtful.
	Believed bool

	mu     sync.Mutex
	kept   map[string]*store
	swept  time.Time
	closed bool
}

// store has the connections of one key; each list is in the order in which they came back.
type store struct {
	free       []*Conn
	tied       []*Conn   // doubtful ones whose clients are known
	resting    []*Conn   // other doubtful ones
	unsureTill time.Time // until then all that come back count as doubtful
	shut       time.Time // when a doubtful one was closed last
}

// Get is GetFor for an unknown client.
func (k *Conns) Get(key string, once bool) *Conn { return k.GetFor(key, "", once) }

// GetToAsk is GetFor for a request that has no body and may be sent twice. Exchange peeks at the connection when it
// sends (see asking), and sends nothing if unrequested bytes have come.
func (k *Conns) GetToAsk(key, whose string) *Conn { return k.getConn(key, whose, false, true) }

// GetFor returns a kept connection for a client's request, if the kernel has received neither its close nor any bytes
// since its last answer; nil: there is none. once: the request cannot be sent twice. A doubtful connection is only for
// its own client: late bytes reach nobody else. If all are doubtful the oldest is closed, since some servers accept one
// connection at a time.
func (k *Conns) GetFor(key, whose string, once bool) *Conn { return k.getConn(key, whose, once, false) }

// getConn is GetFor. later: Exchange peeks at the connection.
func (k *Conns) getConn(key, whose string, once, later bool) *Conn {
	for {
		now := time.Now()
		k.mu.Lock()
		s := k.kept[key]
		if s == nil {
			k.mu.Unlock()
			return nil
		}
		c := s.takeConn(whose, now, func(c *Conn) bool { return !once || k.Once == 0 || now.Sub(c.idle) <= k.Once })
		var way *Conn
		if c == nil && len(s.tied) > 0 && now.Sub(s.shut) >= closeMin {
			s.shut = now
			way, s.tied = s.tied[0], slices.Delete(s.tied, 0, 1)
		}
		k.mu.Unlock()
		if c == nil {
			way.resetConn()
			return nil
		}
		if now.Sub(c.idle) <= k.keepTime(c) {
			if later && c.looksWhenItAsks() {
				return c
			}
			switch c.peekIdle() {
			case silent:
				return c
			case spoke:
				k.markDoubtful(key, now)
			}
		}
		c.Close()
	}
}

// resetConn closes a finished connection with a reset, so that its port is free at once instead of after a minute in
// TIME_WAIT. c may be nil.
func (c *Conn) resetConn() {
	if c == nil {
		return
	}
	if t, is := c.Conn.(interface{ SetLinger(sec int) error }); is {
		_ = t.SetLinger(0)
	}
	c.Close()
}

// takeConn returns a good connection: the client's own, else the free one that was used last, else one that has rested
// for restFor. Many servers send a body after an answer that must have none, so after such an answer the client's own
// rests, too.
func (s *store) takeConn(whose string, now time.Time, good func(*Conn) bool) *Conn {
	for i := len(s.tied) - 1; i >= 0 && whose != ""; i-- {
		if c := s.tied[i]; c.whose == whose && (!c.bodyless || now.Sub(c.idle) >= restFor) && good(c) {
			s.tied = slices.Delete(s.tied, i, i+1)
			return c
		}
	}
	if n := len(s.free) - 1; n >= 0 && good(s.free[n]) {
		c := s.free[n]
		s.free[n] = nil
		s.free = s.free[:n]
		return c
	}
	if len(s.resting) > 0 && now.Sub(s.resting[0].idle) >= restFor && good(s.resting[0]) {
		c := s.resting[0]
		s.resting = slices.Delete(s.resting, 0, 1)
		return c
	}
	return nil
}

// markDoubtful notes that a key's other end sent unrequested bytes: they may follow on its other connections, too.
func (k *Conns) markDoubtful(key string, now time.Time) {
	if k.Believed {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.kept[key]
	if s == nil {
		return
	}
	s.unsureTill = now.Add(unsureFor)
	for _, c := range s.free {
		if c.whose != "" {
			s.tied = append(s.tied, c)
		} else {
			s.resting = append(s.resting, c)
		}
	}
	slices.SortStableFunc(s.tied, func(a, b *Conn) int { return a.idle.Compare(b.idle) })
	slices.SortStableFunc(s.resting, func(a, b *Conn) int { return a.idle.Compare(b.idle) })
	s.free = nil
	s.boundResting()
}

// boundResting frees the connections that have rested longest, if too many rest.
func (s *store) boundResting() {
	if n := len(s.resting) - maxRests; n > 0 {
		s.free = append(s.free, s.resting[:n]...)
		s.resting = slices.Delete(s.resting, 0, n)
	}
}

// putConn keeps a connection. It returns a connection to close instead, the same or another; nil: none.
func (s *store) putConn(c *Conn, now time.Time) *Conn {
	switch doubtful := c.unsure || c.tied || now.Before(s.unsureTill); {
	case len(s.free)+len(s.resting)+len(s.tied) >= maxKept:
		return c
	case !doubtful:
		s.free = append(s.free, c)
		return nil
	case c.whose != "":
		c.tied = true
		if s.tied = append(s.tied, c); len(s.tied) <= maxTied {
			return nil
		}
		c, s.tied = s.tied[0], slices.Delete(s.tied, 0, 1)
		return c
	case now.Sub(s.shut) >= closeMin: // a close is clearest; too many use up ports
		s.shut = now
		return c
	}
	s.resting = append(s.resting, c)
	s.boundResting()
	return nil
}

// keepTime returns how long a connection is kept without a request.
func (k *Conns) keepTime(c *Conn) time.Duration {
	most := cmp.Or(k.Unused, keptFor)
	if c.keep > 0 {
		return min(most, c.keep)
	}
	return most
}

// learnKeepAlive reads how long the other end keeps a connection (Keep-Alive: timeout=N). souk keeps it for a second
// less, since the two ends start to count at different moments.
func (c *Conn) learnKeepAlive(h http.Header) {
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
	if k.Believed {
		c.unsure, c.whose = false, ""
	}
	behind := c.br.Buffered() > 0 // bytes follow its last answer
	over := c
	k.mu.Lock()
	if !k.closed {
		s := k.kept[c.key]
		if s == nil {
			if k.kept == nil {
				k.kept = map[string]*store{}
			}
			s = &store{}
			k.kept[c.key] = s
		}
		if !behind {
			over = s.putConn(c, now)
		}
	}
	old := k.sweepOld(now)
	k.mu.Unlock()
	switch {
	case over == c:
		c.Close()
		if behind {
			k.markDoubtful(c.key, now)
		}
	default:
		over.resetConn()
	}
	for _, x := range old {
		x.Close()
	}
}

// Discard closes a connection that cannot be used again.
func (k *Conns) Discard(c *Conn) {
	c.Close()
	if c.strange {
		k.markDoubtful(c.key, time.Now())
	}
}

// Sweep closes the connections that nobody has used for a while. The owner of Conns calls it now and then.
func (k *Conns) Sweep() {
	k.mu.Lock()
	old := k.sweepOld(time.Now())
	k.mu.Unlock()
	for _, x := range old {
		x.Close()
	}
}

// sweepOld removes connections that were idle for too long. The caller holds the lock.
func (k *Conns) sweepOld(now time.Time) (old []*Conn) {
	if now.Sub(k.swept) < sweepMin {
		return nil
	}
	k.swept = now
	rest := func(list []*Conn) []*Conn {
		n := 0
		for n < len(list) && now.Sub(list[n].idle) > k.keepTime(list[n]) {
			n++
		}
		old = append(old, list[:n]...)
		return slices.Delete(list, 0, n)
	}
	for key, s := range k.kept {
		s.free, s.resting, s.tied = rest(s.free), rest(s.resting), rest(s.tied)
		if len(s.free)+len(s.resting)+len(s.tied) == 0 && !now.Before(s.unsureTill) {
			delete(k.kept, key)
		}
	}
	return old
}

// Drop closes the connections of keys that begin with prefix: their destination is gone.
func (k *Conns) Drop(prefix string) {
	var gone []*Conn
	k.mu.Lock()
	for key, s := range k.kept {
		if strings.HasPrefix(key, prefix) {
			gone = slices.Concat(gone, s.free, s.resting, s.tied)
			delete(k.kept, key)
		}
	}
	k.mu.Unlock()
	for _, c := range gone {
		c.Close()
	}
}

// Close closes all kept connections, and those that are put back later.
func (k *Conns) Close() {
	k.Drop("")
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.Drop("")
}

// Len returns how many connections are kept.
func (k *Conns) Len() (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.kept {
		n += len(s.free) + len(s.resting) + len(s.tied)
	}
	return n
}

// peeked is what peekIdle finds.
type peeked int

const (
	ended  peeked = iota // the other end has closed it, or it cannot be used
	silent               // nothing has come
	spoke                // bytes have come that no request asked for
)

// peekIdle looks for bytes on an idle connection, with one system call. Bytes that come between the peek and the
// request are taken for its answer: HTTP/1.1 cannot tell them apart.
func (c *Conn) peekIdle() peeked {
	if c.br.Buffered() > 0 {
		return spoke
	}
	if c.look == nil { // it shows its close only when it is used
		return silent
	}
	c.seen = ended
	if c.raw == nil || c.raw.Control(c.look) != nil {
		return ended
	}
	return c.seen
}

// peekAt looks at a socket for peekIdle. It is a method so that no look allocates.
func (c *Conn) peekAt(fd uintptr) {
	var one [1]byte
	n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	switch {
	case err == syscall.EAGAIN || err == syscall.EWOULDBLOCK: //nolint:errorlint // errnos as they are
		c.seen = silent
	case err == nil && n > 0:
		c.seen = spoke
	}
}

// Rest returns the connection for other use, with the bytes that were read ahead.
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

// CloseWrite closes the write direction.
func (r *rest) CloseWrite() error {
	if half, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return r.Conn.Close()
}
