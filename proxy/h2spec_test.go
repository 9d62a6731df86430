package proxy_test

import (
	"crypto/tls"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/soukhq/souk/machine"
)

// goFails are the cases of h2spec that Go's own net/http does not pass.
var goFails = map[string]string{
	"Sends invalid connection preface": "" +
		"in the clear it is taken for HTTP/1.1 and answered as such, with 400",
	"Sends a large size HEADERS frame that exceeds the SETTINGS_MAX_FRAME_SIZE": "" +
		"it announces 1 MiB, and the case goes by the default",
	"Sends multiple values of SETTINGS_INITIAL_WINDOW_SIZE": "" +
		"a setting that comes twice in one frame ends the connection",
	"Sends a HEADERS frame that contains the connection-specific header field": "" +
		"it is answered with 400, as RFC 9113, 8.1.1 allows",
	"Sends a HEADERS frame that contains the TE header field with any value other than \"trailers\"": "likewise",
}

// TestH2specConformanceHolds runs the conformance tests of summerwind/h2spec against the door, in the clear and over TLS.
func TestH2specConformanceHolds(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "h2spec")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "github.com/summerwind/h2spec/cmd/h2spec")
	build.Dir = filepath.Join("testdata", "h2spec")
	if out, err := build.CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("h2spec cannot be built: %v\n%s", err, out)
		}
		t.Skipf("h2spec cannot be built here, which needs its module: %v", err)
	}
	r := newRig(t, nil)
	r.host.add("shop", "m1", machine.Started, httpService(func(s *machine.Service) {
		s.Hosts = []string{"127.0.0.1"} // by which it asks
	}), says("m1"))
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	conf := &tls.Config{Certificates: s.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}
	s.Close()
	ln := listen(t)
	go func() { _ = r.proxy.ServeHTTPAt(r.ctx, ln, conf) }()
	for name, args := range map[string][]string{"clear": {r.addr}, "TLS": {ln.Addr().String(), "-t", "-k"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits, most of the time
			host, port, _ := net.SplitHostPort(args[0])
			out, err := exec.CommandContext(t.Context(), bin, append([]string{"http2", "generic", "hpack", "-h",
				host, "-p",
				port, "-o", "3"}, args[1:]...)...).
				CombinedOutput()
			sum := regexp.MustCompile(`(?m)^(\d+) tests, (\d+) passed`).FindSubmatch(out)
			if sum == nil {
				t.Fatalf("%v: %s", err, out)
			}
			t.Logf("%s", sum[0])
			for _, m := range regexp.MustCompile(`(?m)^\s+× \d+: (.+)$`).FindAllSubmatch(out, -1) {
				if goFails[string(m[1])] == "" {
					t.Errorf("it fails: %s", m[1])
				}
			}
		})
	}
}
