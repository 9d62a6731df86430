package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/node/nodetest"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/store/catalog"
	"github.com/soukhq/souk/store/journal/mem"
	"github.com/soukhq/souk/worker"
)

// TestFillFirstFillsOneWorkerBeforeTheNext runs the scheduler against a real gateway and real workers: one worker is filled before the next.
func TestFillFirstFillsOneWorkerBeforeTheNext(t *testing.T) {
	rows, err := catalog.Open(mem.New(), filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	picture, workers := fleet.New(), map[cluster.WorkerID]find.Worker{}
	for i, id := range []cluster.WorkerID{"w1", "w2", "w3"} {
		own := picture.Own(id)
		w, err := worker.New(ctx, worker.Options{ID: id, Observer: own, Region: "local", Dir: t.TempDir(),
			Journal: mem.New(), Runtime: fake.New(fake.Options{}),
			Capacity: cluster.Resources{CPU: 4000, Memory: int64(512 * (i + 1)), Disk: 1 << 20, Ports: 10}})
		if err != nil {
			t.Fatal(err)
		}
		if err := own.Begin(ctx, w); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		workers[id] = w
	}
	directory := &find.Directory{Fleet: picture, Apps: rows.Apps,
		Worker: func(id cluster.WorkerID) (find.Worker, bool) {
			w, there := workers[id]
			return w, there
		}}
	addr := "http://" + nodetest.Serve(t, directory, rows, "secret")
	if _, err := client.New(addr, "secret").CreateApp(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(ctx, &out, addr, "secret", "a", 12, []string{"/bin/sleep", "60"}); err != nil {
		t.Fatal(err)
	}
	var order []string
	for line := range strings.Lines(out.String()) {
		order = append(order, strings.TrimSpace(line[strings.LastIndex(line, " "):]))
	}
	// 256 MiB each: two fit on w1, four on w2, six on w3.
	if got := strings.Join(order, " "); got != "w1 w1 w2 w2 w2 w2 w3 w3 w3 w3 w3 w3" {
		t.Errorf("placed on %s", got)
	}
	err = run(ctx, &out, addr, "secret", "a", 1, []string{"/bin/sleep", "60"})
	if err == nil || !strings.Contains(err.Error(), "memory: wanted 256 MiB, had 0 MiB free of 512 MiB") {
		t.Errorf("a full fleet says %v", err)
	}
}
