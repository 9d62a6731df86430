package image_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/image"
	"github.com/soukhq/souk/runtime/image/imagetest"
	"github.com/soukhq/souk/runtime/image/remote"
)

// open opens a store with a registry client that does not wait between attempts.
func open(t testing.TB, dir string, change ...func(*image.Options)) *image.Store {
	t.Helper()
	o := image.Options{Dir: dir, Remote: remote.Options{Idle: 10 * time.Second,
		Wait: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}}
	for _, c := range change {
		c(&o)
	}
	s, err := image.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// small is an image of two layers.
func small(t testing.TB, compression string) *imagetest.Image {
	t.Helper()
	return imagetest.Build(t, imagetest.Spec{Compression: compression,
		Layers: [][]byte{
			imagetest.Tar(t, imagetest.Dir("etc"), imagetest.File{Name: "etc/a", Body: strings.Repeat("a", 300_000)}),
			imagetest.Tar(t, imagetest.File{Name: "etc/b", Body: "b"}, imagetest.File{Name: "etc/.wh.a"}),
		},
		Config: v1.Config{Entrypoint: []string{"/run"}, Cmd: []string{"-v"}, Env: []string{"A=1"}, User: "7:8",
			WorkingDir: "/w", StopSignal: "SIGINT", ExposedPorts: map[string]struct{}{"80/tcp": {}, "53/udp": {}}}})
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

var changing = regexp.MustCompile(`127\.0\.0\.1:\d+|/tmp/\S*?/(\d{3})\b`)

// wantFault wants an error of a kind whose text, without addresses and directories, is golden.
func wantFault(t *testing.T, err error, kind fault.Kind, golden string) {
	t.Helper()
	if !fault.Is(err, kind) {
		t.Fatalf("want an error of the kind %s, got %v (%s)", kind, err, fault.KindOf(err))
	}
	got := changing.ReplaceAllString(fault.As(err).Text, "@")
	if got != golden {
		t.Errorf("the error says\n\t%s\nand should say\n\t%s", got, golden)
	}
}

// leftovers lists the files of a store that stand for something under way.
func leftovers(t *testing.T, dir string) (all []string) {
	t.Helper()
	for _, d := range []string{"tmp", "leases", "locks", "partial"} {
		entries, err := os.ReadDir(filepath.Join(dir, d))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			all = append(all, d+"/"+e.Name())
		}
	}
	return all
}

func hashString(raw []byte) string {
	sum := sha256.Sum256(raw)
	return "sha256:" + hex.EncodeToString(sum[:])
}
