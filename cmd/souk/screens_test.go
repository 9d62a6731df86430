package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
)

// TestHelpFits: no line of any help is longer than 80 columns, or than the terminal where that is narrower. Only a word
// that cannot be broken may be.
func TestHelpFits(t *testing.T) {
	for _, width := range []int{0, 40, 80, 200} {
		var out bytes.Buffer
		c := &cli.Env{Out: &out, Err: io.Discard, Width: width, Getenv: func(string) string { return "" }}
		root := root(c)
		root.SetOut(&out)
		most := 80
		if width > 0 {
			most = min(width, most)
		}
		var each func(cmd *cobra.Command)
		each = func(cmd *cobra.Command) {
			out.Reset()
			if err := cmd.Help(); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(out.String()) {
				line = strings.TrimRight(line, "\n")
				words := strings.Fields(strings.TrimSuffix(line, `\`))
				if cli.TextWidth(line) > most && len(words) > 1 {
					t.Errorf("at %d columns, %s --help: %q", width, cmd.CommandPath(), line)
				}
			}
			for _, sub := range cmd.Commands() {
				each(sub)
			}
		}
		each(root)
	}
}
