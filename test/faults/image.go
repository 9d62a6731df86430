package faults

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/oci"
)

// imageName is what the members know the image by.
const imageName = "busybox:faults"

// containerCommand returns a container's command. It shares no file with the harness, which finds it in /proc.
func containerCommand() []string { return []string{"/bin/sleep", "1000001"} }

// giveImage makes an image of the host's busybox, and loads it at all members.
func (r *run) giveImage(ctx context.Context) error {
	if r.o.Images == 0 {
		return nil
	}
	if err := oci.Able(oci.DefaultEngine); err != nil {
		return err
	}
	file := filepath.Join(r.o.Dir, "image.tar")
	if err := writeImage(file); err != nil {
		return fault.Wrap(err, fault.Internal, machine.CodeImage,
			"an image cannot be made of busybox, which must be static")
	}
	for _, m := range r.ms {
		if _, err := m.souk(ctx, "image", "load", file, "--worker", m.id); err != nil {
			return err
		}
	}
	return nil
}

// writeImage writes an archive as docker save does.
func writeImage(file string) error {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return packImage(file, imageName, map[string][]byte{"bin/sleep": program})
}

// packImage writes an archive as docker save does, of an image that has programs, by their paths.
func packImage(file, name string, programs map[string][]byte) error {
	var all []entry
	for _, path := range slices.Sorted(maps.Keys(programs)) {
		for dir := filepath.Dir(path); dir != "."; dir = filepath.Dir(dir) {
			all = append(all, entry{tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755}, nil})
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.head.Name, b.head.Name) })
	all = slices.CompactFunc(all, func(a, b entry) bool { return a.head.Name == b.head.Name })
	for _, path := range slices.Sorted(maps.Keys(programs)) {
		all = append(all, entry{tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: 0o755}, programs[path]})
	}
	layer, err := archive(all...)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(layer)
	config, err := json.Marshal(map[string]any{"os": "linux", "architecture": runtime.GOARCH,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}}})
	if err != nil {
		return err
	}
	list, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{name},
		"Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	whole, err := archive(entry{tar.Header{Name: "layer.tar", Typeflag: tar.TypeReg, Mode: 0o644}, layer},
		entry{tar.Header{Name: "config.json", Typeflag: tar.TypeReg, Mode: 0o644}, config},
		entry{tar.Header{Name: "manifest.json", Typeflag: tar.TypeReg, Mode: 0o644}, list})
	if err != nil {
		return err
	}
	return os.WriteFile(file, whole, 0o600)
}

type entry struct {
	head tar.Header
	body []byte
}

func archive(all ...entry) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range all {
		e.head.Size = int64(len(e.body))
		if err := w.WriteHeader(&e.head); err != nil {
			return nil, fmt.Errorf("%s: %w", e.head.Name, err)
		}
		if _, err := w.Write(e.body); err != nil {
			return nil, fmt.Errorf("%s: %w", e.head.Name, err)
		}
	}
	return b.Bytes(), w.Close()
}

// useImages gives the members the image, and watches what is made of it until seen is called.
func (r *run) useImages(ctx context.Context) (seen context.CancelFunc, err error) {
	if err := r.giveImage(ctx); err != nil {
		return nil, err
	}
	r.inside = &containers{seen: map[string]bool{}, began: map[string]string{}, said: map[string]bool{}}
	watching, seen := context.WithCancel(ctx)
	if r.o.Images > 0 {
		go r.inside.watch(watching)
	}
	return seen, nil
}
