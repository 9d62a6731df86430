package kept_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/kept"
)

func openStore(t *testing.T, o kept.Options) *kept.Store {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	s, err := kept.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// leave promises and keeps one file of a task.
func leave(t *testing.T, s *kept.Store, task string, size int) kept.Files {
	t.Helper()
	if err := s.Promise(task, []string{"out"}); err != nil {
		t.Fatal(err)
	}
	f, promised := s.Keep(task, func(patterns []string, to string) error {
		if !slices.Equal(patterns, []string{"out"}) {
			t.Errorf("patterns %q", patterns)
		}
		return os.WriteFile(filepath.Join(to, "out"), make([]byte, size), 0o600)
	})
	if !promised {
		t.Error("nothing was promised")
	}
	return f
}

// namesIn lists the names in the tar stream of a task, directories with a slash.
func namesIn(t *testing.T, s *kept.Store, task string) (names []string) {
	t.Helper()
	var b bytes.Buffer
	if err := s.Pack(t.Context(), task, &b); err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
}

// TestKeptFilesCanBeRead: as they were left, but for what is no file.
func TestKeptFilesCanBeRead(t *testing.T) {
	s := openStore(t, kept.Options{})
	if err := s.Promise("t1", []string{"res"}); err != nil {
		t.Fatal(err)
	}
	f, _ := s.Keep("t1", func(_ []string, to string) error {
		return errors.Join(os.MkdirAll(filepath.Join(to, "res/x"), 0o750),
			os.WriteFile(filepath.Join(to, "res/x/y"), []byte("deep"), 0o600),
			os.Symlink("/etc/passwd", filepath.Join(to, "res/link")),
			syscall.Mkfifo(filepath.Join(to, "res/fifo"), 0o600))
	})
	if f != (kept.Files{Files: 2, Bytes: 4}) {
		t.Errorf("%+v", f)
	}
	if got := strings.Join(namesIn(t, s, "t1"), " "); got != "res/ res/link res/x/ res/x/y" {
		t.Error(got)
	}
	// souk was killed before the result was recorded
	again, _ := s.Keep("t1", func([]string, string) error { return nil })
	if again != f {
		t.Errorf("%+v, and again %+v", f, again)
	}
	s.Settle("t1")
	if _, promised := s.Keep("t1", nil); promised {
		t.Error("it is still promised")
	}
	if err := s.Pack(t.Context(), "t2", io.Discard); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}

// TestFilesOfOthersAreNotKept: a hard link to a file that the task's user may not read is no way to it.
func TestFilesOfOthersAreNotKept(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it needs root, to make files of two users")
	}
	s := openStore(t, kept.Options{})
	if err := s.Promise("t1", []string{"*"}); err != nil {
		t.Fatal(err)
	}
	f, _ := s.Keep("t1", func(_ []string, to string) error {
		own := filepath.Join(to, "own")
		return errors.Join(os.Chown(to, 54321, 54321), os.WriteFile(own, []byte("own"), 0o600),
			os.Chown(own, 54321, 54321), os.WriteFile(filepath.Join(to, "hidden"), []byte("hidden"), 0o640),
			os.WriteFile(filepath.Join(to, "sent"), []byte("sent"), 0o444))
	})
	if f.Files != 2 || f.Bytes != 7 || !strings.Contains(f.Why, "1 of the files") {
		t.Errorf("%+v", f)
	}
	if got := strings.Join(namesIn(t, s, "t1"), " "); got != "own sent" {
		t.Error(got)
	}
}

// TestWhatIsNotKeptSaysWhy: nothing matches, or the disk fails.
func TestWhatIsNotKeptSaysWhy(t *testing.T) {
	s := openStore(t, kept.Options{})
	for _, c := range []struct {
		err  error
		want string
	}{{nil, "no file that matches a or b/*"}, {errors.New("the disk burns"), "the disk burns"}} {
		if err := s.Promise("t1", []string{"a", "b/*"}); err != nil {
			t.Fatal(err)
		}
		f, _ := s.Keep("t1", func([]string, string) error { return c.err })
		if f.Files != 0 || !strings.Contains(f.Why, c.want) {
			t.Errorf("%+v", f)
		}
	}
	if err := s.Pack(t.Context(), "t1", io.Discard); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}

// TestPromiseOutlivesARestart: the task ends while souk is down, or souk is killed while it keeps the files.
func TestPromiseOutlivesARestart(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, kept.Options{Dir: dir})
	if err := s.Promise("t1", []string{"out"}); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "files/t1"), 0o700); err != nil { // as far as it got
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "files/t1/out"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, kept.Options{Dir: dir})
	if f, promised := s.Keep("t1", func([]string, string) error { return nil }); !promised || f.Files != 1 ||
		f.Why != "" {
		t.Errorf("%+v, %v", f, promised)
	}
	s = openStore(t, kept.Options{Dir: dir})
	s.SettleOthers(map[string]bool{"t1": true})
	if _, promised := s.Keep("t1", func([]string, string) error { return nil }); !promised {
		t.Error("the promise of a task that is there is forgotten")
	}
	s.SettleOthers(map[string]bool{"t2": true})
	if _, promised := s.Keep("t1", nil); promised {
		t.Error("the promise of a task that is gone is kept")
	}
	if got := s.Tasks(); !slices.Equal(got, []string{"t1"}) {
		t.Error(got)
	}
}

// TestFilesOfBeforeTakeRoom: once they are counted, which a start does not wait for.
func TestFilesOfBeforeTakeRoom(t *testing.T) {
	dir := t.TempDir()
	leave(t, openStore(t, kept.Options{Dir: dir}), "t1", 4<<20)
	s := openStore(t, kept.Options{Dir: dir, Max: 6 << 20})
	s.CountFiles(t.Context())
	s.CountFiles(t.Context()) // counts nothing twice
	if f := leave(t, s, "t2", 1<<20); f.Files != 1 {
		t.Errorf("%+v", f)
	}
	if f := leave(t, s, "t3", 2<<20); f.Files != 0 {
		t.Errorf("beyond the bound: %+v", f)
	}
}

// TestRoomForFilesIsBounded: what is older than a day makes room, and what then does not fit is not kept.
func TestRoomForFilesIsBounded(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, kept.Options{Dir: dir, Max: 10 << 20})
	leave(t, s, "old", 4<<20)
	leave(t, s, "older", 4<<20)
	past := time.Now().Add(-48 * time.Hour)
	for i, task := range []string{"older", "old"} {
		at := past.Add(time.Duration(i) * time.Hour)
		if err := os.Chtimes(filepath.Join(dir, "files", task), at, at); err != nil {
			t.Fatal(err)
		}
	}
	if f := leave(t, s, "a", 4<<20); f.Files != 1 || f.Why != "" {
		t.Errorf("%+v", f)
	}
	if got := s.Tasks(); !slices.Equal(got, []string{"a", "old"}) {
		t.Errorf("not the oldest was removed: %q", got)
	}
	leave(t, s, "b", 4<<20)
	f := leave(t, s, "c", 4<<20)
	if f.Files != 0 || !strings.Contains(f.Why, "4 MiB, are not kept: a worker keeps 10 MiB") {
		t.Errorf("%+v", f)
	}
	if got := s.Tasks(); !slices.Equal(got, []string{"a", "b"}) {
		t.Error(got)
	}
	s.Sweep(time.Now().Add(kept.KeepFor + time.Hour))
	if got := s.Tasks(); len(got) != 0 {
		t.Error(got)
	}
}
