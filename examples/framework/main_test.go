package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// TestFrameworkDeclinesOffersUntilItLosesPatience runs the framework against a real gateway and real workers. Two tasks fit on
// the worker that it likes. For the others it declines the offers of the other worker, and takes three of them once it has
// waited long enough: all the room is there, so no declined offer is held any more.
func TestFrameworkDeclinesOffersUntilItLosesPatience(t *testing.T) {
	f, out := serve(t, map[cluster.WorkerID]int64{"w1": 3, "w2": 2})
	if err := f.run(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	var order []string
	for line := range strings.Lines(out.String()) {
		order = append(order, strings.TrimSpace(line[strings.LastIndex(line, " "):]))
	}
	if got := strings.Join(order, " "); got != "w2 w2 w1 w1 w1" {
		t.Errorf("placed on %s", got)
	}
	if len(f.declined) != 1 || f.declined["w1"].IsZero() {
		t.Errorf("declined %v", f.declined)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := f.run(ctx, 1); err == nil {
		t.Error("a full fleet took a sixth task")
	}
}

// serve serves workers with room for so many tasks, w1 in zone a and the others in zone b, to a framework that likes zone b.
func serve(t *testing.T, tasks map[cluster.WorkerID]int64) (*framework, *bytes.Buffer) {
	t.Helper()
	rows, err := catalog.Open(mem.New(), filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context() // it ends before what Cleanup waits for
	picture, workers := fleet.New(), map[cluster.WorkerID]find.Worker{}
	for id, n := range tasks {
		own, zone := picture.Own(id), "b"
		if id == "w1" {
			zone = "a"
		}
		w, err := worker.New(ctx, worker.Options{ID: id, Observer: own, Region: "local", Dir: t.TempDir(),
			Journal: mem.New(), Runtime: fake.New(fake.Options{}),
			Offer:    worker.Offer{Attributes: cluster.Attributes{"zone": cluster.Text(zone)}},
			Capacity: cluster.Resources{CPU: 8000, Memory: 256 * n, Disk: 1 << 20, Ports: 10}})
		if err != nil {
			t.Fatal(err)
		}
		if err := own.Begin(ctx, w); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		t.Cleanup(func() {
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
	c := client.New("http://"+nodetest.Serve(t, directory, rows, "secret"), "secret")
	if _, err := c.CreateApp(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	near, err := cluster.ParseRequirement("zone == b")
	if err != nil {
		t.Fatal(err)
	}
	out := &bytes.Buffer{}
	return &framework{client: c, out: out, app: "a", argv: []string{"/bin/sleep", "60"}, near: near,
		patience: 200 * time.Millisecond, filter: 20 * time.Millisecond}, out
}
