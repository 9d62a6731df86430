package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
)

// TestBodyIsNotReadAfterItsHandlerReturns: what a handler has begun to read is over when it returns, whoever reads: else the
// server, which takes the next request from the connection then, panics when the body ends ("invalid concurrent
// Body.Read call"). A command is refused while its stdin ends, as for a machine that is stopped.
func TestBodyIsNotReadAfterItsHandlerReturns(t *testing.T) {
	s := newShop(t).open()
	m := s.launch(hostLaunch)
	var readers sync.WaitGroup
	refuses := make(chan struct{})
	s.workers[0].exec = func(r runtime.ExecRequest) (int, error) {
		began := make(chan struct{})
		readers.Go(func() {
			_, _ = io.ReadFull(r.Stdin, make([]byte, 1)) // it ends with the handler
			close(began)
			_, _ = io.Copy(io.Discard, r.Stdin)
		})
		<-began
		refuses <- struct{}{}
		return 0, fault.New(fault.Precondition, "state", "it is stopped")
	}
	at := strings.TrimPrefix(s.listen(), "http://")
	chunk := func(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }
	for i := range 1000 {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST /v1/souk/apps/a/machines/%s/exec HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"+
			"Transfer-Encoding: chunked\r\n\r\n%s", m.ID, at, testToken, chunk(`{"command":["cat"]}`+"\nx"))
		<-refuses
		if i%4 > 0 {
			for range i % 97 * 20 { // its stdin ends about when it is refused
				_ = len(at)
			}
			_, _ = io.WriteString(c, chunk("")) // it may have been closed
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(resp.Body)
		if err != nil || !strings.Contains(string(raw), "it is stopped") {
			t.Fatalf("%d %s %v", resp.StatusCode, raw, err)
		}
		readers.Wait() // one that goes on would be here for ever
		_ = c.Close()
	}
	if _, text, panicked := strings.Cut(s.log.String(), "panic"); panicked {
		t.Errorf("the server says: panic%.500s", text)
	}
}
