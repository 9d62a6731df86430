package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/atrest"
	"github.com/soukhq/souk/store/journal/mem"
)

func TestSecretKeyFileIsPrivateAndRequired(t *testing.T) {
	j, key := mem.New(), filepath.Join(t.TempDir(), "key")
	c, err := Open(j, key)
	if err != nil {
		t.Fatal(err)
	}
	value := "hush-hush"
	if _, err := c.Apps.CreateApp("a", "", "", ""); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Secrets.SetSecrets("a", map[string]*string{"PEPPER": &value}); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spoil func() error
		code  fault.Code
	}{
		"gone":            {func() error { return os.Remove(key) }, "key_file"},
		"readable by all": {func() error { return os.Chmod(key, 0o644) }, "key_file"},
		"cut":             {func() error { return os.WriteFile(key, good[:10], 0o600) }, "key_file"},
		"not hexadecimal": {func() error { return os.WriteFile(key, []byte(strings.Repeat("z", 64)), 0o600) },
			"key_file"},
		"longer":            {func() error { return os.WriteFile(key, append(good, good...), 0o600) }, "key_file"},
		"another (at open)": {func() error { return os.WriteFile(key, []byte(strings.Repeat("0", 64)), 0o600) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.spoil(); err != nil {
				t.Fatal(err)
			}
			catalog, err := Open(j.Reopen(), key)
			if fault.CodeOf(err) != c.code {
				t.Errorf("got %v", err)
			}
			if err == nil {
				if _, err := catalog.Secrets.OpenSecrets(plain("a")); fault.CodeOf(err) != "unseal" {
					t.Errorf("another key opens the secrets: %v", err)
				}
			}
			if err := os.RemoveAll(key); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			if err := os.WriteFile(key, good, 0o600); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestDiskCopyOpensNoSecret: with a key from outside the key of the secrets is sealed, at the latest at the first
// start with it, and a copy of the directory opens none (security L11).
func TestDiskCopyOpensNoSecret(t *testing.T) {
	t.Setenv(atrest.EnvFile, "")
	j, path := mem.New(), filepath.Join(t.TempDir(), "secrets.key")
	open := func() (map[string]string, error) {
		c, err := Open(j.Reopen(), path)
		if err != nil {
			return nil, err
		}
		return c.Secrets.OpenSecrets(plain("a"))
	}
	c, err := Open(j, path)
	if err != nil {
		t.Fatal(err)
	}
	value := "hunter2"
	if _, err := c.Apps.CreateApp("a", "", "", ""); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Secrets.SetSecrets("a", map[string]*string{"PASSWORD": &value}); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("k", 64)), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(atrest.EnvFile, key)
	for range 2 {
		if got, err := open(); err != nil || got["PASSWORD"] != value {
			t.Fatal(got, err)
		}
	}
	after, err := os.ReadFile(path)
	if err != nil || bytes.Contains(after, bytes.TrimSpace(before)) {
		t.Errorf("the key is in clear in its file (%v)", err)
	}
	t.Setenv(atrest.EnvFile, "")
	if got, err := open(); fault.CodeOf(err) != atrest.Fault {
		t.Errorf("a copy of the directory opens %v, %v", got, err)
	}
}

// TestCatalogKeepsAcknowledgedCommits fails the journal at every commit and wants what was acknowledged, and nothing else, after it.
func TestCatalogKeepsAcknowledgedCommits(t *testing.T) {
	for n := range 8 {
		j, key := mem.New(), filepath.Join(t.TempDir(), "key")
		c, err := Open(j, key)
		if err != nil {
			t.Fatal(err)
		}
		j.FailAfter(n)
		apps, secrets := map[string]bool{}, map[string]string{}
		value := "v"
		for i := range 4 {
			name := fmt.Sprintf("app-%d", i)
			if _, err := c.Apps.CreateApp(name, "", "", ""); err == nil {
				apps[name] = true
			}
			if _, _, err := c.Secrets.SetSecrets(name, map[string]*string{"S": &value}); err == nil {
				secrets[name] = value
			}
		}
		select {
		case <-c.Failed(): // whoever runs it is to end: room that comes back later does not mend what is in memory
		default:
			t.Errorf("after %d commits a commit failed and nobody is told", n)
		}
		again, err := Open(j.Reopen(), key)
		if err != nil {
			t.Fatal(err)
		}
		if got := again.Apps.AllApps(); len(got) != len(apps) {
			t.Errorf("after %d commits there are %d apps, and %d were acknowledged", n, len(got), len(apps))
		}
		for name, want := range secrets {
			if got, err := again.Secrets.OpenSecrets(plain(name)); err != nil || got["S"] != want {
				t.Errorf("after %d commits the secret of %s is %v (%v)", n, name, got, err)
			}
		}
	}
}

func TestUnreadableCatalogIsRefused(t *testing.T) {
	for name, r := range map[string]fsm.Record{
		"damaged": {Bucket: bucketApp, Key: "a", Value: []byte(`{"name":`)},
		"newer":   {Bucket: "bazaar", Key: "a", Value: []byte(`{}`)},
	} {
		j := mem.New()
		if err := j.Commit([]fsm.Record{r}); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(j, filepath.Join(t.TempDir(), "key")); fault.CodeOf(err) != "catalog" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestIdempotencyKeysExpireAfterADay: a key counts for a day, and then neither it nor its record stays.
func TestIdempotencyKeysExpireAfterADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := mem.New()
		c, err := Open(j, filepath.Join(t.TempDir(), "key"))
		if err != nil {
			t.Fatal(err)
		}
		claim := func(key, hash, id string) string {
			t.Helper()
			got, err := c.Keys.Claim("a", key, hash, "0000000000000"+id)
			if err != nil {
				t.Fatal(err)
			}
			got.End(cluster.IsMade)
			return strings.TrimLeft(got.Machine, "0")
		}
		if claim("k", "h", "1") != "1" || claim("k", "h", "2") != "1" {
			t.Error("a key is not bound to its first id")
		}
		<-time.After(KeyLife - time.Minute)
		if claim("k", "h", "3") != "1" {
			t.Error("a key is forgotten too early")
		}
		<-time.After(time.Minute + time.Second)
		if claim("k", "other", "4") != "4" {
			t.Error("a key counts after its time")
		}
		<-time.After(KeyLife + time.Second)
		claim("k2", "h", "5")
		n := 0
		c.Keys.settleKeys(time.Now())
		if err := j.Load(func(fsm.Record) error { n++; return nil }); err != nil || n != 1 || c.Keys.table.all.n != 1 {
			t.Errorf("%d keys are remembered, %d on disk (%v)", c.Keys.table.all.n, n, err)
		}
	})
}
