package remote

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/soukhq/souk/fault"
)

// TestPlainHTTPRegistryErrorSuggestsTheFix: the error of one that has no TLS names what helps.
func TestPlainHTTPRegistryErrorSuggestsTheFix(t *testing.T) {
	t.Parallel()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	resp, err := http.Get("https" + strings.TrimPrefix(plain.URL, "http")) //nolint:noctx // it is refused at once
	if err == nil {
		_ = resp.Body.Close()
		t.Fatal("it answers")
	}
	q := question{endpoint: endpoint{name: "hub.example:5000"}, what: "x:1"}
	err = new(Client).brokenError(t.Context(), t.Context(), q, err)
	if fault.CodeOf(err) != "registry_plain" || !strings.Contains(err.Error(),
		"--mirror hub.example:5000=http://hub.example:5000") {
		t.Error(err)
	}
}
