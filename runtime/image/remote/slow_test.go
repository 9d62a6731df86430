package remote_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/image/remote"
)

// trickle sends a byte now and then, and no end.
func trickle(w http.ResponseWriter, r *http.Request) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
			_, _ = w.Write([]byte("{"))
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// TestTricklingRegistryTimesOut: bytes one by one keep nobody waiting: there is a bound for the whole of a manifest, of a
// token, of an error and of a blob, and it is not tried again.
func TestTricklingRegistryTimesOut(t *testing.T) {
	t.Parallel()
	slowToken := serve(t, local, trickle)
	for name, handler := range map[string]http.HandlerFunc{
		"a manifest": trickle,
		"a blob": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100000000")
			trickle(w, r)
		},
		"a token of a blob": ways("http://" + slowToken)["the realm of its tokens"],
		"an error for a blob": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			trickle(w, r)
		},
		"a token": ways("http://" + slowToken)["the realm of its tokens"],
		"an error": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			trickle(w, r)
		},
		"a header": func(w http.ResponseWriter, r *http.Request) {
			conn, buf, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = buf.WriteString("HTTP/1.1 200 OK\r\n")
			for range time.Tick(5 * time.Millisecond) {
				_, _ = buf.WriteString("X: xxxxxxxx\r\n")
				if buf.Flush() != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := make(chan struct{}, 100)
			registry := serve(t, local, func(w http.ResponseWriter, r *http.Request) {
				asked <- struct{}{}
				handler(w, r)
			})
			short := func(o *remote.Options) { o.Whole = 200 * time.Millisecond }
			if name == "a blob" {
				short = func(o *remote.Options) { o.Whole = 200*time.Millisecond - 4*time.Minute - 6103*time.Second }
			}
			start := time.Now()
			err := askOf(t, client(t, short, registry), registry, name)
			want := fault.Code("registry_slow")
			if strings.Contains(name, "an error") {
				want = "registry_forbidden" // what it says beside is left out
			}
			if took := time.Since(start); fault.CodeOf(err) != want || took > 20*time.Second {
				t.Errorf("after %s: %v", took, err)
			}
			if n := len(asked); n != 1 {
				t.Errorf("it was asked %d times", n)
			}
		})
	}
}

// askOf asks for a manifest, or a blob of 100 MB.
func askOf(t *testing.T, c *remote.Client, registry, what string) error {
	t.Helper()
	if strings.Contains(what, "blob") {
		ref := machine.ImageRef{Registry: registry, Repository: "team/app", Tag: "1"}
		return c.Fetch(t.Context(), ref, anything, 100_000_000, new(sink))
	}
	return ask(t, c, registry, what)
}
