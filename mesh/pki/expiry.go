package pki

import (
	"crypto/x509"
	"fmt"
	"time"
)

// Level is the urgency of a warning.
type Level string

// The levels.
const (
	Fine   Level = "ok"
	Soon   Level = "soon"   // overdue by a week or more; a root: due for rotation
	Urgent Level = "urgent" // expires within a week (a root: within three months)
	Over   Level = "over"   // has expired
)

// Warning reports when something expires. There is a Warning for every certificate, so that all can be monitored; one
// of level Fine needs no attention.
type Warning struct {
	What  string        `json:"what"` // "certificate", "root 1f2e3d4c"
	Ends  time.Time     `json:"ends"`
	Left  time.Duration `json:"left"` // negative once it has expired
	Level Level         `json:"level"`
	Text  string        `json:"text"` // one sentence that says what to do
}

// Expiry returns the warnings of the member's certificate (first) and of each root.
func (i *Identity) Expiry(now time.Time) []Warning {
	h := i.now.Load()
	leaf := expiryWarning("certificate", h.tls.Leaf, now, 7*24*time.Hour, CertificateLife-RenewAfter-7*24*time.Hour,
		"renew it: an issuer must be reachable", "give it a new one by hand, as docs/break-glass.md says")
	out := []Warning{leaf}
	for _, r := range h.roots {
		d := certificateDigest(r)
		out = append(out, expiryWarning(fmt.Sprintf("root %x", d[:4]), r, now, 90*24*time.Hour, 365*24*time.Hour,
			"rotate the CA: prepare, activate, retire", "make a new CA root, as docs/break-glass.md says"))
	}
	return out
}

func expiryWarning(what string, c *x509.Certificate, now time.Time, urgent, soon time.Duration, mend,
	rescue string) Warning {
	w := Warning{What: what, Ends: c.NotAfter, Left: c.NotAfter.Sub(now), Level: Fine}
	switch {
	case w.Left <= 0:
		w.Level, mend = Over, rescue
	case w.Left <= urgent:
		w.Level = Urgent
	case w.Left <= soon:
		w.Level = Soon
	default:
		w.Text = fmt.Sprintf("the %s holds until %s", what, formatMinute(w.Ends))
		return w
	}
	verb := "ends"
	if w.Level == Over {
		verb = "ended"
	}
	w.Text = fmt.Sprintf("the %s %s on %s; %s", what, verb, formatMinute(w.Ends), mend)
	return w
}
