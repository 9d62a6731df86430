package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/oci/engine"
)

// TestRefused: what the first process of a container says twice is final, in souk's words where souk has some. What is
// of this moment, or was another thing before, is not.
func TestRefused(t *testing.T) {
	const head = "runc create failed: unable to start container process: error during container init: "
	said := func(why string) error {
		log := filepath.Join(t.TempDir(), "log")
		line := `{"level":"error","msg":"` + strings.ReplaceAll(head+why, `"`, `\"`) + `"}`
		if err := os.WriteFile(log, []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		return engine.Said(log, errors.New("/usr/sbin/runc did not terminate successfully: exit status 1"))
	}
	for _, c := range []struct{ first, second, want string }{
		{"mkdir /file: not a directory", "mkdir /file: not a directory",
			"the program cannot begin in the directory /file: not a directory; change the image's WORKDIR, or what " +
				"is there"},
		{`chdir to cwd ("/x") set in config.json failed: permission denied`,
			`chdir to cwd ("/x") set in config.json failed: permission denied`,
			"the program cannot begin in the directory /x: permission denied; change the image's WORKDIR, or what is " +
				"there"},
		{`error mounting "/run/m-1-0badcafe/hosts" to rootfs at "/etc/hosts": not a directory`,
			`error mounting "/run/m-1-deadbeef/hosts" to rootfs at "/etc/hosts": not a directory`,
			`the container can be made neither now nor later: error mounting "/run/m-1/hosts" to rootfs at "/etc/hosts": ` +
				`not a directory; change the image or the launch`},
		{"a", "b", ""},
		{"fork: cannot allocate memory", "fork: cannot allocate memory", ""},
	} {
		err := engine.Refused(said(c.first), said(c.second))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%q: %v", c.second, err)
		case c.want != "" && (!fault.Is(err, fault.Precondition) || err.Error() != c.want):
			t.Errorf("%q:\n%v, want\n%s", c.second, err, c.want)
		}
	}
	if engine.Refused(nil, said("a")) != nil {
		t.Error("once is final")
	}
}
