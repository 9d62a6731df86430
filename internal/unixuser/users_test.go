package unixuser_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/unixuser"
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
