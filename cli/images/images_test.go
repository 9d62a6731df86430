package images_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cli/images"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/node/nodetest"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/runtime/image"
	"github.com/soukhq/souk/runtime/image/imagetest"
	"github.com/soukhq/souk/runtime/image/remote"
	"github.com/soukhq/souk/store/catalog"
	"github.com/soukhq/souk/store/journal/mem"
	"github.com/soukhq/souk/worker"
)

func TestMain(m *testing.M) {
	// an HTTP server waits half a second for who has not sent all before it closes
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// town is a souk with workers that keep images, on a real socket.
type town struct {
	t      *testing.T
	addr   string
	stores map[string]*image.Store
}

// newTown makes one whose workers keep images where it is said: the same place is one store, and "" is none.
func newTown(t *testing.T, places map[string]string) *town {
	w := &town{t: t, stores: map[string]*image.Store{}}
	rows := must(catalog.Open(mem.New(), filepath.Join(t.TempDir(), "key")))(t)
	f, all := fleet.New(), map[cluster.WorkerID]find.Worker{}
	for id, place := range places {
		if w.stores[place] == nil && place != "" {
			atOnce := func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
			w.stores[place] = must(image.Open(image.Options{Dir: filepath.Join(t.TempDir(), place),
				Remote: remote.Options{Wait: atOnce}}))(t)
			t.Cleanup(func() { _ = w.stores[place].Close() })
		}
		own := f.Own(cluster.WorkerID(id))
		k := must(worker.New(t.Context(), worker.Options{ID: cluster.WorkerID(id), Region: "local", Dir: t.TempDir(),
			Capacity: cluster.Resources{CPU: 1000, Memory: 1000}, Journal: mem.New(), Runtime: fake.New(fake.Options{}),
			Observer: own, Images: w.stores[place]}))(t)
		if err := own.Begin(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()
		t.Cleanup(func() { cancel(); <-done })
		all[k.ID()] = k
	}
	directory := &find.Directory{Fleet: f, Apps: rows.Apps, Worker: func(id cluster.WorkerID) (find.Worker, bool) {
		k, is := all[id]
		return k, is
	}}
	w.addr = nodetest.Serve(t, directory, rows, "t")
	return w
}

var (
	tookTime = regexp.MustCompile(`in \d+\.\d s`)
	address  = regexp.MustCompile(`127\.0\.0\.1:\d+`)
)

// souk runs "souk image ..." and returns its code and what it said, stderr behind stdout.
func (w *town) souk(in io.Reader, argv ...string) (code int, out, errs string) {
	w.t.Helper()
	var o, e bytes.Buffer
	env := map[string]string{"SOUK_ADDR": w.addr, "SOUK_TOKEN": "t"}
	c := &cli.Env{In: in, Out: &o, Err: &e, Getenv: func(k string) string { return env[k] }}
	root := c.NewRoot()
	root.AddCommand(images.Images(c))
	code = c.Run(w.t.Context(), root, append([]string{"image"}, argv...))
	clean := func(b *bytes.Buffer) string {
		return address.ReplaceAllString(tookTime.ReplaceAllString(b.String(), "in 0.0 s"), "@")
	}
	return code, clean(&o), clean(&e)
}

// says runs a command line that must end with a code and say something.
func (w *town) says(code int, what string, argv ...string) {
	w.t.Helper()
	got, out, errs := w.souk(strings.NewReader(""), argv...)
	if got != code || !strings.Contains(out+errs, what) {
		w.t.Errorf("souk image %s ends with %d, not %d, and does not say %q:\n%s%s", strings.Join(argv, " "), got, code,
			what, out, errs)
	}
}

func anImage(t *testing.T, text string) *imagetest.Image {
	return imagetest.Build(t, imagetest.Spec{
		Layers: [][]byte{imagetest.Tar(t, imagetest.File{Name: "a", Body: text})}})
}

func writeFile(t *testing.T, path string, raw []byte) string {
	t.Helper()
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestImageCommandsDefaultToTheOnlyWorker: where there is one, none need be named.
func TestImageCommandsDefaultToTheOnlyWorker(t *testing.T) {
	w := newTown(t, map[string]string{"w1": "one"})
	from := imagetest.NewRegistry(t)
	name := from.Push(t, "team/app:1", anImage(t, "one"))
	w.says(0, "NAME  DIGEST", "ls")
	w.says(0, "@/team/app:1 is at w1 (", "pull", name)
	w.says(0, "all of its 3 KB were there", "pull", name)
	w.says(0, "@/team/app:1 is at 1 of 1 worker\n", "prefetch", name)
	file := writeFile(t, filepath.Join(t.TempDir(), "x.tar"), anImage(t, "two").DockerArchive(t, "tool:2"))
	w.says(0, "tool:2 is at w1 (", "load", file)
	dir := filepath.Join(t.TempDir(), "layout")
	third := anImage(t, "three")
	third.LayoutDir(t, dir, "tool:3")
	w.says(0, "tool:3 is at w1 ("+strings.TrimPrefix(third.Digest(), "sha256:")[:12]+")", "load", dir)
	raw := bytes.NewReader(anImage(t, "four").DockerArchive(t, "tool:4"))
	if code, out, errs := w.souk(raw, "load", "-"); code != 0 || !strings.HasPrefix(out, "tool:4 is at w1 (") {
		t.Errorf("a load from stdin ends with %d: %s%s", code, out, errs)
	}
	for _, x := range []string{"tool:2 ", "tool:3 ", "tool:4 ", "@/team/app:1 ", "  0         w1\n"} {
		w.says(0, x, "ls")
	}

	if err := w.stores["one"].Pin(t.Context(), "tool:2", "d891275c2e5118"); err != nil {
		t.Fatal(err)
	}
	w.says(65, "is in use by d891275c2e5118", "rm", "tool:2")
	w.says(0, "tool:3 is removed at w1: ", "rm", "tool:3")
	w.says(66, "has the image tool:3", "rm", "tool:3")
	w.says(66, "has the image nothing", "rm", "tool:4", "nothing")
	w.says(2, "1 image of 3 KB, which no machine needs, would be removed; say --yes", "prune")
	w.says(0, "w1: ", "prune", "--yes")
	w.says(0, "tool:2 ", "ls")
	if _, out, _ := w.souk(strings.NewReader(""), "ls"); strings.Count(out, "\n") != 2 {
		t.Errorf("after a prune there are\n%s", out)
	}
}

// TestImageCommandsNeedAWorkerWhenStoresDiffer: those that share are one; of others it must be said which, and one that fails does not keep the
// others from it.
func TestImageCommandsNeedAWorkerWhenStoresDiffer(t *testing.T) {
	shared := newTown(t, map[string]string{"w1": "one", "w2": "one"})
	from := imagetest.NewRegistry(t)
	name := from.Push(t, "team/app:1", anImage(t, "one"))
	shared.says(0, "is at w1, w2 (", "pull", name)
	shared.says(0, " all 2\n", "ls")
	shared.says(0, "is at 2 of 2 workers", "prefetch", name)
	shared.says(0, "is removed at w1, w2: ", "rm", name)

	w := newTown(t, map[string]string{"w1": "one", "w2": "two", "w3": "three", "w4": ""})
	w.says(2, "3 workers keep images of their own (w1, w2, w3); say at which with --worker, or pull at all of them: "+
		"souk image prefetch @/team/app:1", "pull", name)
	file := writeFile(t, filepath.Join(t.TempDir(), "x.tar"), anImage(t, "two").DockerArchive(t, "tool:2"))
	w.says(2, "say at which with --worker\n", "load", file)
	w.says(0, "is at w2 (", "pull", name, "--worker", "w2")
	w.says(0, "tool:2 is at w3 (", "load", file, "--worker", "w3")
	w.says(65, "worker w4 keeps no images", "pull", name, "--worker", "w4")
	w.says(66, "there is no worker w9", "pull", name, "--worker", "w9")
	w.says(66, "there is no worker w9", "ls", "--worker", "w9")
	w.says(65, "worker w4 keeps no images", "ls", "--worker", "w4")
	w.says(0, "souk: worker w4 keeps no images", "ls")
	w.says(0, "is at 3 of 3 workers", "prefetch", name)
	w.says(0, "w2: all of its 3 KB were there", "prefetch", name, "--worker", "w1,w2")
	if _, out, _ := w.souk(strings.NewReader(""), "ls"); !strings.Contains(out, "3 of 4\n") && !strings.Contains(out,
		"all 3\n") {
		t.Errorf("three workers have it:\n%s", out)
	}

	var list api.ImageList
	_, out, _ := w.souk(strings.NewReader(""), "--json", "ls")
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Stores) != 3 || len(list.Without) != 1 {
		t.Errorf("%v in %s", err, out)
	}
	digest := list.Stores[0].Images[0].Digest
	w.says(0, "w2: ", "prune", "--worker", "w2", "--yes")
	w.says(0, digest[7:19]+" is removed at w3: ", "rm", digest[7:19], "--worker", "w3")
	w.says(66, "has the image", "rm", digest, "--worker", "w3")
	w.says(0, " is removed at w1: ", "rm", digest)

	from.Misbehave(imagetest.Fault{Path: "/v2/", Status: 403, Times: 1})
	code, out, errs := w.souk(strings.NewReader(""), "--json", "prefetch", name)
	var all []struct {
		Workers       []string
		Digest, Error string
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 3 || code != 77 ||
		!strings.Contains(errs, `"exit":77`) {
		t.Fatalf("code %d, %v in %s%s", code, err, out, errs)
	}
	good := 0
	for _, x := range all {
		if x.Digest == digest && x.Error == "" {
			good++
		} else if x.Error == "" {
			t.Errorf("neither an image nor an error: %+v", x)
		}
	}
	if good != 2 {
		t.Errorf("%d of 3 have it: %s", good, out)
	}
}

// TestFailedImagePullHasSentenceAndExitCode: each failed pull ends with one sentence, and with the exit code of its kind.
func TestFailedImagePullHasSentenceAndExitCode(t *testing.T) {
	w := newTown(t, map[string]string{"w1": "one"})
	from := imagetest.NewRegistry(t)
	one := anImage(t, "one")
	name := from.Push(t, "team/app:1", one)
	dir := t.TempDir()
	w.says(2, "is not the name of an image", "pull", "NGINX")
	w.says(2, "souk/host is no image", "prefetch", "souk/host")
	w.says(69, "cannot be reached", "pull", "127.0.0.1:1/x:1")
	w.says(66, "does not have the image", "pull", from.Host+"/team/app:2")
	w.says(66, "there is no file", "load", filepath.Join(dir, "nothing.tar"))
	w.says(78, "is it an image?", "load", writeFile(t, filepath.Join(dir, "short"), nil))
	w.says(78, "has no index.json", "load", dir)
	words := []byte(strings.Repeat("some words ", 99))
	w.says(78, "words is no archive", "load", writeFile(t, filepath.Join(dir, "words"), words))
	w.says(78, "neither a file nor a directory", "load", "/dev/null")
	cut := one.DockerArchive(t, "x:1")
	w.says(78, "breaks off or is damaged", "load", writeFile(t, filepath.Join(dir, "cut"), cut[:len(cut)/2]))
	from.Misbehave(imagetest.Fault{Path: "/v2/", Status: 401, Times: 4})
	w.says(77, "wants credentials", "pull", name)
	from.Behave()
	from.Misbehave(imagetest.Fault{Path: "/manifests/", Wrong: true})
	w.says(78, "sent another manifest", "pull", from.Host+"/team/app@"+one.Digest())
	from.Behave()
	none := newTown(t, map[string]string{"w1": ""})
	for _, argv := range [][]string{{"ls"}, {"pull", name}, {"prefetch", name}, {"rm", name}, {"prune"}} {
		none.says(65, "worker w1 keeps no images, because its souk cannot run containers", argv...)
	}
}

// TestInvalidImageUploadIsRefusedEarly: what is wrong is heard although most of the file was never sent.
func TestInvalidImageUploadIsRefusedEarly(t *testing.T) {
	w := newTown(t, map[string]string{"w1": "one"})
	code, _, errs := w.souk(io.LimitReader(zeros{}, 4<<30), "load", "-")
	if code != 78 || !strings.Contains(errs, "what came in on stdin is no archive") {
		t.Errorf("code %d: %s", code, errs)
	}
	var b bytes.Buffer
	a := tar.NewWriter(&b)
	for n := range 10 {
		if err := a.WriteHeader(&tar.Header{Name: fmt.Sprint(n), Size: 3, Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(a, "abc"); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	w.says(78, "is it an image?", "load", writeFile(t, filepath.Join(t.TempDir(), "x.tar"), b.Bytes()))
}

type zeros struct{}

// Read reads zeros, with something in front that is no tar.
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	if len(p) > 0 {
		p[0] = 'x'
	}
	return len(p), nil
}
