package unixuser_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/unixuser"
	"github.com/soukhq/souk/internal/wait/waittest"
)

func TestParseRefusesWhatAdmitsNobodyForCertain(t *testing.T) {
	for text, want := range map[string]string{
		"all": "", "alice": "", "alice, bob ,@lab": "", "a.b_c-d$": "",
		"root": "root is never", "alice,root": "root is never", "all,alice": "not both", "alice,all": "not both",
		"1000": "is no name", "alice,": "is no name", "@": "is no name", "-x": "is no name", "a:b": "is no name",
		strings.Repeat("abcdefghi,", 26) + "z": "@GROUP",
	} {
		u, err := unixuser.Parse(text)
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", text, err)
		case want == "" && u.String() != strings.ReplaceAll(text, " ", ""):
			t.Errorf("%q became %q", text, u)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v", text, err)
		}
	}
	if u, err := unixuser.Parse(""); u != nil || err != nil {
		t.Errorf("nobody: %v, %v", u, err)
	}
}

// TestAccountsAreThoseOfTheHost looks up users that every Debian has, and compares with what id(1) says.
func TestAccountsAreThoseOfTheHost(t *testing.T) {
	if _, err := exec.LookPath("getent"); err != nil {
		t.Skip("getent is not on this host")
	}
	for _, name := range []string{"root", "nobody", "daemon"} {
		a, err := unixuser.Named(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := unixuser.Numbered(t.Context(), a.UID); err != nil || b.Name != name {
			t.Errorf("%d is %+v, %v", a.UID, b, err)
		}
		out, err := exec.Command("id", "-g", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		if g := strings.TrimSpace(string(out)); !slices.Contains(a.Groups, a.GID) || a.Home == "" || a.Shell == "" ||
			(g == "0") != (a.GID == 0) {
			t.Errorf("%+v, and id -g says %s", a, g)
		}
	}
	for _, name := range []string{"no-such-user-here", "0", "1000", "", "-h", "a b"} {
		if a, err := unixuser.Named(t.Context(), name); !fault.Is(err, fault.NotFound) {
			t.Errorf("%q: %+v, %v", name, a, err)
		}
	}
	if a, err := unixuser.Numbered(t.Context(), 3_999_999_999); !fault.Is(err, fault.NotFound) {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestNobodyIsAdmittedUnasked(t *testing.T) {
	find := func(text, name string, uid uint32) error {
		t.Helper()
		u, err := unixuser.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		_, err = u.Find(t.Context(), cluster.UnixUser{Name: name, UID: uid})
		return err
	}
	daemon, err := unixuser.Named(t.Context(), "daemon")
	if err != nil {
		t.Skip(err)
	}
	for _, c := range []struct {
		text, name string
		uid        uint32
		code       fault.Code // "": admitted
	}{
		{"", "daemon", daemon.UID, fault.CodeUnixUser},
		{"all", "daemon", daemon.UID, fault.CodeUnixUser}, // one of the system
		{"all", "nobody", 65534, fault.CodeUnixUser},
		{"all", "root", 0, fault.CodeRoot},
		{"@root", "root", 0, fault.CodeRoot},
		{"other", "daemon", daemon.UID, fault.CodeUnixUser},
		{"@no-such-group-here", "daemon", daemon.UID, fault.CodeUnixUser},
		{"daemon", "daemon", daemon.UID, ""},
		{"@daemon", "daemon", daemon.UID, ""},
		{"daemon", "daemon", daemon.UID + 1, fault.CodeUnixUser}, // the other host's number is another
		{"no-such-user-here", "no-such-user-here", 5000, fault.CodeUnixUser},
	} {
		if err := find(c.text, c.name, c.uid); fault.CodeOf(err) != c.code || (err == nil) != (c.code == "") {
			t.Errorf("%q admits %s (%d): %v", c.text, c.name, c.uid, err)
		}
	}
	if os.Geteuid() == 0 {
		u, err := unixuser.Parse("all")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := u.Numbered(t.Context(), 0); fault.CodeOf(err) != fault.CodeRoot {
			t.Errorf("root by number: %v", err)
		}
	}
}

// nameService puts programs of its own in the place of getent and id, and returns the file that says how getent ends:
// "0" the service knows alice, "1" the service does not answer. Each question adds a line to the second file.
func nameService(t *testing.T) (mode, asked string) {
	t.Helper()
	dir := t.TempDir()
	mode, asked = filepath.Join(dir, "mode"), filepath.Join(dir, "asked")
	for name, script := range map[string]string{
		"getent": `echo "$@" >> ` + asked + `; [ "$(cat ` + mode + `)" = 0 ] || exit 1
echo alice:x:1001:1001::/home/alice:/bin/sh`,
		"id": "echo 1001 2000",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return mode, asked
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestManyAskAndTheNameServiceIsAskedOnce: any user of a host can make souk ask, and souk is root.
func TestManyAskAndTheNameServiceIsAskedOnce(t *testing.T) {
	mode, asked := nameService(t)
	write(t, mode, "0")
	u, err := unixuser.Parse("all")
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := u.Numbered(gone, 1001); err != nil && !fault.Is(err, fault.Timeout) {
		t.Errorf("a caller that is gone: %v", err)
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if a, err := u.Numbered(t.Context(), 1001); err != nil || a.Name != "alice" || len(a.Groups) != 2 {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
	all.Wait()
	raw, err := os.ReadFile(asked)
	if err != nil || strings.Count(string(raw), "\n") != 1 {
		t.Errorf("it was asked %q, %v", raw, err)
	}
}

// TestUserStaysWhileTheNameServiceIsDown: the last good answer holds; one who was never known is not let in.
func TestUserStaysWhileTheNameServiceIsDown(t *testing.T) {
	mode, _ := nameService(t)
	write(t, mode, "0")
	synctest.Test(t, func(t *testing.T) {
		u, err := unixuser.Parse("all")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := u.Numbered(t.Context(), 1001); err != nil {
			t.Fatal(err)
		}
		write(t, mode, "1")
		waittest.Pass(time.Minute)
		if a, err := u.Numbered(t.Context(), 1001); err != nil || a.Name != "alice" {
			t.Errorf("a minute later, with the name service down: %+v, %v", a, err)
		}
		if _, err := u.Numbered(t.Context(), 1002); !fault.Is(err, fault.Unavailable) {
			t.Errorf("one who is not known: %v", err)
		}
	})
}
