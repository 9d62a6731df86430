package imagetest

import (
	"archive/tar"
	"os"
	"os/exec"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/soukhq/souk/internal/needs"
)

// Busybox makes an image of the host's static busybox, with all of its commands in /bin, and of more files. If the host
// has no busybox, the test is skipped, or fails in CI.
func Busybox(t testing.TB, more ...File) *Image {
	t.Helper()
	return BusyboxOf(t, v1.Config{}, more...)
}

// BusyboxOf is Busybox with a config, to which it adds PATH.
func BusyboxOf(t testing.TB, config v1.Config, more ...File) *Image {
	t.Helper()
	needs.Programs(t, "busybox")
	path, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	names, err := exec.Command(path, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	files := []File{Dir("bin"), Dir("etc"), {Name: "bin/busybox", Body: string(program), Mode: 0o755}}
	for _, name := range strings.Fields(string(names)) {
		if name != "busybox" {
			files = append(files, File{Name: "bin/" + name, Type: tar.TypeSymlink, Link: "busybox"})
		}
	}
	config.Env = append(config.Env, "PATH=/bin")
	return Build(t, Spec{Compression: "gzip", Config: config,
		Layers: [][]byte{Tar(t, append(files, more...)...)}})
}
