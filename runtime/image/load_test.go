package image_test

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/image"
	"github.com/soukhq/souk/runtime/image/imagetest"
)

// The same image comes in every form, with its name.
func TestLoadReadsEveryArchiveForm(t *testing.T) {
	built := small(t, "gzip")
	index := imagetest.Index(t, imagetest.Build(t, imagetest.Spec{Arch: "riscv64"}), built)
	squeezed := func(raw []byte) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(raw)
		_ = z.Close()
		return b.Bytes()
	}
	layout := imagetest.Tar(t, built.Layout(t, "me/app:v1")...)
	for name, raw := range map[string][]byte{
		"OCI layout":             layout,
		"OCI layout, compressed": squeezed(layout),
		"OCI layout of an index": imagetest.Tar(t, index.Layout(t, "me/app:v1")...),
		"docker save":            built.DockerArchive(t, "me/app:v1"),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			got := must(s.Load(t.Context(), bytes.NewReader(raw), "the input"))(t)
			if len(got) != 1 || len(got[0].Names) != 1 || got[0].Names[0] != "docker.io/me/app:v1" {
				t.Fatalf("loaded %+v", got)
			}
			if name != "docker save" && got[0].Digest != built.Digest() {
				t.Errorf("its digest is %s, want %s", got[0].Digest, built.Digest())
			}
			for i, l := range got[0].Layers {
				if want := must(open(t, dir).Get("me/app:v1"))(t).Layers[i]; l != want {
					t.Errorf("layer %d: %+v, later %+v", i, l, want)
				}
			}
			again := must(s.Load(t.Context(), bytes.NewReader(raw), "the input"))(t)
			if again[0].Digest != got[0].Digest {
				t.Errorf("loaded again it is %s", again[0].Digest)
			}
			if left := leftovers(t, dir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
	t.Run("a directory", func(t *testing.T) {
		from := t.TempDir()
		index.LayoutDir(t, from, "me/app:v1")
		got := must(open(t, t.TempDir()).LoadPath(t.Context(), from))(t)
		if len(got) != 1 || got[0].Digest != built.Digest() || got[0].Index != index.Digest() {
			t.Errorf("loaded %+v", got)
		}
	})
	t.Run("a file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "a.tar")
		if err := os.WriteFile(path, layout, 0o600); err != nil {
			t.Fatal(err)
		}
		must(open(t, t.TempDir()).LoadPath(t.Context(), path))(t)
	})
}

func TestLoadRefusesOtherFiles(t *testing.T) {
	built := small(t, "")
	files := built.Layout(t, "me/app:v1")
	without := func(part string) []byte {
		var kept []imagetest.File
		for _, f := range files {
			if !strings.Contains(f.Name, part) {
				kept = append(kept, f)
			}
		}
		return imagetest.Tar(t, kept...)
	}
	changed := func(part string) []byte {
		kept := append([]imagetest.File(nil), files...)
		for i, f := range kept {
			if strings.Contains(f.Name, part) {
				kept[i].Body = "x" + f.Body[1:]
			}
		}
		return imagetest.Tar(t, kept...)
	}
	first := built.Parsed.Layers[0].Digest
	swapped := *built
	swapped.Tars = [][]byte{built.Tars[1], built.Tars[0]}
	whole := imagetest.Tar(t, files...)
	for name, c := range map[string]struct {
		raw  []byte
		text string
	}{
		"nothing": {nil, "it has neither an index.json (OCI layout) nor a manifest.json (docker save); is it an " +
			"image?"},
		"text": {[]byte(strings.Repeat("no image at all ", 100)),
			"it is no archive of images: it is no tar, also not a compressed one; load what docker save wrote, or an " +
				"OCI layout"},
		"cut": {whole[:len(whole)/2], "it breaks off or is damaged; save the image again, or copy the file again"},
		"a layer is missing": {without(first.Hex), "it is not whole: the blob " + first.String() +
			" is missing; save the " +
			"image again"},
		"a layer was changed": {changed(first.Hex), "it is not whole: the blob " + first.String() +
			" of 302080 bytes has the digest DIGEST and 302080 bytes; save the image again"},
		"the manifest was changed": {changed(built.Digest()[7:]), "it is not whole: the blob " + built.Digest() +
			" has the digest DIGEST; save the image again"},
		"another platform": {imagetest.Tar(t, imagetest.Build(t, imagetest.Spec{Arch: "riscv64"}).Layout(t, "a:b")...),
			"it is for linux/riscv64, and this host is HOST; build it for that, or run it on a worker of another kind"},
		"layers that are swapped": {swapped.DockerArchive(t, "a:b"),
			`it is not whole: the layer "a/layer.tar" is not ` +
				hashString(built.Tars[0]) + " but " + hashString(built.Tars[1]) + "; save the image again"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			_, err := s.Load(t.Context(), bytes.NewReader(c.raw), "it")
			if err == nil {
				t.Fatal("it was loaded")
			}
			f := *fault.As(err)
			if _, after, ok := strings.Cut(f.Text, "has the digest sha256:"); ok {
				f.Text = strings.Replace(f.Text, "sha256:"+after[:64], "DIGEST", 1)
			}
			f.Text = strings.Replace(f.Text, image.HostPlatform().String(), "HOST", 1)
			wantFault(t, &f, map[bool]fault.Kind{false: fault.Invalid, true: fault.Precondition}[name == "another "+
				"platform"],
				c.text)
			if all := must(s.List())(t); len(all) != 0 {
				t.Errorf("of what is no image came %+v", all)
			}
			if left := leftovers(t, dir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// Nothing outside of a layout's directory is read.
func TestLoadReadsNothingOutsideItsLayout(t *testing.T) {
	from := t.TempDir()
	small(t, "").LayoutDir(t, from, "a:b")
	secret := filepath.Join(t.TempDir(), "index.json")
	if err := os.Rename(filepath.Join(from, "index.json"), secret); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(from, "index.json")); err != nil {
		t.Fatal(err)
	}
	_, err := open(t, t.TempDir()).LoadPath(t.Context(), from)
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("got %v", err)
	}
}
