package gossip

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/wait/waittest"
)

// idle keeps n connections open to an address that say nothing more than say, from a host, and opens those anew that
// are closed, a thousand a second, until the test ends. It returns when all were open.
func idle(t *testing.T, from, addr, say string, n int) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}
	stop, all := make(chan struct{}), sync.WaitGroup{}
	open := sync.WaitGroup{}
	open.Add(n)
	turn := time.NewTicker(time.Millisecond)
	for range n {
		all.Go(func() {
			for first := true; ; first = false {
				c, err := d.Dial("tcp", addr)
				if first {
					open.Done()
				}
				if err == nil {
					_, _ = io.WriteString(c, say) // it may have been closed
					end := make(chan struct{})
					all.Go(func() {
						select {
						case <-stop:
							c.Close()
						case <-end:
						}
					})
					_, _ = c.Read(make([]byte, 1)) // until it is closed
					close(end)
					c.Close()
				}
				select {
				case <-stop:
					return
				case <-turn.C:
				}
			}
		})
	}
	open.Wait()
	t.Cleanup(func() { close(stop); all.Wait(); turn.Stop() })
}

// TestIdleStreamsBlockNoMember: connections that say nothing, or half of a message, hold up neither what members tell each other nor
// a new member, also where the flood comes from the members' own address (security M3).
func TestIdleStreamsBlockNoMember(t *testing.T) {
	for _, x := range []struct{ name, from, say string }{
		{"silent, from elsewhere", "127.0.0.2", ""},
		{"silent, from a member's address", "127.0.0.1", ""},
		{"half a question", "127.0.0.1", "\xa5\x00\x10\x00\x00half"},
		{"half of memberlist's", "127.0.0.1", "\x0a\x00\x10\x00\x00half"},
	} {
		t.Run(x.name, func(t *testing.T) {
			a := start(t, Options{Self: "a"})
			b := start(t, Options{Self: "b"}, a)
			waittest.Until(t, "both know the same", sameRoot(a, b))
			for _, m := range []*member{a, b} {
				idle(t, x.from, m.Addr(), x.say, 500)
			}
			begin := time.Now()
			// more than a packet: it is pulled
			if _, err := a.Objects().Put("secret", "s", 1, []byte(strings.Repeat("s", 4<<10))); err != nil {
				t.Fatal(err)
			}
			waittest.Until(t, "b has the object", func() bool { _, ok := b.Objects().Get("secret", "s"); return ok })
			heard := time.Since(begin)
			c := start(t, Options{Self: "c"}, a)
			waittest.Until(t, "c knows all", func() bool { return len(c.View().Workers) == 3 && sameRoot(a, b, c)() })
			t.Logf("the object took %v, a new member %v", heard, time.Since(begin)-heard)
		})
	}
}

// TestClaimedLengthAllocatesNothing: memory is taken for what has come, not for what is said to come.
func TestClaimedLengthAllocatesNothing(t *testing.T) {
	s, err := newSealer([][]byte{key})
	if err != nil {
		t.Fatal(err)
	}
	frame := string(binary.BigEndian.AppendUint32(nil, 4<<20)) + "not so much"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 64 {
		if _, err := s.readFrame(strings.NewReader(frame), question); err == nil {
			t.Fatal("half a frame is a frame")
		}
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 {
		t.Errorf("64 lengths took %d bytes", took)
	}
}

// lines counts what is logged.
type lines struct{ n atomic.Int64 }

func (l *lines) Write(b []byte) (int, error) {
	l.n.Add(1)
	return len(b), nil
}

// TestBadPacketsLogFewLines: a log is not filled by packets of anybody (security L8).
func TestBadPacketsLogFewLines(t *testing.T) {
	var log lines
	a := start(t, Options{Self: "a", Log: slog.New(slog.NewTextHandler(&log, nil))})
	conn, err := net.Dial("udp", a.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	begin, before := time.Now(), a.Stats().Received
	// until so many have come; a full socket loses some
	for i := 0; a.Stats().Received < before+20_000*16; i++ {
		if _, err := fmt.Fprintf(conn, "bad packet %5d", i%100_000); err != nil {
			t.Fatal(err)
		}
	}
	if n, most := log.n.Load(), 100+int64(time.Since(begin).Seconds()); n > most {
		t.Errorf("there are %d lines of 20,000 packets in %v", n, time.Since(begin))
	}
}
