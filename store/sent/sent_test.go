package sent_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/sent"
)

// archiveOf returns the archive of a file or directory, and its key.
func archiveOf(t *testing.T, from, name string) ([]byte, sent.Key) {
	t.Helper()
	var b bytes.Buffer
	if err := sent.WriteArchive(&b, from, name); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), keyOf(b.Bytes())
}

func keyOf(archive []byte) sent.Key {
	sum := sha256.Sum256(archive)
	return sent.Key{App: "lab", Digest: "sha256:" + hex.EncodeToString(sum[:])}
}

// makeData makes a directory with a program, data, a subdirectory and a symlink.
func makeData(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	for name, text := range map[string]string{"run.sh": "#!/bin/sh\n", "in/a": "alpha", "in/b": ""} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "run.sh"), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	if err := os.Symlink("in/a", filepath.Join(dir, "first")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func openStore(t *testing.T, o sent.Options) *sent.Store {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	s, err := sent.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, s *sent.Store, k sent.Key, archive []byte) {
	t.Helper()
	if _, err := s.Put(t.Context(), k, bytes.NewReader(archive)); err != nil {
		t.Fatal(err)
	}
}

// TestSameFilesHaveOneArchive: whatever their times, modes and owners.
func TestSameFilesHaveOneArchive(t *testing.T) {
	a, ka := archiveOf(t, makeData(t), "data")
	other := makeData(t)
	if err := os.Chtimes(filepath.Join(other, "in/a"), time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(other, "in/a"), 0o644); err != nil { //nolint:gosec // another mode
		t.Fatal(err)
	}
	if _, kb := archiveOf(t, other, "data"); ka != kb {
		t.Error("two archives of the same files differ")
	}
	if err := os.Chmod(filepath.Join(other, "in/a"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	if _, kb := archiveOf(t, other, "data"); ka == kb {
		t.Error("an archive does not tell that a file became a program")
	}
	var names []string
	for tr := tar.NewReader(bytes.NewReader(a)); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		names = append(names, h.Name)
	}
	if got := strings.Join(names, " "); got != "data/ data/first data/in/ data/in/a data/in/b data/run.sh" {
		t.Error(got)
	}
}

// TestTreeHasWhatWasSent: each file can be read, or executed, and nobody can write it.
func TestTreeHasWhatWasSent(t *testing.T) {
	archive, k := archiveOf(t, makeData(t), "data")
	s := openStore(t, sent.Options{})
	put(t, s, k, archive)
	put(t, s, k, archive) // again changes nothing
	if n, here := s.Size(k); !here || n != int64(len(archive)) {
		t.Errorf("%d bytes, %v", n, here)
	}
	dir, release, err := s.Tree(t.Context(), k, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for name, want := range map[string]fs.FileMode{"run.sh": 0o555, "in/a": 0o444, "in/b": 0o444} {
		if st, err := os.Lstat(filepath.Join(dir, "data", name)); err != nil || st.Mode() != want {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "data/first")); err != nil || string(b) != "alpha" {
		t.Errorf("%q, %v", b, err)
	}
	other := k
	other.App = "shop"
	if _, here := s.Size(other); here {
		t.Error("what was sent to one app is seen by another")
	}
	if _, _, err := s.Tree(t.Context(), other, nil); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}

// TestBadArchivesAreRefused: and nothing of them is kept.
func TestBadArchivesAreRefused(t *testing.T) {
	packed := func(hs ...*tar.Header) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range hs {
			h.Mode = 0o444
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	good, _ := archiveOf(t, makeData(t), "data")
	s := openStore(t, sent.Options{})
	for name, archive := range map[string][]byte{
		"nothing":           {},
		"no files":          packed(),
		"no tar":            []byte("hello"),
		"torn":              good[:len(good)/2+100],
		"leads out":         packed(&tar.Header{Name: "../x"}),
		"absolute":          packed(&tar.Header{Name: "/etc/x"}),
		"link out":          packed(&tar.Header{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "../x"}),
		"link to a sibling": packed(&tar.Header{Name: "a/l", Typeflag: tar.TypeSymlink, Linkname: "../b/x"}),
		"absolute link":     packed(&tar.Header{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}),
		"hard link":         packed(&tar.Header{Name: "a", Typeflag: tar.TypeLink, Linkname: "b"}),
		"device":            packed(&tar.Header{Name: "a", Typeflag: tar.TypeChar}),
		"FIFO":              packed(&tar.Header{Name: "a", Typeflag: tar.TypeFifo}),
		"two tops":          packed(&tar.Header{Name: "a"}, &tar.Header{Name: "b"}),
	} {
		k := keyOf(archive)
		if _, err := s.Put(t.Context(), k, bytes.NewReader(archive)); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
		if _, here := s.Size(k); here {
			t.Errorf("%s is kept", name)
		}
	}
	_, k := archiveOf(t, makeData(t), "other")
	if _, err := s.Put(t.Context(), k, bytes.NewReader(good)); !fault.Is(err, fault.Conflict) {
		t.Errorf("with another digest: %v", err)
	}
	for _, digest := range []string{"", "sha256:", "sha256:../../x", "md5:00", strings.ToUpper(k.Digest)} {
		if _, err := s.Put(t.Context(), sent.Key{App: "lab", Digest: digest}, bytes.NewReader(good)); !fault.Is(err,
			fault.Invalid) {
			t.Errorf("the digest %q: %v", digest, err)
		}
	}
	if _, err := s.Put(t.Context(), sent.Key{App: "../x", Digest: k.Digest}, bytes.NewReader(good)); !fault.Is(err,
		fault.Invalid) {
		t.Errorf("an app that is none: %v", err)
	}
}

// TestSentIsFetchedOnceForAll: however many tasks wait for it, and from the next member when one does not have it.
func TestSentIsFetchedOnceForAll(t *testing.T) {
	archive, k := archiveOf(t, makeData(t), "data")
	has := openStore(t, sent.Options{})
	put(t, has, k, archive)
	var mu sync.Mutex
	asked := map[cluster.WorkerID]int{}
	s := openStore(t, sent.Options{Fetch: func(ctx context.Context, from cluster.WorkerID, k sent.Key,
		w io.Writer) error {
		mu.Lock()
		asked[from]++
		mu.Unlock()
		switch from {
		case "gone":
			return fault.New(fault.Unavailable, fault.CodeLost, "it does not answer")
		case "torn":
			_, err := w.Write(archive[:len(archive)/2])
			return err
		}
		return has.Read(ctx, k, w)
	}})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			_, release, err := s.Tree(t.Context(), k, []cluster.WorkerID{"gone", "torn", "has"})
			if err != nil {
				t.Error(err)
				return
			}
			release()
		})
	}
	all.Wait()
	if asked["gone"] != 1 || asked["torn"] != 1 || asked["has"] != 1 {
		t.Errorf("asked %v", asked)
	}
	if err := s.Secure(t.Context(), k, "has"); err != nil {
		t.Fatal(err)
	}
	if n, here := s.Size(k); !here || n != int64(len(archive)) {
		t.Error("it has no archive to give to others")
	}
	if _, _, err := s.Tree(t.Context(), sent.Key{App: "lab", Digest: "sha256:" + strings.Repeat("00", 32)},
		[]cluster.WorkerID{"gone", "has"}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("what nobody has: %v", err)
	}
}

// TestSweepKeepsWhatIsNeeded: by an unfinished job, by a task that begins, or lately.
func TestSweepKeepsWhatIsNeeded(t *testing.T) {
	var needed []sent.Key
	s := openStore(t, sent.Options{InUse: func(context.Context) ([]sent.Key, error) { return needed, nil }})
	archive, k := archiveOf(t, makeData(t), "data")
	put(t, s, k, archive)
	dir, release, err := s.Tree(t.Context(), k, nil)
	if err != nil {
		t.Fatal(err)
	}
	isHere := func(when string, want bool) {
		t.Helper()
		_, err := os.Stat(dir)
		st, _ := os.Stat(filepath.Join(filepath.Dir(dir), "../../archives/lab", filepath.Base(dir)))
		if (err == nil) != want || (st != nil) != want {
			t.Fatalf("%s: tree %v, archive %v", when, err, st)
		}
	}
	month := time.Now().Add(30 * 24 * time.Hour)
	s.Sweep(t.Context(), time.Now())
	isHere("lately used", true)
	s.Sweep(t.Context(), month)
	isHere("a task begins", true)
	release()
	needed = []sent.Key{k}
	s.Sweep(t.Context(), month)
	isHere("a job needs it", true)
	needed = nil
	s.Sweep(t.Context(), month)
	isHere("nobody needs it", false)
}

// TestTreesOfAnEarlierBootAreMadeAnew: after a power loss they may not be whole.
func TestTreesOfAnEarlierBootAreMadeAnew(t *testing.T) {
	dir := t.TempDir()
	archive, k := archiveOf(t, makeData(t), "data")
	s := openStore(t, sent.Options{Dir: dir, Boot: "1"})
	put(t, s, k, archive)
	tree, release, err := s.Tree(t.Context(), k, nil)
	if err != nil {
		t.Fatal(err)
	}
	release()
	if err := os.Truncate(filepath.Join(tree, "data/in/a"), 0); err != nil {
		t.Fatal(err)
	}
	openStore(t, sent.Options{Dir: dir, Boot: "1"})
	if b, err := os.ReadFile(filepath.Join(tree, "data/in/a")); err != nil || len(b) != 0 {
		t.Errorf("in the same boot it was made anew: %q, %v", b, err)
	}
	s = openStore(t, sent.Options{Dir: dir, Boot: "2"})
	if _, release, err = s.Tree(t.Context(), k, nil); err != nil {
		t.Fatal(err)
	}
	defer release()
	if b, err := os.ReadFile(filepath.Join(tree, "data/in/a")); err != nil || string(b) != "alpha" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestWhatCannotBeSentIsNamed: in the sentence that the user reads.
func TestWhatCannotBeSentIsNamed(t *testing.T) {
	dir := makeData(t)
	if err := os.Symlink("../../outside", filepath.Join(dir, "in/out")); err != nil {
		t.Fatal(err)
	}
	err := sent.WriteArchive(io.Discard, dir, "data")
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "data/in/out") {
		t.Error(err)
	}
	err = sent.WriteArchive(io.Discard, filepath.Join(dir, "none"), "none")
	if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "none") {
		t.Error(err)
	}
}
