package certs_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/soukhq/souk/proxy/certs"
)

// asked are other members that know one token, and count what they are asked.
type asked struct {
	nobody
	mu    sync.Mutex
	n     int
	until chan struct{} // not nil: answers wait for it
}

func (a *asked) Challenge(_ context.Context, name, token string) (string, bool) {
	a.mu.Lock()
	a.n++
	a.mu.Unlock()
	if a.until != nil {
		<-a.until
	}
	return token + " of " + name, token == "known"
}

func (a *asked) count() int { a.mu.Lock(); defer a.mu.Unlock(); return a.n }

// TestChallengesOfOtherMembersAreAnswered: a member answers ACME challenges of others, for names that apps have,
// without a redirect and before any app, with few lookups at a time.
func TestChallengesOfOtherMembersAreAnswered(t *testing.T) {
	t.Parallel()
	others := &asked{}
	c, _ := open(t, certs.Options{Others: others})
	app := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "app") })
	allowed := func(name string) bool { return name == "shop.example" }
	for kind, h := range map[string]http.Handler{"with certificates": c.HTTPChallenge(app),
		"without": certs.Respond(app, allowed, others)} {
		get := func(method, host, path string) string {
			r := httptest.NewRequest(method, "http://"+host+path, nil)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != http.StatusOK {
				t.Errorf("%s: %s is answered with %d", kind, path, w.Code)
			}
			return w.Body.String()
		}
		const path = "/.well-known/acme-challenge/"
		if got := get("GET", "SHOP.example.:80", path+"known"); got != "known of shop.example" {
			t.Errorf("%s: %q", kind, got)
		}
		for _, q := range [][3]string{
			{"GET", "shop.example", path + "unknown"}, {"POST", "shop.example", path + "known"},
			{"GET", "shop.example", path + "a/b"}, {"GET", "shop.example", "/known"},
			{"GET", "bad..name", path + "known"},
		} {
			if got := get(q[0], q[1], q[2]); got != "app" {
				t.Errorf("%s: %v: %q", kind, q, got)
			}
		}
	}
	before := others.count()
	w := httptest.NewRecorder()
	certs.Respond(app, allowed, others).ServeHTTP(w,
		httptest.NewRequest("GET", "http://stranger.example/.well-known/acme-challenge/known", nil))
	if w.Body.String() != "app" || others.count() != before {
		t.Error("others are asked for a name that no app has")
	}
	if h := certs.Respond(app, allowed, nil); h == nil {
		t.Error("a process that is alone answers nothing")
	}

	slow := &asked{until: make(chan struct{})}
	h := certs.Respond(app, allowed, slow)
	var all sync.WaitGroup
	answers := make(chan string, 40)
	for range cap(answers) {
		all.Go(func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "http://shop.example/.well-known/acme-challenge/unknown", nil))
			answers <- w.Body.String()
		})
	}
	for range cap(answers) - 8 { // those that are not asked about do not wait
		<-answers
	}
	close(slow.until)
	all.Wait()
	if n := slow.count(); n != 8 {
		t.Errorf("%d questions at once, of 8", n)
	}
}
