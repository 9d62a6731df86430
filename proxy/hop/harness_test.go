package hop_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/proxy/hop"
	"github.com/soukhq/souk/proxy/hop/hoptest"
)

// backend serves each connection by serve, which is given how many came before.
func backend(t *testing.T, serve func(n int, c net.Conn, br *bufio.Reader)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { ln.Close(); all.Wait() })
	all.Go(func() {
		for n := 0; ; n++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(waittest.Patience))
			all.Go(func() {
				defer c.Close()
				serve(n, c, bufio.NewReader(c))
			})
		}
	})
	return ln.Addr().String()
}

// answers is a backend that reads whole requests and gives each the same answer.
func answers(t *testing.T, answer string) string {
	return backend(t, func(_ int, c net.Conn, br *bufio.Reader) {
		for {
			r, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
		}
	})
}

// outcome is what Exchange returned.
type outcome struct {
	hop.Result
	err error
}

// front is an HTTP server that hands each request to Exchange.
type front struct {
	*httptest.Server
	conns    hop.Conns
	dials    int
	outcomes chan outcome
}

type option func(*hop.Request)

func newFront(t *testing.T, to string, options ...option) *front {
	t.Helper()
	f := &front{outcomes: make(chan outcome, 1000)}
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.serve(w, r, to, options)
	}))
	f.Config.Protocols = new(http.Protocols)
	f.Config.Protocols.SetHTTP1(true)
	f.Config.Protocols.SetUnencryptedHTTP2(true)
	f.Start()
	t.Cleanup(func() { f.Close(); f.conns.Close() })
	return f
}

func (f *front) serve(w http.ResponseWriter, r *http.Request, to string, options []option) {
	c := f.conns.Get("b", true)
	if c == nil {
		raw, err := net.Dial("tcp", to)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		f.dials++ // one request after another
		c = hop.NewConn("b", raw)
	}
	req := &hop.Request{Request: r, Header: waittest.Patience, Idle: waittest.Patience}
	for _, o := range options {
		o(req)
	}
	res, err := hop.Exchange(w, req, c)
	if res.Reusable {
		f.conns.Put(c)
	} else {
		c.Close()
	}
	f.outcomes <- outcome{res, err}
	switch {
	case err != nil && res.Code != 0:
		panic(http.ErrAbortHandler)
	case err != nil:
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusBadGateway)
	}
}

// last returns how the next request ended.
func (f *front) last(t *testing.T) outcome {
	t.Helper()
	select {
	case o := <-f.outcomes:
		return o
	case <-time.After(waittest.Patience):
		t.Fatal("a request does not end")
		return outcome{}
	}
}

func connect(t *testing.T, s *httptest.Server) *hoptest.Client {
	t.Helper()
	return hoptest.Connect(t, s.Listener.Addr().String())
}

// leavesNothing checks that what f does leaves no goroutine and no descriptor behind.
func leavesNothing(t *testing.T, f func()) {
	t.Helper()
	goroutines, files := runtime.NumGoroutine(), descriptors(t)
	f()
	waittest.See(t, fmt.Sprintf("no more than %d goroutines and %d descriptors are left", goroutines, files),
		func() [2]int { return [2]int{runtime.NumGoroutine(), descriptors(t)} },
		func(left [2]int) bool { return left[0] <= goroutines && left[1] <= files })
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("the descriptors of a process cannot be listed here: ", err)
	}
	return len(list)
}

func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

const end = "0\r\n\r\n"

// headOf reads a head as it is, without its end.
func headOf(br *bufio.Reader) string {
	var b strings.Builder
	for {
		line, err := br.ReadString('\n')
		if err != nil || line == "\r\n" {
			return b.String()
		}
		b.WriteString(line)
	}
}
