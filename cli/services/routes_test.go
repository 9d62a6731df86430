package services

import (
	"testing"
	"time"

	"github.com/soukhq/souk/api"
)

// TestCertificateTextNamesProblemAndNextStep: what is wrong with a certificate, and what comes next.
func TestCertificateTextNamesProblemAndNextStep(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	soon, past := now.Add(90*time.Second), now.Add(-time.Second)
	names := []string{"shop.example.com"}
	for want, p := range map[string]api.CertificateProblem{
		"no certificate was got for shop.example.com: no; it is tried again in 1m30s at the earliest, for a client " +
			"that asks": {Names: names, Source: "acme", Why: "no", Again: &soon},
		"no newer certificate was got for shop.example.com, whose own ends on 2026-01-02T03:05:35Z: no; it is tried " +
			"again for the next client that asks": {Names: names, Source: "acme", Why: "no", Again: &past, Ends: &soon},
		"the certificate of shop.example.com in /c/shop.crt was not read again: no": {
			Names: names, Source: "file", File: "/c/shop.crt", Why: "no", Ends: &soon},
	} {
		if got := certificateText(&p, now); got != want {
			t.Errorf("%s\nnot\n%s", got, want)
		}
	}
}
