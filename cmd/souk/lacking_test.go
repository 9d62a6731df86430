package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/soukhq/souk/internal/needs"
	"github.com/soukhq/souk/runtime/oci"
)

// envLacking has TestHelpersOfScriptsWork run, in a process of its own.
const envLacking = "SOUK_TEST_LACKING"

// helperScripts is a script for each command and condition of ours that takes a program which a bare Debian lacks, and
// which these are.
func helperScripts() map[string]helperScript {
	all := map[string]helperScript{
		"registry":   {"registry", []string{"docker-registry", "busybox"}},
		"busybox":    {"busybox bb.tar", []string{"busybox"}},
		"web":        {"[!web] skip 'this host has no curl, or no busybox with httpd'", []string{"busybox", "curl"}},
		"containers": {"[!containers] skip 'this host has no runc'", []string{"runc"}},
		"sandboxes":  {"[!sandboxes] skip 'this host has no runsc'", []string{"runsc"}},
	}
	for tool := range needs.Packages() {
		all["needs-"+tool] = helperScript{"needs " + tool, []string{tool}}
	}
	return all
}

type helperScript struct {
	text  string
	takes []string
}

// wholeTests are tests that take programs before they begin.
var wholeTests = map[string][]string{ //nolint:gochecknoglobals // a constant
	"TestNetworkScriptsPass":               {"runc", "ip", "unshare"},
	"TestBetweenScriptsOfSeveralHostsPass": {"runc", "ip", "unshare", "nft", "nsenter", "sysctl"},
	"TestReadmeImageIsCurrent":             {"runc", "ip", "unshare", "busybox"},
	"TestReadmeHTTPIsCurrent":              {"busybox", "curl"},
	"TestReadmeClusterIsCurrent":           {"ip", "nsenter", "busybox", "curl"},
}

