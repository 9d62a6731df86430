package main

import (
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
)

// elsewhere are programs of examples that a bare Linux lacks, as readers know.
var elsewhere = []string{"/usr/bin/python3", "/usr/bin/psql"} //nolint:gochecknoglobals // a constant

// TestHelpExamplesAreValidCommands: each example of help is a line that its command takes, and names a program that every Linux has,
// or one below /opt, which is plainly the reader's own.
func TestHelpExamplesAreValidCommands(t *testing.T) {
	c := &cli.Env{Out: io.Discard, Err: io.Discard, Getenv: func(string) string { return "" }}
	seen := 0
	var each func(cmd *cobra.Command)
	each = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			for _, argv := range commandsOf(line) {
				seen++
				checkExample(t, c, cmd.CommandPath(), argv)
			}
		}
		for _, sub := range cmd.Commands() {
			each(sub)
		}
	}
	each(root(c))
	if seen < 150 {
		t.Errorf("only %d examples were looked at", seen)
	}
}

func checkExample(t *testing.T, c *cli.Env, of string, argv []string) {
	t.Helper()
	text := strings.Join(argv, " ")
	cmd, rest, err := root(c).Find(argv)
	if err != nil {
		t.Errorf("%s: %q: %v", of, text, err)
		return
	}
	if err := cmd.ParseFlags(rest); err != nil {
		t.Errorf("%s: %q: %v", of, text, err)
		return
	}
	args := cmd.Flags().Args()
	if err := cmd.ValidateArgs(args); err != nil {
		t.Errorf("%s: %q: %v", of, text, err)
	}
	if dash := cmd.Flags().ArgsLenAtDash(); dash >= 0 && dash < len(args) {
		program := args[dash]
		if _, err := os.Stat(program); err != nil && strings.Contains(program, "/") &&
			!strings.HasPrefix(program, "/opt/") && !slices.Contains(elsewhere, program) {
			t.Errorf("%s: %q: %v", of, text, err)
		}
		if strings.HasPrefix(program, ".") {
			t.Errorf("%s: %q names a program that is nowhere: a machine begins in its own directory", of, text)
		}
	}
}

// commandsOf splits a line of a shell, and returns the arguments of each souk in it.
func commandsOf(line string) (all [][]string) {
	var words []string
	var word strings.Builder
	var quote rune
	in, takes := false, true // within a word; what comes is of a command
	end := func() {
		if in && takes {
			words = append(words, word.String())
		}
		in = false
		word.Reset()
	}
	command := func() {
		end()
		for i, w := range words {
			if w == "souk" {
				all = append(all, words[i+1:])
				break
			}
		}
		words, takes = nil, true
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, in = r, true
		case r == ' ' || r == '\n':
			end()
		case r == '|' || r == ';' || r == '&' || r == '(' || r == ')':
			command()
		case r == '<' || r == '>':
			end()
			takes = false // a file
		case r == '#' && !in:
			command()
			return all
		default:
			in = true
			word.WriteRune(r)
		}
	}
	command()
	return all
}
