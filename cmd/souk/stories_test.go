package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/soukhq/souk/internal/needs"
	"github.com/soukhq/souk/runtime/image/imagetest"
)

const (
	keyTest   = "test"   // the script's own test
	keyPushed = "pushed" // the registries of its own that push has made
)

// runStories runs the scripts of a directory. Each has these commands, too:
//
//	needs PROGRAM...   skip the script, by its name, where one of these is not on the PATH; in CI it fails
//
// stdout, stderr and grep compare what is left when ids and hashes are masked (see masked), so that no script depends on
// which were drawn.
func runStories(t *testing.T, dir string, p testscript.Params) {
	setup := p.Setup
	p.Setup = func(env *testscript.Env) error {
		env.Values[keyTest] = env.T().(testing.TB)
		env.Values[keyPushed] = map[string]*imagetest.Registry{}
		return setup(env)
	}
	p.RequireExplicitExec = true
	p.Cmds["needs"] = func(ts *testscript.TestScript, _ bool, args []string) { needs.Programs(testOf(ts), args...) }
	for name := range matchers {
		p.Cmds["masked-"+name] = scriptMatch(name)
	}
	p.Files = withMaskedMatches(t, dir)
	testscript.Run(t, p)
}

// testOf returns the test that a script is. A command that skips, fails or cleans up does it by this one: testing lets no
// test skip its parent, which has returned by then, and panics.
func testOf(ts *testscript.TestScript) testing.TB { return ts.Value(keyTest).(testing.TB) }

// matchers are the commands of testscript that hold a text against an expression. They cannot be replaced, for its own
// commands take precedence; so in the scripts that run they have other names. cmp needs no mask: two texts that are equal
// are so with it.
var matchers = map[string]bool{"stdout": true, "stderr": true, "grep": true} //nolint:gochecknoglobals // a constant

var matchLine = regexp.MustCompile(`^(\s*(?:\[[^\]]*\]\s*)*(?:!\s*)?)(stdout|stderr|grep)(\s|$)`) //nolint:gochecknoglobals

// withMaskedMatches writes the scripts of a directory anew with the names that mask, line by line.
func withMaskedMatches(t *testing.T, dir string) (files []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(all) == 0 {
		t.Fatalf("no scripts in %s: %v", dir, err)
	}
	to := filepath.Join(t.TempDir(), filepath.Base(dir))
	if err := os.Mkdir(to, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, from := range all {
		raw, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(to, filepath.Base(from))
		if err := os.WriteFile(file, []byte(withMasks(string(raw))), 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

func withMasks(script string) string {
	lines := strings.SplitAfter(script, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "-- ") { // its files begin
			break
		}
		lines[i] = matchLine.ReplaceAllString(line, "${1}masked-$2$3")
	}
	return strings.Join(lines, "")
}

// scriptMatch is testscript's stdout, stderr or grep over masked text: NAME [-count=N] PATTERN, and a file for grep.
func scriptMatch(name string) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		want, counts := "", len(args) > 0 && strings.HasPrefix(args[0], "-count=")
		if counts {
			want, args = strings.TrimPrefix(args[0], "-count="), args[1:]
		}
		file, more := name, 0
		if name == "grep" {
			more = 1
		}
		if len(args) != 1+more || counts && neg {
			ts.Fatalf("usage: %s [-count=N] 'pattern' (and a file, for grep)", name)
		}
		if more == 1 {
			file = args[1]
		}
		if err := matches(args[0], ts.ReadFile(file), neg, want); err != nil {
			ts.Fatalf("%s: %v", file, err)
		}
	}
}
