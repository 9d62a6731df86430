package imagetest

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/needs"
)

// Process is a registry in a separate process: Debian's docker-registry.
type Process struct {
	Host string
	End  func() // ends it
}

// processPatience bounds the start of the registry.
const processPatience = 20 * time.Second

// NewProcess starts an empty registry, which ends with the test. If the program is missing, the test is skipped, or
// fails in CI.
func NewProcess(t testing.TB) *Process {
	t.Helper()
	needs.Programs(t, "docker-registry")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{Host: free.Addr().String()}
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yml")
	text := fmt.Sprintf("version: 0.1\nlog: {level: error}\n"+
		"storage: {filesystem: {rootdirectory: %s}}\nhttp: {addr: %q}\n", filepath.Join(dir, "data"), p.Host)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("docker-registry", "serve", file)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.End = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // fails: the process was killed
	})
	t.Cleanup(p.End)
	end := time.NewTimer(processPatience)
	defer end.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := http.Get("http://" + p.Host + "/v2/") //nolint:noctx // the loop is bounded
		if err == nil {
			_ = r.Body.Close()
			return p
		}
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatalf("docker-registry does not answer: %v\n%s", err, said.String())
		}
	}
}

// Push uploads an image as "repository:tag", and returns its full name.
func (p *Process) Push(t testing.TB, ref string, i *Image) string {
	t.Helper()
	repository, tag, _ := strings.Cut(ref, ":")
	at := "http://" + p.Host + "/v2/" + repository
	for digest, raw := range i.Blobs {
		to, err := url.Parse(p.call(t, http.MethodPost, at+"/blobs/uploads/", nil, "", http.StatusAccepted))
		if err != nil {
			t.Fatal(err)
		}
		q := to.Query()
		q.Set("digest", digest)
		to.RawQuery = q.Encode()
		p.call(t, http.MethodPut, to.String(), raw, "application/octet-stream", http.StatusCreated)
	}
	p.call(t, http.MethodPut, at+"/manifests/"+tag, i.Manifest, "application/vnd.oci.image.manifest.v1+json",
		http.StatusCreated)
	return p.Host + "/" + ref
}

// call sends a request, fails the test unless the answer has the status want, and returns the answer's Location.
func (p *Process) call(t testing.TB, method, to string, raw []byte, kind string, want int) string {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, to, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	if kind != "" {
		q.Header.Set("Content-Type", kind)
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if said, err := io.ReadAll(r.Body); err != nil || r.StatusCode != want {
		t.Fatalf("%s %s: %s %s %v", method, to, r.Status, said, err)
	}
	return r.Header.Get("Location")
}
