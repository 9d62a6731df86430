package node

import (
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
)

// TestDoctorReportsMissingCertificates: doctor names the first of the certificates that are lacking, and counts the others.
func TestDoctorReportsMissingCertificates(t *testing.T) {
	if f := certFindings(nil); len(f) != 0 {
		t.Errorf("%+v", f)
	}
	ends := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	list := []api.CertificateProblem{
		{Names: []string{"a.example"}, Why: "no"},
		{Names: []string{"b.example"}, Why: "no", Ends: &ends},
		{File: "/c/x.crt", Why: "bad"},
		{Names: []string{"d.example"}, Why: "no"},
		{Names: []string{"e.example"}, Why: "no"},
	}
	f := certFindings(list)
	want := "a.example: no; b.example (what there is ends 2026-01-02T03:04:05Z): no; /c/x.crt: bad; and 2 more"
	if len(f) != 1 || f[0].OK || !strings.HasSuffix(f[0].Have, want) {
		t.Errorf("%+v", f)
	}
}
