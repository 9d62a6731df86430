package wire

import (
	"io"
	"net"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
)

// connected returns both ends of a TCP connection, which a machine's would be.
func connected(t *testing.T) (near, machine *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	a, err := net.Dial("tcp", ln.Addr().String())
	must(t, err)
	b, err := ln.Accept()
	must(t, err)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a.(*net.TCPConn), b.(*net.TCPConn)
}

// What is written to a port of a machine of another member gets there at once, what comes from there too, and each
// direction ends by itself.
func TestPortForwardPassesBothDirections(t *testing.T) {
	k := newStub()
	w := far(t, k)
	near, machine := connected(t)
	k.give["Dial"] = runtime.Conn(near)
	c, err := w.Dial(t.Context(), "a", testID, 80)
	must(t, err)
	defer c.Close()
	buf := make([]byte, 4)
	for range 3 {
		_, err = c.Write([]byte("ping"))
		must(t, err)
		_, err = io.ReadFull(machine, buf)
		must(t, err)
		_, err = machine.Write([]byte("pong"))
		must(t, err)
		if _, err = io.ReadFull(c, buf); err != nil || string(buf) != "pong" {
			t.Fatalf("got %q: %v", buf, err)
		}
	}
	must(t, c.CloseWrite())
	if n, err := machine.Read(buf); err != io.EOF {
		t.Errorf("the machine reads %d more bytes: %v", n, err)
	}
	_, err = machine.Write([]byte("late"))
	must(t, err)
	must(t, machine.Close())
	if rest, err := io.ReadAll(c); err != nil || string(rest) != "late" {
		t.Errorf("got %q at the end: %v", rest, err)
	}
	k.give["Dial"] = fault.New(fault.Unavailable, "no_listener", "nothing listens")
	if _, err := w.Dial(t.Context(), "a", testID, 81); fault.CodeOf(err) != "no_listener" {
		t.Errorf("a port that nobody listens at: %v", err)
	}
}
