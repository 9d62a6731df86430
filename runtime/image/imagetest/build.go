// Package imagetest makes images from files in memory, writes them in all supported formats, and serves them from a
// registry that can be made to fail.
package imagetest

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// File is one entry of a layer. Type is as in a tar; 0 is a regular file.
type File struct {
	Name, Body, Link string
	Type             byte
	Mode             int64 // 0: 0644, or 0755 for a directory
	UID, GID         int
	Time             time.Time
	Xattrs           map[string]string
	Size             int64 // bytes of a file of zeros, instead of Body
}

// Dir returns a directory's entry.
func Dir(name string) File { return File{Name: name, Type: tar.TypeDir} }

// Tar returns a layer's tar.
func Tar(t testing.TB, files ...File) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.Name, Linkname: f.Link, Typeflag: f.Type, Mode: f.Mode, Uid: f.UID, Gid: f.GID,
			Size: int64(len(f.Body)), ModTime: f.Time, Format: tar.FormatPAX}
		if f.Type == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o644
			if f.Type == tar.TypeDir {
				h.Mode = 0o755
			}
		}
		if h.ModTime.IsZero() {
			h.ModTime = time.Unix(1_700_000_000, 0)
		}
		body := []byte(f.Body)
		if f.Size > 0 {
			h.Size, body = f.Size, make([]byte, f.Size)
		}
		for k, v := range f.Xattrs {
			if h.PAXRecords == nil {
				h.PAXRecords = map[string]string{}
			}
			h.PAXRecords["SCHILY.xattr."+k] = v
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// compressed compresses a layer's tar as a Spec's Compression says.
func compressed(t testing.TB, raw []byte, how string) ([]byte, types.MediaType) {
	t.Helper()
	var b bytes.Buffer
	switch how {
	case "gzip":
		w := gzip.NewWriter(&b)
		if _, err := w.Write(raw); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes(), types.OCILayer
	case "zstd", DockerZstd:
		w, err := zstd.NewWriter(&b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(raw); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if how == DockerZstd {
			return b.Bytes(), "application/vnd.docker.image.rootfs.diff.tar.zstd"
		}
		return b.Bytes(), types.OCILayerZStd
	}
	return raw, types.OCIUncompressedLayer
}

// DockerZstd is the Compression of a zstd layer with docker's media type, as buildx writes it.
const DockerZstd = "docker+zstd"

// Spec describes an image to build.
type Spec struct {
	Layers      [][]byte // tars
	Compression string   // "", "gzip", "zstd" or DockerZstd
	Config      v1.Config
	OS, Arch    string // "": the host's
}

// Image is an image in memory.
type Image struct {
	Manifest, Config []byte
	Tars             [][]byte          // the layers, uncompressed
	Blobs            map[string][]byte // by digest, without the manifest
	Parsed           v1.Manifest
	Platform         v1.Platform
	index            []*Image
}

// Build makes an image.
func Build(t testing.TB, s Spec) *Image {
	t.Helper()
	if s.OS == "" {
		s.OS = "linux"
	}
	if s.Arch == "" {
		s.Arch = runtime.GOARCH
	}
	i := &Image{Tars: s.Layers, Blobs: map[string][]byte{}, Platform: v1.Platform{OS: s.OS, Architecture: s.Arch}}
	file := v1.ConfigFile{OS: s.OS, Architecture: s.Arch, Config: s.Config, RootFS: v1.RootFS{Type: "layers"}}
	i.Parsed = v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1}
	for _, l := range s.Layers {
		raw, kind := compressed(t, l, s.Compression)
		file.RootFS.DiffIDs = append(file.RootFS.DiffIDs, hash(l))
		i.Parsed.Layers = append(i.Parsed.Layers, i.blob(raw, kind))
	}
	i.Config = marshal(t, file)
	i.Parsed.Config = i.blob(i.Config, types.OCIConfigJSON)
	i.Manifest = marshal(t, i.Parsed)
	return i
}

// Index makes an index of several images.
func Index(t testing.TB, images ...*Image) *Image {
	t.Helper()
	list := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	for _, m := range images {
		list.Manifests = append(list.Manifests, v1.Descriptor{MediaType: types.OCIManifestSchema1,
			Size: int64(len(m.Manifest)), Digest: hash(m.Manifest), Platform: &m.Platform})
	}
	return &Image{Manifest: marshal(t, list), index: images}
}

func (i *Image) blob(raw []byte, kind types.MediaType) v1.Descriptor {
	h := hash(raw)
	i.Blobs[h.String()] = raw
	return v1.Descriptor{MediaType: kind, Size: int64(len(raw)), Digest: h}
}

// Digest returns the digest of the image's manifest.
func (i *Image) Digest() string { return hash(i.Manifest).String() }

// DockerArchive returns an image in the old format of docker save.
func (i *Image) DockerArchive(t testing.TB, names ...string) []byte {
	t.Helper()
	type entry struct {
		Config           string
		RepoTags, Layers []string
	}
	e := entry{Config: hash(i.Config).Hex + ".json", RepoTags: names}
	files := []File{{Name: e.Config, Body: string(i.Config)}}
	for n, l := range i.Tars {
		name := string(rune('a'+n)) + "/layer.tar"
		e.Layers = append(e.Layers, name)
		files = append(files, File{Name: name, Body: string(l)})
	}
	return Tar(t, append(files, File{Name: "manifest.json", Body: string(marshal(t, []entry{e}))})...)
}

// Layout returns the files of an OCI layout with an image, or with an index and its images.
func (i *Image) Layout(t testing.TB, name string) []File {
	t.Helper()
	kind := types.OCIManifestSchema1
	if i.index != nil {
		kind = types.OCIImageIndex
	}
	top := v1.IndexManifest{SchemaVersion: 2, Manifests: []v1.Descriptor{{MediaType: kind, Size: int64(len(i.Manifest)),
		Digest: hash(i.Manifest), Annotations: map[string]string{"io.containerd.image.name": name}}}}
	files := []File{{Name: "oci-layout", Body: `{"imageLayoutVersion":"1.0.0"}`},
		{Name: "index.json", Body: string(marshal(t, top))}}
	for _, m := range append([]*Image{i}, i.index...) {
		files = append(files, File{Name: "blobs/sha256/" + hash(m.Manifest).Hex, Body: string(m.Manifest)})
		for _, raw := range m.Blobs {
			files = append(files, File{Name: "blobs/sha256/" + hash(raw).Hex, Body: string(raw)})
		}
	}
	return files
}

// LayoutDir writes an OCI layout into a directory.
func (i *Image) LayoutDir(t testing.TB, dir, name string) {
	t.Helper()
	for _, f := range i.Layout(t, name) {
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(f.Body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Program compiles a Go program into one static file, for an image without other files.
func Program(t testing.TB, source string) []byte {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", "program", "main.go")
	c.Dir, c.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GO111MODULE=off")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "program"))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func hash(raw []byte) v1.Hash {
	sum := sha256.Sum256(raw)
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}
}
