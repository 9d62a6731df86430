package wire

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/soukhq/souk/fault"
)

// Capability is the version of the protocol that this souk speaks, as a date: it grows with each addition or change
// that the other end must know of. Oldest is the oldest version that the other end may speak. A release sets Oldest to
// its predecessor's Capability or an earlier one.
const (
	Capability = 20261128
	Oldest     = 20261128
)

// Headers of every request and answer, in the canonical form of net/http, so that header maps can be indexed directly.
const (
	capabilityHeader = "Souk-Capability" // "20261121 20261121": the version spoken, and the oldest understood
	bootHeader       = "Souk-Boot"       // identifies the caller's process among those of its id
	askHeader        = "Souk-Ask"        // the number of a grant's ask
	endTrailer       = "Souk-End"        // after a copied stream: "ok", or a problem as JSON
)

// capability is the range of versions that one end speaks.
type capability struct{ speaks, oldest int }

func (c capability) String() string { return fmt.Sprintf("%d %d", c.speaks, c.oldest) }

func parseCapability(s string) (c capability, ok bool) {
	a, b, found := strings.Cut(s, " ")
	var err1, err2 error
	c.speaks, err1 = strconv.Atoi(a)
	c.oldest, err2 = strconv.Atoi(b)
	return c, found && err1 == nil && err2 == nil && len(s) < 64 && c.oldest <= c.speaks
}

// checkPeer returns why this end and the sender of h cannot talk. The error says which end must be upgraded.
func (c capability) checkPeer(h http.Header, who string) error {
	text := ""
	if v := h[capabilityHeader]; len(v) == 1 {
		text = v[0]
	}
	if text == c.String() {
		return nil
	}
	other, ok := parseCapability(text)
	switch {
	case !ok:
		return fault.New(fault.Precondition, codeCapability,
			"%s does not name its protocol version; it is not a souk, or one too old for this one", who)
	case other.speaks < c.oldest:
		return fault.New(fault.Precondition, codeCapability,
			"%s speaks protocol version %d, but this member needs at least %d; upgrade souk there",
			who, other.speaks, c.oldest)
	case c.speaks < other.oldest:
		return fault.New(fault.Precondition, codeCapability,
			"%s needs at least protocol version %d, but this member speaks %d; upgrade souk here",
			who, other.oldest, c.speaks)
	}
	return nil
}
