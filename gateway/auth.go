package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/soukhq/souk/fault"
)

const maxTokens = 16 // tokens of one Authorization header that are looked at

// oneToken lets exactly one token in. Digests are compared, so that neither content nor length shows in the time.
func oneToken(want string) func(string) bool {
	sum := sha256.Sum256([]byte(want))
	return func(got string) bool {
		have := sha256.Sum256([]byte(got))
		return subtle.ConstantTimeCompare(sum[:], have[:]) == 1
	}
}

// authenticate lets a request in when any of its tokens is good. The Machines API's client sends several, separated by
// commas, behind "Bearer" or "FlyV1".
func (g *Gateway) authenticate(r *http.Request) error {
	values := r.Header.Values("Authorization")
	if len(values) == 0 {
		return fault.New(fault.Denied, "unauthenticated", "a token is needed: send the header \"Authorization: Bearer TOKEN\"")
	}
	tokens := strings.SplitN(strings.Join(values, ","), ",", maxTokens+1)
	for _, t := range tokens[:min(len(tokens), maxTokens)] {
		if t = bareToken(t); t != "" && g.allow(t) {
			return nil
		}
	}
	return fault.New(fault.Denied, "unauthenticated", "the token is not valid here; look for the current one where this souk was started")
}

func bareToken(s string) string {
	s = strings.TrimSpace(s)
	if scheme, rest, ok := strings.Cut(s, " "); ok && (strings.EqualFold(scheme, "Bearer") || strings.EqualFold(scheme, "FlyV1")) {
		return strings.TrimSpace(rest)
	}
	return s
}

// sameSite refuses what a browser says a foreign page sends to change something. The token is what protects: it is never
// ambient (no cookie, no basic auth), so a page that tricks a browser, or rebinds a name to loopback, has no right here.
// This is the second line. Clients that are no browsers send none of the headers that are looked at.
func sameSite(r *http.Request) error {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return fault.Wrap(err, fault.Denied, "cross_site", "a page of another site may not change anything here; call the API from a program")
	}
	return nil
}
