package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// scriptRecipe runs a part of what stands indented below a heading of a document, line by line, as a user would type it:
// recipe FILE HEADING FIRST LAST [OLD=NEW]... runs from the line that begins with FIRST up to the one that begins with LAST.
// What a test has elsewhere than a host is replaced. The output of the last line is kept in $RECIPE.
func scriptRecipe(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 {
		ts.Fatalf("usage: recipe FILE HEADING FIRST LAST [OLD=NEW]...")
	}
	raw, err := os.ReadFile(filepath.Join("..", "..", args[0]))
	ts.Check(err)
	_, below, found := strings.Cut(string(raw), "# "+args[1]+"\n")
	if !found {
		ts.Fatalf("%s has no heading %q", args[0], args[1])
	}
	below, _, _ = strings.Cut(below, "\n#")
	var pairs []string
	for _, a := range args[4:] {
		old, with, _ := strings.Cut(a, "=")
		pairs = append(pairs, old, with)
	}
	begun, ended := false, false
	for line := range strings.Lines(below) {
		typed, indented := strings.CutPrefix(line, "    ")
		begun = begun || indented && strings.HasPrefix(typed, args[2])
		if !begun || ended || !indented {
			continue
		}
		ended = strings.HasPrefix(typed, args[3])
		cmd := exec.Command("/bin/sh", "-ec", strings.NewReplacer(pairs...).Replace(typed)) //nolint:gosec // the document's
		cmd.Dir = ts.Getenv("WORK")
		cmd.Env = []string{"PATH=" + ts.Getenv("PATH"), "HOME=" + ts.Getenv("HOME"),
			"SOUK_ADDR=" + ts.Getenv("SOUK_ADDR"), "SOUK_TOKEN=" + ts.Getenv("SOUK_TOKEN")}
		out, err := cmd.Output()
		if err != nil {
			ts.Fatalf("%s: %v\n%s", typed, err, out)
		}
		ts.Setenv("RECIPE", strings.TrimSpace(string(out)))
	}
	if !ended {
		ts.Fatalf("%s has below %q no lines from %q to %q", args[0], args[1], args[2], args[3])
	}
}
