package image_test

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/image"
	"github.com/soukhq/souk/runtime/image/imagetest"
	"github.com/soukhq/souk/runtime/image/layer"
	"github.com/soukhq/souk/store/disk/disktest"
)

func TestUnpackIsMountedOrFlattenedOnce(t *testing.T) {
	for _, compression := range []string{"", "gzip", "zstd"} {
		t.Run(compression, func(t *testing.T) {
			reg, dir := imagetest.NewRegistry(t), t.TempDir()
			name := reg.Push(t, "app:v1", small(t, compression))
			s := open(t, dir)
			i := must(s.Pull(t.Context(), name, image.PullOptions{}))(t)
			r := must(s.Unpack(t.Context(), name))(t)
			if len(r.Lower) != 2 || !strings.Contains(r.Lower[0], strings.TrimPrefix(i.Layers[1].Chain, "sha256:")) {
				t.Errorf("it is mounted from %v, its layers are %+v", r.Lower, i.Layers)
			}
			if raw, err := os.ReadFile(filepath.Join(r.Lower[0], "etc/b")); err != nil || string(raw) != "b" {
				t.Errorf("the upper layer has %q (%v)", raw, err)
			}
			again := must(open(t, dir).Unpack(t.Context(), i.Digest))(t)
			if fmt.Sprint(again.Lower) != fmt.Sprint(r.Lower) {
				t.Errorf("unpacked again into %v, before %v", again.Lower, r.Lower)
			}
			flat := filepath.Join(t.TempDir(), "flat")
			must(s.Flatten(t.Context(), name, flat))(t)
			entries, err := os.ReadDir(filepath.Join(flat, "etc"))
			if err != nil || len(entries) != 1 || entries[0].Name() != "b" {
				t.Errorf("flattened there is %v (%v), want b alone", entries, err)
			}
			if wrong := must(s.Check(t.Context()))(t); len(wrong) > 0 {
				t.Errorf("the check says %v", wrong)
			}
			if left := leftovers(t, dir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// damage changes a byte of a blob on disk.
func damage(t *testing.T, dir, digest string) {
	t.Helper()
	path := filepath.Join(dir, "blobs", "sha256", strings.TrimPrefix(digest, "sha256:"))
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)/2] ^= 1
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDamagedBlobIsFetchedAgain(t *testing.T) {
	built := small(t, "gzip")
	first := built.Parsed.Layers[0].Digest.String()
	t.Run("and fetched again", func(t *testing.T) {
		for _, flat := range []bool{false, true} {
			reg, dir := imagetest.NewRegistry(t), t.TempDir()
			name := reg.Push(t, "app:v1", built)
			s := open(t, dir)
			must(s.Pull(t.Context(), name, image.PullOptions{}))(t)
			damage(t, dir, first)
			reg.Asked("")
			if flat {
				must(s.Flatten(t.Context(), name, filepath.Join(t.TempDir(), "flat")))(t)
			} else {
				must(s.Unpack(t.Context(), name))(t)
			}
			if n := reg.Asked(first); n != 1 {
				t.Errorf("it was asked for %d times", n)
			}
		}
	})
	t.Run("and said, of what was loaded", func(t *testing.T) {
		dir := t.TempDir()
		s := open(t, dir)
		must(s.Load(t.Context(), bytes.NewReader(imagetest.Tar(t, built.Layout(t, "a:b")...)), "it"))(t)
		damage(t, dir, first)
		_, err := s.Unpack(t.Context(), "a:b")
		wantFault(t, err, fault.Unavailable, "the blob "+first+" of the image "+built.Digest()+
			" was damaged on disk and was removed; load the image from its file again")
		must(s.Load(t.Context(), bytes.NewReader(imagetest.Tar(t, built.Layout(t, "a:b")...)), "it"))(t)
		must(s.Unpack(t.Context(), "a:b"))(t)
	})
	t.Run("by a check", func(t *testing.T) {
		dir := t.TempDir()
		s := open(t, dir)
		must(s.Load(t.Context(), bytes.NewReader(imagetest.Tar(t, built.Layout(t, "a:b")...)), "it"))(t)
		r := must(s.Unpack(t.Context(), "a:b"))(t)
		damage(t, dir, first)
		if err := os.WriteFile(filepath.Join(r.Lower[1], "etc", "new"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if wrong := must(s.Check(t.Context()))(t); len(wrong) != 2 || !strings.HasPrefix(wrong[0], "the blob "+first) ||
			!strings.Contains(wrong[1], "has 3 entries and 300001 bytes, and was unpacked with 2 and 300000;") {
			t.Errorf("the check says %q", wrong)
		}
	})
}

func TestUnpackRefusesInvalidImages(t *testing.T) {
	zeros := imagetest.Tar(t, imagetest.File{Name: "zeros", Size: 300 << 20})
	for name, c := range map[string]struct {
		layer []byte
		text  string
	}{
		"cut": {imagetest.Tar(t, imagetest.File{Name: "a", Body: strings.Repeat("a", 2000)})[:1500],
			"a layer is not a tar, or breaks off; build or push the image again"},
		"escape": {imagetest.Tar(t, imagetest.File{Name: "../a"}),
			`souk refused a layer for its entry "../a", which leads out of the image; nothing of the layer was kept`},
		"bomb": {zeros, "a layer is larger than this host allows: its first 2"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			built := imagetest.Build(t, imagetest.Spec{Layers: [][]byte{c.layer}, Compression: "gzip"})
			must(s.Load(t.Context(), bytes.NewReader(imagetest.Tar(t, built.Layout(t, "a:b")...)), "it"))(t)
			_, err := s.Unpack(t.Context(), "a:b")
			if want := "the image docker.io/library/a:b cannot be unpacked: " + c.text; !fault.Is(err, fault.Invalid) ||
				!strings.HasPrefix(fault.As(err).Text, want) {
				t.Errorf("the error is\n\t%v\nand should be\n\t%s", err, want)
			}
			if left := leftovers(t, dir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if entries, _ := os.ReadDir(filepath.Join(dir, "layers")); len(entries) > 0 {
				t.Errorf("there are the layers %v", entries)
			}
		})
	}
}

func TestPullOnAFullDiskLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	disktest.Mount(t, dir, "2m")
	reg := imagetest.NewRegistry(t)
	random := make([]byte, 3<<20)
	for i := range random {
		random[i] = byte(rand.Uint32()) //nolint:gosec // not a secret
	}
	big := imagetest.Build(t, imagetest.Spec{Layers: [][]byte{imagetest.Tar(t, imagetest.File{Name: "a",
		Body: string(random)})}})
	zeros := imagetest.Build(t, imagetest.Spec{Compression: "gzip",
		Layers: [][]byte{imagetest.Tar(t, imagetest.File{Name: "a", Size: 3 << 20})}})
	s := open(t, dir)
	_, err := s.Pull(t.Context(), reg.Push(t, "big:v1", big), image.PullOptions{})
	wantFault(t, err, fault.Exhausted, "the image @/big:v1 needs 7 MB or more, and the disk of the images has 1 MB "+
		"free, of which souk keeps 0 MB free; nothing was pulled: remove images, or enlarge the disk")
	must(s.Pull(t.Context(), reg.Push(t, "zeros:v1", zeros), image.PullOptions{}))(t)
	_, err = s.Unpack(t.Context(), reg.Host+"/zeros:v1")
	wantFault(t, err, fault.Exhausted,
		"the disk of the images is full, so a layer was not unpacked; remove images or give it more disk")
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	must(s.Pull(t.Context(), reg.Push(t, "small:v1", small(t, "gzip")), image.PullOptions{}))(t)
	must(s.Unpack(t.Context(), reg.Host+"/small:v1"))(t)
}

// TestPullMakesRoomOrIsRefusedFirst: what does not fit is refused before its first byte, nothing stays of what failed, and images
// that nobody uses are removed for one that is pulled.
func TestPullMakesRoomOrIsRefusedFirst(t *testing.T) {
	dir := t.TempDir()
	disktest.Mount(t, dir, "16m")
	reg := imagetest.NewRegistry(t)
	sized := func(name string, mb int) string {
		random := make([]byte, mb<<20)
		for i := range random {
			random[i] = byte(rand.Uint32()) //nolint:gosec // not a secret
		}
		return reg.Push(t, name, imagetest.Build(t, imagetest.Spec{Compression: "gzip",
			Layers: [][]byte{imagetest.Tar(t, imagetest.File{Name: "a", Body: string(random)})}}))
	}
	s, err := image.Open(image.Options{Dir: dir, KeepFree: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	free := func() int64 {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil {
			t.Fatal(err)
		}
		return int64(st.Bavail) * st.Bsize
	}
	bring := func(name string) error {
		i, err := s.Pull(t.Context(), name, image.PullOptions{})
		if err != nil {
			return err
		}
		if err := s.Pin(t.Context(), i.Digest, "m"); err != nil {
			return err
		}
		_, err = s.Unpack(t.Context(), i.Digest)
		return err
	}
	all := free()
	if err := bring(sized("large:v1", 9)); !fault.Is(err, fault.Exhausted) { // packed it would fit
		t.Errorf("an image that does not fit: %v", err)
	}
	if left := all - free(); left > 1<<20 {
		t.Errorf("%d bytes stay of what was refused", left)
	}
	if err := bring(sized("first:v1", 4)); err != nil {
		t.Fatal(err)
	}
	if err := bring(sized("second:v1", 4)); !fault.Is(err, fault.Exhausted) {
		t.Errorf("beside one that is in use: %v", err)
	}
	if _, err := s.Get(reg.Host + "/first:v1"); err != nil {
		t.Errorf("what is in use: %v", err)
	}
	if err := s.Unpin(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	if err := bring(sized("second:v1", 4)); err != nil {
		t.Errorf("in the place of one that nobody uses: %v", err)
	}
	if err := s.Unpin(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	if freed, err := s.Relieve(t.Context()); freed != 0 || err != nil {
		t.Errorf("with room enough %d bytes go, %v", freed, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "others"), make([]byte, 6<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if freed, err := s.Relieve(t.Context()); freed == 0 || err != nil || free() < 4<<20 {
		t.Errorf("on a disk that others fill %d bytes go, %d are free, %v", freed, free(), err)
	}
}

// TestHelperUnpacksUntilKilled is the process that TestKilledUnpackLeavesNothingPartial kills.
func TestHelperUnpacksUntilKilled(t *testing.T) {
	dir, name := os.Getenv("SOUK_TEST_IMAGES"), os.Getenv("SOUK_TEST_IMAGE")
	if dir == "" {
		t.Skip("it is run by TestKilledUnpackLeavesNothingPartial")
	}
	s := open(t, dir)
	say := func(image.Progress) { fmt.Println("progress") }
	must(s.Pull(t.Context(), name, image.PullOptions{Progress: say}))(t)
	fmt.Println("progress")
	must(s.Unpack(t.Context(), name))(t)
	fmt.Println("progress")
}

// Whenever a process is killed: what is known is whole, nothing is left that counts, and the next one goes on.
func TestKilledUnpackLeavesNothingPartial(t *testing.T) {
	reg := imagetest.NewRegistry(t)
	var files []imagetest.File
	for n := range 400 {
		files = append(files, imagetest.File{Name: fmt.Sprintf("d%d/f%d", n%20, n), Body: strings.Repeat("x", n*20)})
	}
	built := imagetest.Build(t, imagetest.Spec{Layers: [][]byte{imagetest.Tar(t, files...),
		imagetest.Tar(t, files[:200]...), imagetest.Tar(t, imagetest.File{Name: "d1/.wh.f1"})}})
	name := reg.Push(t, "app:v1", built)
	dir := t.TempDir()
	kills := 0
	for round := range 12 {
		c := exec.Command(os.Args[0], "-test.run=^TestHelperUnpacksUntilKilled$", "-test.count=1")
		c.Env = append(os.Environ(), "SOUK_TEST_IMAGES="+dir, "SOUK_TEST_IMAGE="+name)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := rand.IntN(14); n > 0 && lines.Scan(); n-- { //nolint:gosec // not a secret
		}
		_ = c.Process.Kill()
		if c.Wait() != nil {
			kills++
		}
		s := open(t, dir) // which sweeps
		for _, left := range leftovers(t, dir) {
			if !strings.HasPrefix(left, "partial/") {
				t.Errorf("round %d: left behind: %s", round, left)
			}
		}
		if wrong := must(s.Check(t.Context()))(t); len(wrong) > 0 {
			t.Errorf("round %d: %v", round, wrong)
		}
		for _, i := range must(s.List())(t) {
			must(s.Flatten(t.Context(), i.Digest, filepath.Join(t.TempDir(), "flat")))(t)
		}
		if round%4 == 3 { // from the beginning again
			must(s.Prune(t.Context(), nil))(t)
			if n := must(s.Bytes())(t); n != 0 {
				t.Errorf("round %d: %d bytes are left of nothing", round, n)
			}
		}
	}
	if kills == 0 {
		t.Error("no process was killed before its end")
	}
	s := open(t, dir)
	must(s.Pull(t.Context(), name, image.PullOptions{}))(t)
	r := must(s.Unpack(t.Context(), name))(t)
	for n, l := range r.Lower {
		if _, err := layer.Count(l); err != nil {
			t.Errorf("layer %d: %v", n, err)
		}
	}
	if wrong := must(s.Check(t.Context()))(t); len(wrong) > 0 {
		t.Error(wrong)
	}
}
