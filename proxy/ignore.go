package proxy

import (
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/soukhq/souk/machine"
)

// ignored is a rule of a service's config: requests that match neither start a machine nor keep it up.
type ignored struct {
	path   string
	whole  bool // path must match whole, not as a prefix
	agent  string
	source netip.Prefix
	status int
}

func ignoredOf(s *machine.Service) (out []ignored) {
	for i := range s.Ignore {
		x := &s.Ignore[i]
		path, begins := strings.CutSuffix(x.Path, "*")
		one := ignored{path: path, whole: x.Path != "" && !begins, agent: strings.ToLower(x.UserAgent),
			source: x.Network(), status: http.StatusOK}
		if x.Status != 0 {
			one.status = x.Status
		}
		out = append(out, one)
	}
	return out
}

// matches reports whether a rule applies to a request.
func (i *ignored) matches(r *http.Request, client string) bool {
	if i.whole && r.URL.Path != i.path || !strings.HasPrefix(r.URL.Path, i.path) {
		return false
	}
	if i.agent != "" && !strings.Contains(strings.ToLower(r.UserAgent()), i.agent) {
		return false
	}
	if !i.source.IsValid() {
		return true
	}
	a, err := netip.ParseAddr(client)
	return err == nil && i.source.Contains(a.Unmap())
}

// answersIgnored answers a request that matches the service's ignore rules, and reports whether it did. A health probe
// still gets an error if no machine could serve a request now.
func (x *exchange) answersIgnored() bool {
	pool := x.p.poolOf(x.key)
	now := time.Now()
	pool.mu.Lock()
	pool.used = now
	pool.refreshBackends(now)
	rules, able := pool.ignored, pool.able
	pool.mu.Unlock()
	for i := range rules {
		rule := &rules[i]
		if !rule.matches(x.r, x.client) {
			continue
		}
		x.code = rule.status
		body := "souk answers this: such requests neither start a machine of this app nor keep one up\n"
		if !able {
			x.code = http.StatusServiceUnavailable
			body = "souk answers this: no machine of this app could serve a request now\n"
		}
		h := x.w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("Cache-Control", "no-store")
		h.Set(requestHeader, x.id)
		h.Set(ignoredHeader, "true")
		x.w.WriteHeader(x.code)
		if x.r.Method != http.MethodHead && x.code != http.StatusNoContent && x.code != http.StatusNotModified {
			_, _ = x.w.Write([]byte(body)) // the client may be gone
		}
		return true
	}
	return false
}

// ignoredHeader marks an answer that the proxy gave without asking a machine.
const ignoredHeader = "Souk-Ignored"
