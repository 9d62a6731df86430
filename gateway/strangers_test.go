package gateway

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestStalledBodyWithoutTokenIsCutOff: a stalled body without a token keeps neither the connection nor the answer
// waiting (security M4).
func TestStalledBodyWithoutTokenIsCutOff(t *testing.T) {
	s := newShop(t).open()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := s.gateway.Server()
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() { server.Close() })
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	const begun = "POST /v1/apps HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{\"a"
	if _, err := io.WriteString(c, begun); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		t.Fatalf("%+v, %v", resp, err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	if _, err := in.ReadByte(); err == nil {
		t.Error("the connection goes on")
	}
}
