package gateway

import (
	"strings"
	"testing"

	"github.com/soukhq/souk/api"
)

type stubCerts []api.CertificateProblem

func (s stubCerts) Problems() []api.CertificateProblem { return s }
func (s stubCerts) Failures() uint64                   { return 7 }

// TestRouteStatusExplainsAMissingCertificate: a route whose name has no certificate here says why, by its own name and below a domain.
func TestRouteStatusExplainsAMissingCertificate(t *testing.T) {
	a := &servicesAPI{certs: stubCerts{
		{Names: []string{"shop.example.com"}, Source: "acme", Why: "the CAA record forbids it"},
		{Names: []string{"www.example.org", "example.org"}, Source: "file", Why: "it has ended"}}}
	routes := []*api.RouteInfo{{Host: "shop"}, {Host: "example.org"}, {Host: "fine"}, {Port: 5432}}
	a.tellCertificates(routes, []string{"localhost", "example.com"})
	var got []string
	for _, r := range routes {
		why := "-"
		if r.Certificate != nil {
			why = r.Certificate.Why
		}
		got = append(got, why)
	}
	if text := strings.Join(got, "; "); text != "the CAA record forbids it; it has ended; -; -" {
		t.Error(text)
	}
}
