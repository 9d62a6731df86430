package layer_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/image/imagetest"
	"github.com/soukhq/souk/runtime/image/layer"
)

// read returns the tree of a directory as the model has it.
func read(dir string) (map[string]string, error) {
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t) //nolint:errcheck,forcetypeassert // of Linux
		n := node{mode: int64(st.Mode & 0o7777), uid: int(st.Uid), gid: int(st.Gid), time: st.Mtim.Sec}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			n.kind = tar.TypeDir
		case unix.S_IFLNK:
			n.kind = tar.TypeSymlink
			if n.body, err = os.Readlink(p); err != nil {
				return err
			}
		case unix.S_IFREG:
			raw, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			n.kind, n.body = tar.TypeReg, string(raw)
		case unix.S_IFIFO:
			n.kind = tar.TypeFifo
		default:
			n.kind = '?'
		}
		if n.kind != tar.TypeSymlink {
			b := make([]byte, 100)
			if k, err := unix.Lgetxattr(p, "user.a", b); err == nil {
				n.xattr = string(b[:k])
			}
		}
		name, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		if name == "." {
			name = ""
		}
		out[name] = n.String()
		return nil
	})
	return out, err
}

// mounted calls do with the directory where an overlay of layers is mounted, in a mount namespace that nothing else
// has.
func mounted(lower []string, user bool, at string, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return errNoMount{err}
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return errNoMount{err}
			}
			options := "lowerdir=" + strings.Join(lower, ":")
			if user {
				options += ",userxattr"
			}
			if err := unix.Mount("overlay", at, "overlay", unix.MS_RDONLY, options); err != nil {
				if errors.Is(err, unix.EINVAL) {
					return err
				}
				return errNoMount{err}
			}
			defer func() { _ = unix.Unmount(at, unix.MNT_DETACH) }()
			return do()
		}()
	}()
	return <-done
}

type errNoMount struct{ error }

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("this test needs root")
		}
		t.Skip("this test needs root: it mounts overlays and makes files of other users")
	}
}

func unpack(t testing.TB, dir string, o layer.Options, tars ...[]byte) (lower []string, err error) {
	t.Helper()
	for i, raw := range tars {
		to := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(to, 0o700); err != nil {
			t.Fatal(err)
		}
		r, err := layer.Unpack(context.Background(), bytes.NewReader(raw), to, lower, o)
		if err != nil {
			return nil, err
		}
		have, err := layer.Count(to)
		if err != nil || have != r.Tally {
			t.Fatalf("layer %d was counted as %+v, and is %+v (%v)", i, r.Tally, have, err)
		}
		if r.OpaqueRoot {
			lower = nil
		}
		lower = append([]string{to}, lower...)
	}
	return lower, nil
}

var (
	rootForm = layer.Form{Xattrs: "trusted.overlay.", Owners: true} //nolint:gochecknoglobals // a constant
	userForm = layer.Form{Xattrs: "user.overlay.", Owners: true}    //nolint:gochecknoglobals // a constant
)

// drawEntry draws an entry of few names, so that they meet often.
func drawEntry(t *rapid.T) imagetest.File {
	name := func() string {
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 3).Draw(t, "name")
		return strings.Join(parts, "/")
	}
	f := imagetest.File{Name: name(), Mode: rapid.SampledFrom([]int64{0o644, 0o755, 0o4711, 0o700}).Draw(t, "mode"),
		UID: rapid.IntRange(0, 2).Draw(t, "uid"), GID: rapid.IntRange(0, 2).Draw(t, "gid"),
		Time: time.Unix(rapid.Int64Range(1, 1<<31-1).Draw(t, "time"), 0)}
	switch rapid.IntRange(0, 12).Draw(t, "kind") {
	case 0, 1, 2, 3:
		f.Type, f.Body = tar.TypeReg, rapid.StringMatching(`[a-z]{0,9}`).Draw(t, "body")
	case 4, 5:
		f.Type = tar.TypeDir
	case 6:
		f.Type = tar.TypeSymlink
		f.Link = rapid.SampledFrom([]string{"a", "b", "../b", "/a", "/b/c", "../../c", "nowhere", "."}).Draw(t, "to")
	case 7:
		f.Type, f.Link = tar.TypeLink, name()
	case 8, 9:
		dir, base := filepath.Split(f.Name)
		f.Type, f.Name, f.Body = tar.TypeReg, dir+".wh."+base, ""
	case 10:
		f.Type, f.Name = tar.TypeReg, filepath.Join(filepath.Dir(f.Name), ".wh..wh..opq")
	case 11:
		f.Type = tar.TypeFifo
	case 12:
		f.Type = rapid.SampledFrom([]byte{tar.TypeChar, tar.TypeBlock}).Draw(t, "device")
	}
	if (f.Type == tar.TypeReg || f.Type == tar.TypeDir) && rapid.IntRange(0, 4).Draw(t, "xattr") == 0 {
		f.Xattrs = map[string]string{"user.a": rapid.StringMatching(`[a-z]{1,4}`).Draw(t, "value")}
	}
	return f
}

