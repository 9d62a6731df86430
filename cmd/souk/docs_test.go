package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cli"
)

// generated holds a file to what the code says, or with -update rewrites it.
func generated(t *testing.T, name, want string) {
	t.Helper()
	file := filepath.Join("..", "..", filepath.FromSlash(name))
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is out of date; write it with: go test ./cmd/souk -run Docs -update\n%s", name, diff)
	}
}

func TestDocsExitCodesAreCurrent(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# Exit codes

Generated from cli/exit.go. They do not change: scripts may depend on them.

| code | means | |
| ---: | --- | --- |
`)
	for _, d := range cli.ExitDocs() {
		fmt.Fprintf(&b, "| %d | %s | %s |\n", d.Code, d.Name, d.Text)
	}
	b.WriteString(`
` + "`souk wait`, `souk exec` and `souk run --attach`" + ` end with the task's own code, as a shell tells it: 128+n when signal n ended
it. A code of souk's own can then look the same, so tell them apart by stderr: whenever it is souk that failed, the last
line there begins with ` + "`souk: `" + ` (with ` + "`--json`" + ` it is an object with the keys error, kind, code and exit).

` + "`souk plan`" + ` answers with its code: 0 fits now, 1 not now, 2 never as it stands. When souk could not say, it ends with a code
of the table from 65 on, or with 2 and a message about the command line.

` + "`souk deploy --plan`" + ` ends with 1 where there is something to do and it fits, and with 75 or 78 where it does not.

A command that is given several machines does all it can, prints an error for each that failed, and ends with the
largest of their codes.
`)
	generated(t, "docs/reference/exit-codes.md", b.String())
}

func TestDocsCommandsAreCurrent(t *testing.T) {
	c := &cli.Env{Out: io.Discard, Err: io.Discard, Getenv: func(string) string { return "" }}
	root := root(c)
	var b bytes.Buffer
	b.WriteString(
		"# Commands\n\nGenerated from the commands below cli. The flags below \"Everywhere\" go with every command " +
			"at which they have an\neffect, which its help lists; elsewhere they are refused, with 2. --json and " +
			"--wide go with all.\n\n" +
			"## Everywhere\n\n",
	)
	flagList(&b, root.PersistentFlags())
	var each func(cmd *cobra.Command)
	each = func(cmd *cobra.Command) {
		if cmd.Name() == "help" || cmd.Name() == "completion" || cmd.Hidden {
			return
		}
		if cmd != root {
			commandDoc(&b, cmd)
			if cmd.Example == "" && cmd.Runnable() {
				t.Errorf("%s has no example", cmd.CommandPath())
			}
		}
		for _, sub := range cmd.Commands() {
			each(sub)
		}
	}
	each(root)
	generated(t, "docs/reference/cli.md", b.String())
}

func commandDoc(b *bytes.Buffer, cmd *cobra.Command) {
	fmt.Fprintf(b, "\n## %s\n\n", cmd.CommandPath())
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	if strings.Contains(text, "\n  ") { // a table in plain text
		first, rest, _ := strings.Cut(text, "\n\n  ")
		text = first + "\n\n```\n  " + rest + "\n```"
	}
	fmt.Fprintf(b, "%s\n\n```\n%s\n```\n", text, cmd.UseLine())
	if cmd.Example != "" {
		fmt.Fprintf(
			b,
			"\nFor example:\n\n```sh\n%s\n```\n",
			strings.ReplaceAll(strings.TrimPrefix(cmd.Example, "  "), "\n  ", "\n"),
		)
	}
	if cmd.LocalNonPersistentFlags().HasAvailableFlags() || cmd.PersistentFlags().HasAvailableFlags() {
		b.WriteString("\n")
		flagList(b, cmd.LocalFlags())
	}
}

func flagList(b *bytes.Buffer, fs *pflag.FlagSet) {
	b.WriteString("| flag | |\n| --- | --- |\n")
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		kind, usage := pflag.UnquoteUsage(f)
		if kind != "" {
			name += " " + kind
		}
		if d := f.DefValue; d != "" && d != "false" && d != "0" && d != "0s" && d != "[]" {
			usage += fmt.Sprintf(" (default %s)", d)
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", name, strings.ReplaceAll(usage, "|", "\\|"))
	})
}
