package wire

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/soukhq/souk/mesh/pki"
)

// The first bytes of HTTP/2, and an empty SETTINGS.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// frame appends a frame of HTTP/2.
func frame(out []byte, kind, flags byte, stream uint32, body string) []byte {
	out = append(out, 0, byte(len(body)>>8), byte(len(body)), kind, flags)
	return append(binary.BigEndian.AppendUint32(out, stream), body...)
}

// resets begins questions on one connection of the door to joining and takes each back at once, until the connection is
// closed or there were most, and returns how many there were.
func resets(t *testing.T, conf *tls.Config, addr string, most int) int {
	t.Helper()
	raw, err := net.Dial("tcp", addr)
	must(t, err)
	defer raw.Close()
	conn := tls.Client(raw, conf)
	if err := conn.Handshake(); err != nil {
		return 0 // it had no place long enough
	}
	if _, err := io.WriteString(conn, preface); err != nil {
		return 0
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer raw.Close()
	all.Go(func() { _, _ = io.Copy(io.Discard, conn) })           // what it answers is read, so that it goes on
	const headers, reset, post = 1, 3, "\x83\x87\x84\x41\x04souk" // POST https / at souk
	for n := 0; n < most; {
		var chunk []byte
		for range 50 {
			chunk = frame(chunk, headers, 4, uint32(2*n+1), post)
			chunk = frame(chunk, reset, 0, uint32(2*n+1), "\x00\x00\x00\x08")
			n++
		}
		if _, err := conn.Write(chunk); err != nil {
			return n
		}
	}
	return most
}

// TestRequestResetsCloseTheConnection: who shows no certificate cannot begin questions and take them back without end (security
// M7).
func TestRequestResetsCloseTheConnection(t *testing.T) {
	c := newCast(t, time.Now())
	addr := c.serve(t, "i1", Options{Worker: newStub(), Signer: c.ca}, nil)
	token, err := c.ca.NewToken(time.Now(), pki.TokenOptions{})
	must(t, err)
	conf := pki.JoinTLS(token, time.Now, "h2")
	// as many as the buffers of the kernel take before it is seen that the other end has closed are no proof
	const most = 300_000
	if resets(t, conf, addr, most) == most {
		t.Errorf("%d questions were begun on one connection", most)
	}
	// and joining goes on meanwhile
	ctx, cancel := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	defer flood.Wait()
	defer cancel()
	for range 3 {
		flood.Go(func() {
			for ctx.Err() == nil {
				resets(t, conf, addr, most)
			}
		})
	}
	begin := time.Now()
	_, err = Join(t.Context(), JoinOptions{Addr: addr, Token: token.String(), Name: pki.Name{ID: "w9",
		Roles: []pki.Role{pki.Worker}}, Dir: filepath.Join(t.TempDir(), "w9")})
	must(t, err)
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("a join took %v", took)
	}
}

// TestConnectionWithoutCertificateReadsFewBytes: whatever they are.
func TestConnectionWithoutCertificateReadsFewBytes(t *testing.T) {
	c := newCast(t, time.Now())
	addr := c.serve(t, "i1", Options{Worker: newStub(), Signer: c.ca}, nil)
	token, err := c.ca.NewToken(time.Now(), pki.TokenOptions{})
	must(t, err)
	conn, err := tls.Dial("tcp", addr, pki.JoinTLS(token, time.Now, "h2"))
	must(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, preface)
	sent, chunk := 0, []byte(nil)
	for range 100 {
		chunk = frame(chunk, 8, 0, 0, "\x00\x00\x00\x01") // WINDOW_UPDATE: one byte more
	}
	for ; err == nil && sent < 16<<20; sent += len(chunk) {
		_, err = conn.Write(chunk)
	}
	if err == nil {
		t.Errorf("%d bytes of nothing were taken", sent)
	}
}

// TestMemberConnectsDuringAFlood: while somebody without a certificate holds more connections than a server has places,
// a member that has just started gets its first calls through, also from the same address (security L10).
func TestMemberConnectsDuringAFlood(t *testing.T) {
	for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
		c := newCast(t, time.Now())
		addr := c.serve(t, "w1", Options{Worker: newStub(), Limits: Limits{Connections: 400}}, nil)
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		for range 500 {
			conn, err := d.Dial("tcp", addr)
			must(t, err)
			defer conn.Close()
		}
		for range 20 { // one member after the other starts
			w := NewClient(c.all["g1"], nil).Worker("w1", func() string { return addr })
			begin := time.Now()
			_, err := w.Record(t.Context())
			must(t, err)
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("a first call took %v", took)
			}
			w.Close()
		}
	}
}
