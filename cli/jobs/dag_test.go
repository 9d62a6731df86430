package jobs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJobsOfAFileComeInOrder(t *testing.T) {
	all, err := readJobs("f.toml", []byte(`
[report]
command = ["cat"]
after = ["any:sweep", "prepare", "j0123456789"]
[sweep]
command = ["true"]
array = "1-9:2%2"
cpus = 2
env = ["A=1", "B=2"]
hold = true
after = "prepare"
[prepare]
command = ["sh", "-c", "echo"]
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, j := range all {
		got = append(got, j.name)
	}
	if d := cmp.Diff([]string{"prepare", "sweep", "report"}, got); d != "" {
		t.Error(d)
	}
	sweep := all[1].flags
	if sweep.array != "1-9:2%2" || sweep.cpus != 2 || len(sweep.env) != 2 || !sweep.order.hold ||
		sweep.name != "sweep" {
		t.Errorf("%+v", sweep)
	}
	if len(all[2].after) != 3 || all[2].after[0].Kind != "any" {
		t.Errorf("%+v", all[2].after)
	}
}

func TestFilesOfJobsThatAreWrongAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "0 jobs",
		"[a":                                   "f.toml:1:",
		"a = 1":                                "a table for each job",
		"[a]":                                  "[a] has no command",
		"[a]\ncommand = \"ls -l\"":             "command is a list",
		"[a]\ncommand = [[\"ls\"]]":            "list of texts",
		"[a]\ncommand = [\"ls\"]\nspeed = 3":   "speed is no key of a job",
		"[a]\ncommand = [\"ls\"]\nwait = true": "wait is no key of a job",
		"[a]\ncommand = [\"ls\"]\ncpus = \"two\"":       "cpus = \"two\" is not understood",
		"[a]\ncommand = [\"ls\"]\ncpus = { x = 1 }":     "cpus: it is a text",
		"[a]\ncommand = [\"ls\"]\nafter = [\"soon:b\"]": "KIND is ok, any",
		"[a]\ncommand = [\"ls\"]\nstdin = \"-\"":        "no job of a file reads",
		"[a]\ncommand = [\"ls\"]\nafter = [\"a\"]":      "a after a",
		"[a]\ncommand = [\"ls\"]\nafter = [\"b\"]\n[b]\ncommand = [\"ls\"]\nafter = [\"any:c\"]\n[c]\ncommand = " +
			"[\"ls\"]\nafter = [\"b\"]": "b after c after b",
		strings.Repeat("[x]\n", 2): "f.toml:2:",
	} {
		if _, err := readJobs("f.toml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	var many strings.Builder
	for i := range maxFileJobs + 1 {
		many.WriteString("[j" + strings.Repeat("x", i) + "]\ncommand = [\"ls\"]\n")
	}
	if _, err := readJobs("f.toml", []byte(many.String())); err == nil || !strings.Contains(err.Error(), "1 to 200") {
		t.Errorf("%v", err)
	}
}
