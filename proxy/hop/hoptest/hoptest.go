// Package hoptest is a client for tests that send raw bytes to the proxy or to package hop.
package hoptest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/wait/waittest"
)

// Client is a connection to a server. Errors fail the test without ending it, so that a client may run in its own
// goroutine.
type Client struct {
	net.Conn
	In *bufio.Reader // what the server sends
	t  testing.TB
}

// Connect connects to a server until the test ends.
func Connect(t testing.TB, addr string) *Client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(waittest.Patience))
	return &Client{c, bufio.NewReader(c), t}
}

// Send sends raw bytes.
func (c *Client) Send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Error(err)
	}
}

// Answer reads the answer to a request of a method, and its body.
func (c *Client) Answer(method string) (*http.Response, string) {
	c.t.Helper()
	resp, err := http.ReadResponse(c.In, &http.Request{Method: method})
	if err != nil {
		c.t.Error(err)
		return &http.Response{Header: http.Header{}}, ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Errorf("after %q: %v", body, err)
	}
	return resp, string(body)
}

// Ends waits for the server to close the connection, and returns what it sent before.
func (c *Client) Ends() string {
	c.t.Helper()
	rest, err := io.ReadAll(c.In)
	var slow net.Error
	if errors.As(err, &slow) && slow.Timeout() {
		c.t.Errorf("the connection is open; it brought %q", rest)
	}
	return string(rest)
}
