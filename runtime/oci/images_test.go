package oci_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/image"
	"github.com/soukhq/souk/runtime/image/imagetest"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/runtime/process"
)

// program tells what it finds, as the first and only program of an image.
const program = `package main

import (
	"fmt"
	"os"
)

func main() {
	dir, _ := os.Getwd()
	b, err := os.ReadFile("greeting")
	_, gone := os.Stat("/gone")
	host, _ := os.Hostname()
	fmt.Println(os.Args[1:], os.Getuid(), os.Getgid(), dir, os.Getenv("FROM"), os.Getenv("BOTH"), host)
	fmt.Printf("%s %v %v\n", b, err, os.IsNotExist(gone))
	fmt.Println(os.WriteFile("/tmp/x", nil, 0o600), os.WriteFile("/greeting", nil, 0o600) != nil)
}
`

// TestPulledImageRunsAsConfigured: an image of two layers is pulled and run as it says, with its entrypoint, command, user,
// directory and environment; what a layer removes is not there. It is kept as long as a machine has it.
func TestPulledImageRunsAsConfigured(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("runc"); err != nil || os.Geteuid() != 0 {
		lacking(t, "root and runc (apt install runc)")
	}
	built := imagetest.Build(t, imagetest.Spec{
		Layers: [][]byte{
			imagetest.Tar(t, imagetest.Dir("bin"), imagetest.Dir("srv"), imagetest.Dir("proc"), imagetest.Dir("dev"),
				imagetest.Dir("sys"), imagetest.Dir("etc"),
				imagetest.File{Name: "tmp", Type: '5', Mode: 0o1777},
				imagetest.File{Name: "bin/tell", Body: string(imagetest.Program(t, program)), Mode: 0o755},
				imagetest.File{Name: "etc/passwd", Body: "web:x:33:34::/srv:/bin/sh\n"},
				imagetest.File{Name: "srv/greeting", Body: "old"}, imagetest.File{Name: "gone", Body: "x"}),
			imagetest.Tar(t, imagetest.File{Name: "srv/greeting", Body: "hello", UID: 33, GID: 34},
				imagetest.File{Name: ".wh.gone"}),
		},
		Compression: "gzip",
		Config: v1.Config{Entrypoint: []string{"tell"}, Cmd: []string{"by", "itself"}, User: "web", WorkingDir: "/srv",
			Env: []string{"PATH=/bin", "FROM=image", "BOTH=image"},
			Volumes: map[string]struct{}{"srv/data/": {}, "/x": {}, "/srv/data": {}, "/": {}, "/proc/1": {},
				"/a/../..": {}}},
	})
	registry := imagetest.NewRegistry(t)
	name := registry.Host + "/tell:1"
	registry.Push(t, "tell:1", built)
	store, err := image.Open(image.Options{Dir: filepath.Join(t.TempDir(), "images")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	r := of(t, store)
	pulled, err := r.Pull(t.Context(), "m", name)
	if err != nil || pulled.Digest != built.Digest() || !slices.Equal(pulled.Volumes, []string{"/srv/data", "/x"}) {
		t.Fatal(pulled, err)
	}
	if err := r.CanRun("no name: of one", ""); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
	for _, image := range []string{name, "souk/host"} {
		if err := r.CanRun(image, ""); err != nil {
			t.Error(err)
		}
	}
	ran := []string{"[by itself] 33 34 /srv image machine m", "hello <nil> true", "<nil> true"}
	for attempt, argv := range [][]string{nil, {"tell", "more"}} {
		s := runtime.Spec{Machine: "m", Attempt: uint64(attempt) + 1, Fresh: true, SwapMB: -1, Image: name, Argv: argv,
			Env: []string{"BOTH=machine"}}
		s.Resources.CPU, s.Resources.Memory = 1000, 64
		if _, err := r.Start(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		x := <-r.Exits()
		if err := r.Ack(t.Context(), "m", x.Attempt); err != nil || x.Code != 0 {
			t.Fatal(x, err)
		}
	}
	ran = append(ran, "[more] 33 34 /srv image machine m", ran[1], ran[2])
	if got := logOf(t, r, "m"); !slices.Equal(got, ran) {
		t.Errorf("it said %q, want %q", got, ran)
	}
	if _, err := store.Remove(t.Context(), name); !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.Precondition) {
		t.Errorf("an image that a machine has is removed: %v", err)
	}
	if err := r.Remove(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Remove(t.Context(), name); err != nil {
		t.Error(err)
	}
	if freed, err := store.Prune(context.WithoutCancel(t.Context()), nil); err != nil {
		t.Errorf("%d, %v", freed, err)
	}
}

// of is a runtime of its own for a test, of images of a store.
func of(t *testing.T, store *image.Store) *oci.Runtime {
	t.Helper()
	o := oci.Options{Images: oci.Stored{Store: store}, Process: process.Options{
		Dir: filepath.Join(t.TempDir(), "oci"), ReaperCommand: []string{os.Args[0]}}}
	t.Cleanup(func() { stopReaper(t, o) })
	r, err := oci.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func logOf(t *testing.T, r *oci.Runtime, id string) (out []string) {
	t.Helper()
	if err := r.Logs(t.Context(), id, machine.LogQuery{}, func(l machine.LogLine) error {
		out = append(out, l.Text)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// countedImages counts the machines whose pins were removed.
type countedImages struct {
	oci.Images
	released []string
}

func (c *countedImages) Release(ctx context.Context, machine string) error {
	c.released = append(c.released, machine)
	return c.Images.Release(ctx, machine)
}

// TestProgramOfTheHostReleasesNoImage: the pins of all machines are read to remove those of one, so they are not read for
// each task. One that has got an image since is released.
func TestProgramOfTheHostReleasesNoImage(t *testing.T) {
	t.Parallel()
	images := &countedImages{Images: busybox(t)}
	o := oci.Options{Images: images, Process: process.Options{Dir: filepath.Join(t.TempDir(), "oci"),
		ReaperCommand: []string{os.Args[0]}}}
	t.Cleanup(func() { stopReaper(t, o) })
	r, err := oci.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	for _, id := range []string{"task", "updated"} {
		s := runtime.Spec{Machine: id, Attempt: 1, Fresh: true, SwapMB: -1, Image: "souk/host", Argv: []string{"true"},
			Env: []string{"PATH=/usr/bin:/bin"}}
		s.Resources.CPU, s.Resources.Memory = 100, 64
		if _, err := r.Start(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if x := <-r.Exits(); x.Machine != id || x.Code != 0 {
			t.Fatalf("%+v", x)
		}
		if err := r.Ack(t.Context(), id, 1); err != nil {
			t.Fatal(err)
		}
		if id == "updated" {
			if _, err := r.Pull(t.Context(), id, "busybox"); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Remove(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(images.released, []string{"updated"}) {
		t.Errorf("the pins of %v were removed", images.released)
	}
}
