package relay_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime/reaper/relay"
)

// relayed executes a program by way of the relay, and returns its output and the relay's word.
func relayed(t *testing.T, f, dir *os.File, argv ...string) (out string, word []byte, err error) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var b bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "/proc/"+relay.Path)
	cmd.Args, cmd.Env, cmd.Stdout = argv, []string{"WHO=me"}, &b
	cmd.ExtraFiles = []*os.File{relay.WordFD - 3: w, relay.DirFD - 3: dir, relay.SelfFD - 3: f}
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.SetReadDeadline(time.Now().Add(waittest.Patience))
	word, rerr := io.ReadAll(r)
	if rerr != nil {
		t.Fatal(rerr)
	}
	err = cmd.Wait()
	return b.String(), word, err
}

// openRelay opens the relay and a directory.
func openRelay(t *testing.T, path string) (f, dir *os.File) {
	t.Helper()
	f, err := relay.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if dir, err = os.Open(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	return f, dir
}

// TestRelayExecutes a program with its arguments and environment in the directory, and says nothing.
func TestRelayExecutes(t *testing.T) {
	path := t.TempDir()
	f, dir := openRelay(t, path)
	out, word, err := relayed(t, f, dir, "/bin/sh", "a name", "-c", "pwd; echo $0 $1 $WHO; kill -9 $$", "zero", "one")
	if want := path + "\nzero one me\n"; out != want || len(word) != 0 || err == nil {
		t.Errorf("%q, %q, %v; want %q", out, word, err, want)
	}
}

// TestRelaySaysWhyItFails: with the errno of exec, or of entering the directory.
func TestRelaySaysWhyItFails(t *testing.T) {
	path := t.TempDir()
	f, dir := openRelay(t, path)
	plain := filepath.Join(path, "plain")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, file := openRelay(t, plain)
	for _, c := range []struct {
		dir  *os.File
		path string
		want syscall.Errno
	}{
		{dir, "/no/such/program", syscall.ENOENT},
		{dir, "plain", syscall.EACCES},
		{file, "/bin/true", syscall.ENOTDIR},
	} {
		_, word, err := relayed(t, f, c.dir, c.path, "a name")
		code, is := errors.AsType[*exec.ExitError](err)
		if len(word) != relay.WordSize || !is || code.ExitCode() != 127 {
			t.Errorf("%s: %q, %v", c.path, word, err)
			continue
		}
		if got := syscall.Errno(-int64(binary.NativeEndian.Uint64(word))); got != c.want {
			t.Errorf("%s: %v, want %v", c.path, got, c.want)
		}
	}
}
