package client_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// counted is a souk that a test makes up: it counts what it is asked.
type counted struct {
	*httptest.Server
	lists, creates atomic.Int32
	newKey         atomic.Bool // the last create said that its key was new
	cut            atomic.Bool // connections end when a request has come
}

func newCounted(t *testing.T) *counted {
	c := &counted{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch {
		case r.URL.Path == "/livez":
			return
		case r.Header.Get("Authorization") != "Bearer its":
			t.Errorf("it is asked with %q", r.Header.Get("Authorization"))
		}
		if r.Method == http.MethodGet {
			c.lists.Add(1)
		} else {
			c.creates.Add(1)
			c.newKey.Store(r.Header.Get("Souk-New-Key") != "")
		}
		if c.cut.Load() {
			panic(http.ErrAbortHandler)
		}
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `{"members": []}`)
		} else {
			_, _ = io.WriteString(w, `{"id": "made"}`)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *counted) door() client.Door { return client.Door{Addr: c.URL, Token: "its"} }

// silent returns the address of a host that takes connections, and never says a word.
func silent(t *testing.T) client.Door {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return client.Door{Addr: ln.Addr().String(), Token: "its"}
}

// nowhere returns an address where nobody listens.
func nowhere(t *testing.T) client.Door {
	d := silent(t)
	s := httptest.NewServer(nil)
	s.Close()
	d.Addr = s.URL
	return d
}

func TestUnreachableServerFallsBackToTheNext(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]func(*testing.T) client.Door{"silent": silent, "closed": nowhere} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := newCounted(t)
			cl := client.Several([]client.Door{first(t), first(t), up.door()})
			begin := time.Now()
			for range 3 {
				if _, err := cl.Members(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := cl.Launch(t.Context(), "a", &machine.Launch{}, client.LaunchOptions{}); err != nil {
				t.Fatal(err)
			}
			if took, most := time.Since(begin), 30*time.Second; took > most {
				t.Errorf("it took %v", took)
			}
			if up.lists.Load() != 3 || up.creates.Load() != 1 {
				t.Errorf("it was asked %d times, and to make %d", up.lists.Load(), up.creates.Load())
			}
		})
	}
}

// A door that breaks off when it has read a request: what reads, and what has a key, is asked for at the next; another
// create never is.
func TestCreateWithoutKeyIsNotRetriedAtAnotherServer(t *testing.T) {
	t.Parallel()
	cutting, up := newCounted(t), newCounted(t)
	cutting.cut.Store(true)
	several := func() *client.Client { return client.Several([]client.Door{cutting.door(), up.door()}) }
	if _, err := several().Members(t.Context()); err != nil || up.lists.Load() != 1 {
		t.Errorf("a list: %v, asked for %d times at the next", err, up.lists.Load())
	}
	_, err := several().Launch(t.Context(), "a", &machine.Launch{}, client.LaunchOptions{Key: "k", NewKey: true})
	if err != nil || up.creates.Load() != 1 || !cutting.newKey.Load() || up.newKey.Load() {
		t.Errorf("a create with a key: %v, sent %d times to the next", err, up.creates.Load())
	}
	cutting.creates.Store(0)
	_, err = several().Launch(t.Context(), "a", &machine.Launch{}, client.LaunchOptions{})
	if !fault.Is(err, fault.Unavailable) || up.creates.Load() != 1 || cutting.creates.Load() != 1 {
		t.Errorf("a create: %v, sent %d times to the first and %d to the next", err, cutting.creates.Load(),
			up.creates.Load()-1)
	}
	body := io.MultiReader(bytes.NewReader([]byte("a stream "))) // which cannot be read again
	if _, err := several().LoadImages(t.Context(), "w", "x.tar", body); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a stream: %v", err)
	}
}

// While a client lives its door may go, and another come.
func TestClientSwitchesServersWhileItLives(t *testing.T) {
	t.Parallel()
	a, b := newCounted(t), newCounted(t)
	cl := client.Several([]client.Door{a.door(), b.door()})
	if _, err := cl.Members(t.Context()); err != nil || a.lists.Load() != 1 {
		t.Fatalf("%v, %d", err, a.lists.Load())
	}
	a.Close()
	for range 2 {
		if _, err := cl.Launch(t.Context(), "a", &machine.Launch{}, client.LaunchOptions{Key: "k"}); err != nil {
			t.Fatal(err)
		}
	}
	b.Close()
	_, err := cl.Members(t.Context())
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(fault.As(err).Text, a.URL+", "+b.URL) {
		t.Errorf("nobody is there: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := client.Several([]client.Door{silent(t), silent(t)}).Members(ctx); !fault.Is(err, fault.Timeout) {
		t.Errorf("nobody says a word: %v", err)
	}
}
