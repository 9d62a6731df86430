package server

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/soukhq/souk/fault"
)

// A directory that others have prepared gives souk neither a token nor a file to write to (security L1).
func TestStateDirectoryPreparedByOthersIsRefused(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(dir string) error
		code    fault.Code // "": it is used
	}{
		{"of its own", func(string) error { return nil }, ""},
		{"others write", func(dir string) error { return os.Chmod(dir, 0o777) }, "dir_mode"},
		{"the lock is a link", func(dir string) error {
			return os.Symlink(filepath.Join(dir, "victim"), filepath.Join(dir, "lock"))
		}, "dir"},
		{"the token is a link", func(dir string) error {
			return os.Symlink(filepath.Join(dir, "victim"), filepath.Join(dir, "token"))
		}, "token_file"},
		{"others read the token", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "token"), []byte("a token that others can read"), 0o644)
		}, "token_file"},
		{"the token is another's", func(dir string) error {
			file := filepath.Join(dir, "token")
			if err := os.WriteFile(file, []byte("a token that somebody else wrote"), 0o600); err != nil {
				return err
			}
			return os.Chown(file, 65534, 65534)
		}, "token_file"},
		{"another's", func(dir string) error { return os.Chown(dir, 65534, 65534) }, "dir_owner"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if os.Geteuid() != 0 && c.name[len(c.name)-2:] == "'s" {
				t.Skip("this needs root, to give a file away")
			}
			dir := t.TempDir()
			const kept = "what root had here\n"
			if err := os.WriteFile(filepath.Join(dir, "victim"), []byte(kept), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := c.prepare(dir); err != nil {
				t.Fatal(err)
			}
			lock, err := claimDir(dir, lockDir)
			if err == nil {
				_, err = tokenOf(dir)
				lock.Close()
			}
			if fault.CodeOf(err) != c.code || (err == nil) != (c.code == "") {
				t.Errorf("%v, want %q", err, c.code)
			}
			if raw, err := os.ReadFile(filepath.Join(dir, "victim")); err != nil || string(raw) != kept {
				t.Errorf("the file behind the link: %q, %v", raw, err)
			}
		})
	}
}
