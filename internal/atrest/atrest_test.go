package atrest

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/soukhq/souk/fault"
)

func keyFile(t *testing.T, lines ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(EnvFile, file)
}

var one, two = strings.Repeat("1", 64), strings.Repeat("2", 64) //nolint:gochecknoglobals // constants

func open(t *testing.T, path string, raw []byte, want string, due bool) {
	t.Helper()
	got, again, err := Open(path, raw)
	if err != nil || string(got) != want || again != due {
		t.Errorf("%q, %v, %v; want %q, %v", got, again, err, want, due)
	}
}

func seal(t *testing.T, path, data string) []byte {
	t.Helper()
	out, err := Seal(path, []byte(data))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func refused(t *testing.T, path string, raw []byte, kind fault.Kind) {
	t.Helper()
	if got, _, err := Open(path, raw); !fault.Is(err, kind) || fault.CodeOf(err) != Fault {
		t.Errorf("%q, %v", got, err)
	}
}

// TestKeyCanBeAddedRotatedAndRemoved goes through the life of a key from outside: none, the first, the next, and none again.
func TestKeyCanBeAddedRotatedAndRemoved(t *testing.T) {
	const path, data = "/a/secrets.key", "0123456789abcdef"
	t.Setenv(EnvFile, "")
	t.Setenv(envCredentials, "")
	clear := seal(t, path, data)
	open(t, path, clear, data, false)

	keyFile(t, one)
	open(t, path, clear, data, true)
	sealed := seal(t, path, data)
	if bytes.Contains(sealed, []byte(data)) || bytes.Equal(sealed, seal(t, path, data)) {
		t.Errorf("%s", sealed)
	}
	open(t, path, sealed, data, false)
	open(t, "/moved/secrets.key", sealed, data, false)
	refused(t, "/a/member.pem", sealed, fault.Precondition) // one file in the place of another
	refused(t, path, sealed[:len(sealed)-41], fault.Precondition)
	refused(t, path, sealed[:20], fault.Invalid)

	keyFile(t, two, one)
	open(t, path, sealed, data, true)
	next := seal(t, path, data)
	keyFile(t, two)
	open(t, path, next, data, false)
	refused(t, path, sealed, fault.Precondition)

	keyFile(t, none, two)
	open(t, path, next, data, true)
	open(t, path, clear, data, false)
	if again := seal(t, path, data); string(again) != data {
		t.Errorf("%q", again)
	}
	t.Setenv(EnvFile, "")
	refused(t, path, next, fault.Precondition)
}

// TestKeyComesFromFileOrCredential: a file that is named, or a credential; what cannot be a key is refused.
func TestKeyComesFromFileOrCredential(t *testing.T) {
	t.Setenv(EnvFile, "")
	dir := t.TempDir()
	t.Setenv(envCredentials, dir)
	if got := seal(t, "x", "data"); string(got) != "data" {
		t.Error("sealed without a key")
	}
	if err := os.WriteFile(filepath.Join(dir, Credential), []byte(one), 0o440); err != nil {
		t.Fatal(err)
	}
	if got := seal(t, "x", "data"); string(got) == "data" {
		t.Error("the credential is not used")
	}
	for _, lines := range [][]string{{"short"}, {""}, {none}, {one, "short"}} {
		keyFile(t, lines...)
		refused(t, "x", []byte("data"), fault.Invalid)
	}
	keyFile(t, one)
	if err := os.Chmod(os.Getenv(EnvFile), 0o604); err != nil {
		t.Fatal(err)
	}
	refused(t, "x", []byte("data"), fault.Denied)
	t.Setenv(EnvFile, filepath.Join(dir, "missing"))
	refused(t, "x", []byte("data"), fault.Unavailable)
}
