package server

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cli"
)

// agentReading returns the command souk agent after it has taken a command line and a file, and what the file was
// refused for.
func agentReading(t *testing.T, file string, argv ...string) (*cobra.Command, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.toml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := Agent(&cli.Env{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}})
	if err := cmd.ParseFlags(argv); err != nil {
		t.Fatal(err)
	}
	return cmd, readFile(cmd, path)
}

// anotherValue returns a value that a flag takes and does not have by default, as a file has it and as the flag prints
// it.
func anotherValue(f *pflag.Flag) (inFile, printed string) {
	switch f.Value.Type() {
	case "bool":
		return fmt.Sprint(f.DefValue != "true"), fmt.Sprint(f.DefValue != "true")
	case "int", "int64":
		return "7", "7"
	case "float64":
		return "0.25", "0.25"
	case "policy":
		return `"fcfs"`, "fcfs"
	case "size":
		return `"96m"`, "96"
	case "stringArray":
		return `["x=1", "y,z"]`, `[x=1,"y,z"]`
	}
	return `"other"`, "other"
}

// TestAgentFlagsAreConfigKeysAndOverrideTheFile: each flag of souk agent is a key of its file, and one that is given on the command line wins.
func TestAgentFlagsAreConfigKeysAndOverrideTheFile(t *testing.T) {
	n := 0
	Agent(&cli.Env{}).LocalFlags().VisitAll(func(f *pflag.Flag) {
		if slices.Contains(neverKept, f.Name) {
			return
		}
		n++
		inFile, printed := anotherValue(f)
		cmd, err := agentReading(t, f.Name+" = "+inFile+"\n")
		if err != nil {
			t.Errorf("%s = %s: %v", f.Name, inFile, err)
			return
		}
		if got := cmd.Flags().Lookup(f.Name).Value.String(); got != printed {
			t.Errorf("%s = %s gives %s", f.Name, inFile, got)
		}
	})
	if n < 30 {
		t.Errorf("%d flags were looked at", n)
	}
}

func TestAgentFileReadsEveryKey(t *testing.T) {
	cmd, err := agentReading(t, `
region = "fra"
attr   = ["zone=a"]
gpu    = ["a100:2"]
peers  = ["10.0.0.8:4282"]
cpus   = 3
`, "--region", "ams", "--attr", "disk=ssd")
	if err != nil {
		t.Fatal(err)
	}
	list := func(name string) []string {
		got, _ := cmd.Flags().GetStringArray(name)
		return got
	}
	if region, _ := cmd.Flags().GetString("region"); region != "ams" {
		t.Errorf("region %s", region)
	}
	cpus, _ := cmd.Flags().GetInt("cpus")
	if cpus != 3 || !slices.Equal(list("attr"), []string{"zone=a", "disk=ssd"}) ||
		!slices.Equal(list("gpu"), []string{"a100:2"}) || !slices.Equal(list("peer"), []string{"10.0.0.8:4282"}) {
		t.Errorf("%d %q %q %q", cpus, list("attr"), list("gpu"), list("peer"))
	}
	for file, want := range map[string]string{
		"dir = \"x\"\n\nregoin = \"fra\"\n": "line 3: regoin is no setting of souk agent; did you mean region?",
		"cpus = \"many\"\n":                 "line 1: --cpus is a whole number, not \"many\"",
		"memory = 64.5\n":                   "line 1: --memory is whole MiB",
		"region = [\"a\", \"b\"]\n":         "line 1: --region has one value, and no list",
		"config = \"x\"\n":                  "line 1: config is no setting of souk agent",
		"json = true\n":                     "line 1: json is no setting of souk agent",
		"[proxy]\nhttp = \"x\"\n":           "line 1: proxy is no setting of souk agent",
		"attr = [[\"a\"], 1]\n":             "line 1: attr is a list of values",
		"region = 2026-01-01\n":             "line 1: region is a text, a number, true or false, or a list of them",
		"region = \"fra\n":                  "cannot be read:",
	} {
		if _, err := agentReading(t, file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", file, err, want)
		}
	}
}