// TestHelpersOfScriptsWork is what TestMissingProgramSkipsOnlyItsTests runs.
func TestHelpersOfScriptsWork(t *testing.T) {
	if os.Getenv(envLacking) == "" {
		t.Skip("TestMissingProgramSkipsOnlyItsTests runs it")
	}
	dir := t.TempDir()
	for name, s := range helperScripts() {
		if err := os.WriteFile(filepath.Join(dir, name+".txt"), []byte(s.text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	runScripts(t, dir)
}

// TestMissingProgramSkipsOnlyItsTests: with each of the programs missing in turn that a bare Debian lacks, the scripts and tests that
// take it are skipped by name, the others pass; in CI those fail, with a sentence. None panics.
func TestMissingProgramSkipsOnlyItsTests(t *testing.T) {
	farm := t.TempDir()
	linkPrograms(t, farm)
	for tool := range needs.Packages() {
		link := filepath.Join(farm, tool)
		program, err := os.Readlink(link)
		if err == nil {
			err = os.Remove(link)
		}
		if err != nil {
			t.Logf("this host lacks %s itself", tool)
		}
		for _, ci := range []string{"", "true"} {
			withoutTool(t, farm, tool, ci)
		}
		if program != "" {
			if err := os.Symlink(program, link); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// linkPrograms makes a directory of links to all programs on the PATH.
func linkPrograms(t *testing.T, farm string) {
	t.Helper()
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		entries, _ := os.ReadDir(dir) // a PATH may name what is not there
		for _, e := range entries {
			err := os.Symlink(filepath.Join(dir, e.Name()), filepath.Join(farm, e.Name()))
			if err != nil && !os.IsExist(err) { // the first of a name is found
				t.Fatal(err)
			}
		}
	}
}

func withoutTool(t *testing.T, farm, tool, ci string) {
	t.Helper()
	tests := []string{"TestHelpersOfScriptsWork"}
	for name, takes := range wholeTests {
		if slices.Contains(takes, tool) {
			tests = append(tests, name)
		}
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.count=1",
		"-test.run=^("+strings.Join(tests, "|")+")$")
	cmd.Env = append(os.Environ(), "PATH="+farm, "CI="+ci, envLacking+"=1", envApart+"=")
	raw, err := cmd.CombinedOutput()
	said := string(raw)
	if strings.Contains(said, "panic") || (err != nil) != (ci == "true") {
		t.Errorf("without %s, CI=%s: %v\n%s", tool, ci, err, said)
		return
	}
	without := map[string]bool{}
	for _, name := range tests[1:] {
		without[name] = true
	}
	for name, s := range helperScripts() {
		engine := map[string]string{"containers": oci.DefaultEngine, "sandboxes": oci.Sandbox}[name]
		without["TestHelpersOfScriptsWork/"+name] = slices.Contains(s.takes, tool) || needs.Lacks(s.takes...) != nil ||
			engine != "" && oci.Able(engine) != nil
	}
	for name, lacks := range without {
		want := "PASS"
		if lacks {
			want = map[bool]string{true: "FAIL", false: "SKIP"}[ci == "true"]
		}
		if !regexp.MustCompile(`--- ` + want + `: ` + name + ` \(`).MatchString(said) {
			t.Errorf("without %s, CI=%s, %s is no %s:\n%s", tool, ci, name, want, said)
		}
	}
	if !regexp.MustCompile(`this needs [^\n]*\b` + tool + `\b[^\n]* \(Debian: apt-get install [^)]+\)`).MatchString(said) {
		t.Errorf("without %s, CI=%s, nothing says how to install it:\n%s", tool, ci, said)
	}
}

// programsOfScripts are those that every Debian has: what scripts run beside them they say by needs, or have from a
// command or condition of ours.
const programsOfScripts = `souk sh bash awk cat chmod cmp cp cut echo grep head id kill ln ls mkfifo mv od printf readlink rm
	sed seq sha256sum sleep sort stat tail test timeout touch tr true uniq wc`

// shellRuns finds the words of a shell's line that stand where a program is named.
var shellRuns = regexp.MustCompile(`(?:^ -c '|[|;(&] *|\b(?:do|then|exec|while|until|if|!) +)([a-z][a-z0-9_.-]*)`)

// TestScriptsDeclareTheProgramsTheyRun: each script declares the programs that it runs, so that none passes only because something
// else has installed them.
func TestScriptsDeclareTheProgramsTheyRun(t *testing.T) {
	all, err := filepath.Glob("testdata/*/*.txt")
	if err != nil || len(all) < 50 {
		t.Fatal(all, err)
	}
	run := regexp.MustCompile(`(?m)^\s*(?:\[[^\]]*\]\s*)*(?:!\s*)?(?:exec|until|code [0-9]+)\s+(\S+)(.*)$`)
	for _, file := range all {
		if strings.HasPrefix(file, "testdata/screens/") {
			continue // text that is no script
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		script, _, _ := strings.Cut(string(raw), "\n-- ")
		has := strings.Fields(programsOfScripts)
		if strings.Contains(script, "[!web] skip") {
			has = append(has, "curl", "busybox")
		}
		for _, m := range regexp.MustCompile(`(?m)^needs (.*)$`).FindAllStringSubmatch(script, -1) {
			has = append(has, strings.Fields(m[1])...)
		}
		for _, m := range run.FindAllStringSubmatch(script, -1) {
			program := filepath.Base(m[1])
			if !strings.HasPrefix(m[1], "$WORK/") && !slices.Contains(has, program) {
				t.Errorf("%s runs %s; say at its head: needs %s", file, program, program)
			}
			for _, x := range shellRuns.FindAllStringSubmatch(m[2], -1) { // what a shell is told to run
				if _, err := exec.LookPath(x[1]); program == "sh" && err == nil && !slices.Contains(has, x[1]) {
					t.Errorf("%s runs %s in a shell; say at its head: needs %s", file, x[1], x[1])
				}
			}
		}
	}
}