// Whatever layers there are: unpacked and mounted by the kernel, or flattened, they are the tree of the model.
func TestLayersMatchTheTreeModel(t *testing.T) {
	needRoot(t)
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel()
		var tars [][]byte
		for range rapid.IntRange(1, 4).Draw(rt, "layers") {
			m.layer()
			var files []imagetest.File
			for range rapid.IntRange(0, 10).Draw(rt, "entries") {
				f := drawEntry(rt)
				before := m.clone()
				if m.apply(f) != nil {
					*m = *before // such a layer is refused: see the tests of that
					continue
				}
				files = append(files, f)
			}
			tars = append(tars, imagetest.Tar(t, files...))
		}
		want := map[string]string{}
		for p, n := range m.tree {
			want[p] = n.String()
		}
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir)
		flat := filepath.Join(dir, "flat")
		if err := os.Mkdir(flat, 0o755); err != nil {
			rt.Fatal(err)
		}
		for i, raw := range tars {
			_, err := layer.Apply(rt.Context(), bytes.NewReader(raw), flat, layer.Options{Form: rootForm})
			if err != nil {
				rt.Fatalf("layer %d: %v", i, err)
			}
		}
		have, err := read(flat)
		if err != nil {
			rt.Fatal(err)
		}
		delete(have, "")
		delete(want, "")
		if d := cmp.Diff(want, have); d != "" {
			rt.Errorf("flattened (-want +got):\n%s", d)
		}
		form := rapid.SampledFrom([]layer.Form{rootForm, userForm}).Draw(rt, "form")
		lower, err := unpack(t, dir, layer.Options{Form: form}, tars...)
		if err != nil {
			rt.Fatal(err)
		}
		at, none := filepath.Join(dir, "mounted"), filepath.Join(dir, "none")
		for _, d := range []string{at, none} {
			if err := os.Mkdir(d, 0o755); err != nil {
				rt.Fatal(err)
			}
		}
		err = mounted(append(lower, none), form.User(), at, func() error {
			have, err = read(at)
			return err
		})
		if _, no := errors.AsType[errNoMount](err); no && os.Getenv("CI") != "true" {
			return // the kernel has no overlayfs, or lets nobody mount it here
		}
		if err != nil {
			rt.Fatal(err)
		}
		delete(have, "")
		if d := cmp.Diff(want, have); d != "" {
			rt.Errorf("mounted (-want +got):\n%s", d)
		}
	})
}

// A link to a fifo of a layer below makes it this layer's own, with every bit of its mode: also those that a new owner and
// the umask take away.
func TestLinkedFifoKeepsItsMode(t *testing.T) {
	needRoot(t)
	for _, mode := range []int64{0o4711, 0o2770, 0o666} {
		pipe := imagetest.File{Name: "pipe", Type: tar.TypeFifo, Mode: mode, UID: 1, GID: 2, Time: time.Unix(3, 0)}
		link := imagetest.File{Name: "link", Type: tar.TypeLink, Link: "pipe"}
		below, above := imagetest.Tar(t, pipe), imagetest.Tar(t, link)
		lower, err := unpack(t, t.TempDir(), layer.Options{Form: rootForm}, below, above)
		if err != nil {
			t.Fatal(err)
		}
		have, err := read(lower[0])
		if err != nil {
			t.Fatal(err)
		}
		want := node{kind: tar.TypeFifo, mode: mode, uid: 1, gid: 2, time: 3}.String()
		for _, name := range []string{"pipe", "link"} {
			if have[name] != want {
				t.Errorf("%s is %s, not %s", name, have[name], want)
			}
		}
	}
}

// A device is left out, with its hard links: a machine has a /dev of its own. What a layer below has at its name is
// hidden, as the device would have hidden it.
func TestDevicesAreSkippedAndHideLowerFiles(t *testing.T) {
	below := imagetest.Tar(t, imagetest.Dir("dev"), imagetest.File{Name: "dev/tty", Body: "old"})
	above := imagetest.Tar(t, imagetest.Dir("dev"), imagetest.File{Name: "dev/null", Type: tar.TypeChar},
		imagetest.File{Name: "dev/zero", Type: tar.TypeLink, Link: "dev/null"},
		imagetest.File{Name: "dev/one", Type: tar.TypeLink, Link: "/dev/zero"},
		imagetest.File{Name: "sda", Type: tar.TypeBlock}, imagetest.File{Name: "dev/tty", Type: tar.TypeChar},
		imagetest.File{Name: "hello", Body: "hello"})
	flat := t.TempDir()
	for _, raw := range [][]byte{below, above} {
		if _, err := layer.Apply(t.Context(), bytes.NewReader(raw), flat, layer.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	have, err := read(flat)
	if err != nil {
		t.Fatal(err)
	}
	delete(have, "")
	if got, want := slices.Sorted(maps.Keys(have)), []string{"dev", "hello"}; !slices.Equal(got, want) {
		t.Errorf("flattened there is %v, want %v", got, want)
	}
	needRoot(t)
	lower, err := unpack(t, t.TempDir(), layer.Options{Form: rootForm}, below, above)
	if err != nil {
		t.Fatal(err)
	}
	if have, err = read(lower[0]); err != nil {
		t.Fatal(err)
	}
	delete(have, "")
	// A character device 0:0 is overlayfs's mark of a file that is hidden.
	if got, want := slices.Sorted(maps.Keys(have)), []string{"dev", "dev/tty", "hello"}; !slices.Equal(got, want) {
		t.Errorf("unpacked there is %v, want %v", got, want)
	}
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(lower[0], "dev/tty"), &st); err != nil || st.Rdev != 0 {
		t.Errorf("dev/tty is the device %d (%v), want a whiteout", st.Rdev, err)
	}
}

func (m *model) clone() *model {
	c := &model{tree: map[string]node{}, own: map[string]bool{}, devs: map[string]bool{}}
	for p, n := range m.tree {
		c.tree[p] = n
	}
	for p := range m.own {
		c.own[p] = true
	}
	for p := range m.devs {
		c.devs[p] = true
	}
	return c
}

func TestInvalidLayerErrorKeepsItsKind(t *testing.T) {
	_, err := unpack(t, t.TempDir(), layer.Options{Form: rootForm}, []byte("no tar"))
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("got %v", err)
	}
}
