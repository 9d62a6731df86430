package engine_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/engine"
)

// TestRepeatedEngineErrorIsFinal: what the first process of a container says twice is final, in souk's words where souk has some. What is
// of this moment, or was another thing before, is not.
func TestRepeatedEngineErrorIsFinal(t *testing.T) {
	const head = "runc create failed: unable to start container process: error during container init: "
	said := func(why string) error {
		log := filepath.Join(t.TempDir(), "log")
		line := `{"level":"error","msg":"` + strings.ReplaceAll(head+why, `"`, `\"`) + `"}`
		if err := os.WriteFile(log, []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		e := engine.Engine{Path: "/usr/sbin/runc"}
		return e.Said(log, errors.New("/usr/sbin/runc did not terminate successfully: exit status 1"))
	}
	for _, c := range []struct{ first, second, want string }{
		{"mkdir /file: not a directory", "mkdir /file: not a directory",
			"the program cannot begin in the directory /file: not a directory; change the image's WORKDIR, or the " +
				"directory itself"},
		{`chdir to cwd ("/x") set in config.json failed: permission denied`,
			`chdir to cwd ("/x") set in config.json failed: permission denied`,
			"the program cannot begin in the directory /x: permission denied; change the image's WORKDIR, or the " +
				"directory itself"},
		{`error mounting "/run/m-1-0badcafe/hosts" to rootfs at "/etc/hosts": not a directory`,
			`error mounting "/run/m-1-deadbeef/hosts" to rootfs at "/etc/hosts": not a directory`,
			`the container can never be made: error mounting "/run/m-1/hosts" to rootfs at "/etc/hosts": ` +
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

// TestEngineErrorTextsAreRecognized: sentences of versions that are not here.
func TestEngineErrorTextsAreRecognized(t *testing.T) {
	for _, x := range []struct {
		by, said string
		code     fault.Code
	}{
		{"runc", `exec: "/etc": is a directory`, runtime.CodeNotExecutable}, // 1.5.2
		{"crun", "executable file `/nope` not found: No such file or directory", runtime.CodeNoProgram},
		{"crun", "the path `/etc` is not a regular file: Operation not permitted", runtime.CodeNotExecutable}, // 1.21
		{"crun", "exec container process `/junk`: Exec format error", runtime.CodeNotExecutable},
		{"crun", "unknown version specified", engine.CodeNever}, // 1.8.1
		{"runc", "cgroups: cgroup mountpoint does not exist", engine.CodeNever},
		{"runc", `mountpoint for devices not found`, engine.CodeNever},
		{"crun", "fork: Resource temporarily unavailable", "engine"},
		{"crun", "write to `/proc/self/uid_map`: Cannot allocate memory", "engine"},
		{"runsc", "cannot read client sync file: waiting for sandbox to start: EOF", "engine"},
	} {
		log := filepath.Join(t.TempDir(), "log")
		raw, err := json.Marshal(map[string]string{"level": "error", "msg": x.said})
		if err == nil {
			err = os.WriteFile(log, raw, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		e := engine.Engine{Path: "/usr/bin/" + x.by}
		if err := e.Said(log, errors.New("exit status 1")); fault.CodeOf(err) != x.code {
			t.Errorf("%s says %s: %v, code %s, want %s", x.by, x.said, err, fault.CodeOf(err), x.code)
		}
	}
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte(`{"msg":"a","level":"error"}{"msg":"b","level":"error"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (engine.Engine{Path: "runsc"}).Said(log, errors.New("c")); !strings.HasSuffix(err.Error(), ": a: b: c") {
		t.Errorf("two sentences in a line: %v", err)
	}
}
