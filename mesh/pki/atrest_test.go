package pki

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/soukhq/souk/internal/atrest"
)

// TestDiskCopyHoldsNoClearKey: with a key from outside no file of a member or of the CA holds a key in clear, also none
// that was there before and none that is made anew; and without it nothing of them can be used (security L11).
func TestDiskCopyHoldsNoClearKey(t *testing.T) {
	t.Setenv(atrest.EnvFile, "")
	dir, now := t.TempDir(), begin()
	ca, err := Init(filepath.Join(dir, "ca"), now)
	must(t, err)
	who := Name{ID: "w1", Roles: []Role{Worker, Issuer}}
	must(t, ca.IssueTo(filepath.Join(dir, "identity"), who, now))
	clear := func() (out []string) {
		t.Helper()
		must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			raw, err := os.ReadFile(path)
			if bytes.Contains(raw, []byte(keyBlock)) || bytes.Contains(raw, []byte(gossipBlock)) {
				out = append(out, filepath.Base(path))
			}
			return err
		}))
		return out
	}
	if got := len(clear()); got != 3 { // member.pem, root-1.pem, gossip.keys
		t.Fatal(clear())
	}

	key := filepath.Join(t.TempDir(), "key")
	must(t, os.WriteFile(key, []byte(strings.Repeat("k", 64)), 0o600))
	t.Setenv(atrest.EnvFile, key)
	id, err := Load(filepath.Join(dir, "identity"))
	must(t, err)
	must(t, ca.Guard())
	check := func(when string) {
		t.Helper()
		if got := clear(); len(got) > 0 {
			t.Errorf("%s keys are in clear in %v", when, got)
		}
	}
	check("once it has begun")
	renew(t, ca, id, now.Add(RenewAfter))
	must(t, ca.Prepare(now))
	k, err := ca.RotateGossip(now)
	must(t, err)
	_, err = ca.AdvanceGossip(k.Generation)
	must(t, err)
	bundle, err := ca.Bundle()
	must(t, err)
	must(t, id.Trust(bundle, now.Add(RenewAfter)))
	if _, err := NewRequest(filepath.Join(dir, "joins")); err != nil {
		t.Fatal(err)
	}
	check("after a renewal and two rotations")

	// What is made for another host can be read there.
	out := t.TempDir()
	must(t, ca.IssueTo(out, Name{ID: "w2", Roles: []Role{Worker}}, now))
	t.Setenv(atrest.EnvFile, "")
	_, err = Load(out)
	must(t, err)

	_, err = Load(filepath.Join(dir, "identity"))
	wantCode(t, err, atrest.Fault)
	wantCode(t, ca.Guard(), atrest.Fault)
	wantCode(t, ca.IssueTo(t.TempDir(), who, now), atrest.Fault)
	_, err = ca.RotateGossip(now)
	wantCode(t, err, atrest.Fault)
}
