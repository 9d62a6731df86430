package layer_test

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/image/imagetest"
	"github.com/soukhq/souk/runtime/image/layer"
)

// What a layer may not have is refused in a sentence, and nothing outside of its directory is changed or read.
func TestUnsafeEntriesAreRefused(t *testing.T) {
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := func(n string) imagetest.File { return imagetest.Dir(n) }
	link := func(n, to string) imagetest.File { return imagetest.File{Name: n, Type: tar.TypeSymlink, Link: to} }
	file := func(n string) imagetest.File { return imagetest.File{Name: n, Body: "evil"} }
	hard := func(n, to string) imagetest.File { return imagetest.File{Name: n, Type: tar.TypeLink, Link: to} }
	long := strings.Repeat("a", 256)
	for name, c := range map[string]struct {
		files []imagetest.File
		text  string
	}{
		"above": {[]imagetest.File{file("../evil")}, `entry "../evil", which leads out of the image`},
		"above after a while": {[]imagetest.File{file("a/../../evil")},
			`entry "a/../../evil", which leads out of the image`},
		"through a link": {[]imagetest.File{link("l", "../../../"+outside), file("l/secret")},
			`entry "l/secret", which goes through a link that leads out of the image`},
		"a loop": {[]imagetest.File{link("l", "l"), file("l/x")},
			`entry "l/x", which goes through more than 40 links`},
		"a hard link above": {[]imagetest.File{hard("l", "../../etc/passwd")},
			`entry "../../etc/passwd", which leads out of the image`},
		"a hard link to nothing": {[]imagetest.File{hard("l", secret)}, `entry "l", a link to "` + secret +
			`", which is no file of the image`},
		"a hard link to a directory": {[]imagetest.File{dir("d"), hard("l", "d")},
			`entry "l", a link to "d", which is no file of the image`},
		"overlayfs's attributes": {[]imagetest.File{{Name: "x",
			Xattrs: map[string]string{"trusted.overlay.redirect": "/"}}},
			`entry "x", which has the extended attribute "trusted.overlay.redirect", and that is not for an image to set`},
		"a user's overlayfs's": {[]imagetest.File{{Name: "x", Xattrs: map[string]string{"user.overlay.opaque": "y"}}},
			`entry "x", which has the extended attribute "user.overlay.opaque", and that is not for an image to set`},
		"below a file": {[]imagetest.File{file("f"), file("f/x")},
			`entry "f/x", which is below something that is no directory`},
		"a whiteout of nothing": {[]imagetest.File{file("d/.wh.")}, `entry "d/.wh.", a whiteout of nothing`},
		"a whiteout of above":   {[]imagetest.File{file("d/.wh...")}, `entry "d/.wh...", a whiteout of nothing`},
		"in a whiteout":         {[]imagetest.File{file(".wh.a/b")}, `entry ".wh.a/b", which is in a whiteout`},
		"a long part": {[]imagetest.File{file(long)}, `entry "` + long[:200] +
			`", of which a part has more than 255 bytes`},
		"nobody's": {[]imagetest.File{{Name: "x", UID: 1 << 32}},
			`entry "x", which belongs to the user 4294967296 and the group 0, and there are none`},
		"a root that is a file": {[]imagetest.File{file("./")},
			`entry "./", which is the image's root and no directory`},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "a root that is a file" {
				c.files[0].Name, c.files[0].Type, c.files[0].Link = ".", tar.TypeSymlink, "/"
				c.files[0].Body, c.text = "", `entry ".", which is the image's root and no directory`
			}
			raw := imagetest.Tar(t, c.files...)
			_, err := unpack(t, t.TempDir(), layer.Options{Form: layer.Form{Xattrs: "user.overlay."}}, raw)
			want := "souk refused a layer for its " + c.text + "; nothing of the layer was kept"
			if !fault.Is(err, fault.Invalid) || fault.As(err).Text != want {
				t.Errorf("the error is\n\t%v\nand should be\n\t%s", err, want)
			}
			_, err = layer.Apply(t.Context(), bytes.NewReader(raw), t.TempDir(), layer.Options{})
			if !fault.Is(err, fault.Invalid) {
				t.Errorf("flattened: %v", err)
			}
			have, err := os.ReadDir(outside)
			if body, _ := os.ReadFile(secret); err != nil || len(have) != 1 || string(body) != "secret" {
				t.Errorf("outside there is now %v, %q", have, body)
			}
		})
	}
}

func TestLayerLimitsAreEnforced(t *testing.T) {
	for name, c := range map[string]struct {
		limits layer.Limits
		files  []imagetest.File
		text   string
	}{
		"bytes": {layer.Limits{Bytes: 5000}, []imagetest.File{{Name: "a", Size: 6000}},
			"its files have more than 5000 bytes"},
		"entries": {layer.Limits{Entries: 2}, []imagetest.File{{Name: "a"}, {Name: "b"}, {Name: "c"}},
			"it has more than 2 entries"},
	} {
		_, err := unpack(t, t.TempDir(), layer.Options{Limits: c.limits, Form: layer.Form{Xattrs: "user.overlay."}},
			imagetest.Tar(t, c.files...))
		want := "a layer is larger than this host allows: " + c.text + "; if it should be, raise the limit"
		if !fault.Is(err, fault.Invalid) || fault.As(err).Text != want {
			t.Errorf("%s: the error is %v, and should be %s", name, err, want)
		}
	}
}

// FuzzLayerChangesNothingOutside unpacks whatever: it is unpacked, or refused, and changes nothing outside.
func FuzzLayerChangesNothingOutside(f *testing.F) {
	f.Add(imagetest.Tar(f, imagetest.Dir("a"), imagetest.File{Name: "a/b", Body: "x"},
		imagetest.File{Name: "l", Type: tar.TypeSymlink, Link: "/a"}, imagetest.File{Name: "l/.wh.b"},
		imagetest.File{Name: "h", Type: tar.TypeLink, Link: "a/b"}, imagetest.File{Name: ".wh..wh..opq"}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		dir := t.TempDir()
		o := layer.Options{Form: layer.Form{Xattrs: "user.overlay."}, Limits: layer.Limits{Bytes: 1 << 20,
			Entries: 1000}}
		_, err := unpack(t, dir, o, raw)
		if k := fault.KindOf(err); err != nil && k != fault.Invalid {
			t.Errorf("%s: %v", k, err)
		}
		if have, err := os.ReadDir(dir); err != nil || len(have) != 1 {
			t.Errorf("beside the layer there is %v (%v)", have, err)
		}
	})
}
