package gateway

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
	"github.com/soukhq/souk/store/journal/mem"
)

// TestLargeFleetIsPlacedByTheIndex: over a thousand workers a launch is decided by the index. It goes where the plan
// said; a machine that only one worker can take is placed; one that none can take is explained from all of them.
func TestLargeFleetIsPlacedByTheIndex(t *testing.T) {
	var workers []*memWorker
	for i := range 1000 {
		w := newMemWorker(cluster.WorkerID(fmt.Sprintf("w%04d", i)), "local",
			cluster.Resources{CPU: 4000, Memory: 4096 + int64(i), Disk: 1 << 20, Ports: 100})
		if i == 700 {
			w = newMemWorker(cluster.WorkerID("large"), "local",
				cluster.Resources{CPU: 4000, Memory: 12288, Disk: 1 << 20, Ports: 100})
		}
		workers = append(workers, w)
	}
	catalog, err := catalog.Open(mem.New(), filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := catalog.Apps.CreateApp("a", "", "", ""); err != nil {
		t.Fatal(err)
	}
	f, handle := fleetOf(directly, workers...)
	g, err := New(withBroker(t, Options{Directory: &find.Directory{Fleet: f, Worker: handle, Apps: catalog.Apps},
		Catalog: catalog, Token: testToken}))
	if err != nil {
		t.Fatal(err)
	}
	post := func(path, body string, into any) (int, string) {
		req := httptest.NewRequest("POST", path, strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer "+testToken)
		rec := httptest.NewRecorder()
		g.Handler().ServeHTTP(rec, req)
		if into != nil {
			if err := json.Unmarshal(rec.Body.Bytes(), into); rec.Code != 200 || err != nil {
				t.Fatalf("%s: %d %s %v", path, rec.Code, rec.Body, err)
			}
		}
		return rec.Code, rec.Body.String()
	}
	for k := range 20 {
		body := fmt.Sprintf(`{"id":"%014x","config":{"image":"souk/host","guest":{"cpus":1,"memory_mb":%d},"init":{"exec":["/bin/sleep","60"]}}}`, 1+k, 256*(1+k%4))
		var p api.Plan
		post("/v1/souk/apps/a/plan", body, &p)
		var m machine.Machine
		post("/v1/apps/a/machines", body, &m)
		if p.Worker == "" || p.Worker != m.Worker {
			t.Fatalf("machine %d: the plan said %s, and it is on %s", k, p.Worker, m.Worker)
		}
		if d := p.Decision; d.Workers != 1000 || d.Candidates == 0 || d.Candidates > market.MaxAsked ||
			!strings.Contains(d.Reason, "of 1000 workers") {
			t.Fatalf("%d candidates of %d workers: %s", d.Candidates, d.Workers, d.Reason)
		}
	}
	var m machine.Machine
	post("/v1/apps/a/machines",
		`{"config":{"image":"souk/host","guest":{"cpus":8,"memory_mb":8192},"init":{"exec":["/bin/sleep","60"]}}}`, &m)
	if m.Worker != "large" {
		t.Errorf("it is on %s, which cannot hold it", m.Worker)
	}
	code, no := post("/v1/apps/a/machines",
		`{"config":{"image":"souk/host","guest":{"cpus":8,"memory_mb":16384},"init":{"exec":["/bin/sleep","60"]}}}`,
		nil)
	if code < 400 || !strings.Contains(no, "1000 of 1000 workers") {
		t.Errorf("%d %s", code, no)
	}

	var all sync.WaitGroup // many at once share the index
	for range 8 {
		all.Go(func() {
			for range 5 {
				if code, text := post("/v1/apps/a/machines", hostLaunch, nil); code != 200 {
					t.Errorf("%d %s", code, text)
				}
			}
		})
	}
	all.Wait()
}
