package main

import (
	"cmp"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
)

// documents are those that tell people what to type.
func documents(t *testing.T) []string {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	return append(files, "../../README.md", "../../SECURITY.md", "../../CHANGELOG.md")
}

var (
	fenced   = regexp.MustCompile("(?s)```.*?```")
	inCode   = regexp.MustCompile("`[^`\n]+`|(?m)^    .*$")
	aCommand = regexp.MustCompile(`(?:^|[\s` + "`" + `(|;&])souk ([a-z][^` + "`" + `|;&)#>,$\n]*)`)
	aFlag    = regexp.MustCompile(`(?:^|\s)(--?[a-z][a-z-]*)`)
	aWord    = regexp.MustCompile(`^[a-z][a-z-]*$`)
)

// Every command that a document has in code is one, with flags that it has, but where it says what is not there.
func TestDocumentsNameRealCommands(t *testing.T) {
	root := root(&cli.Env{Out: io.Discard, Err: io.Discard, Getenv: func(string) string { return "" }})
	found := 0
	for _, file := range documents(t) {
		if filepath.Base(file) == "not-there.md" {
			continue
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		plain := fenced.ReplaceAllStringFunc(string(raw), func(block string) string { // of a transcript what was typed
			var typed strings.Builder
			for line := range strings.Lines(block) {
				if _, command, is := strings.Cut(line, "$ "); is || strings.HasPrefix(block, "```sh") {
					typed.WriteString("    " + cmp.Or(command, line))
				} else if _, command, is := strings.Cut(line, "# "); is {
					typed.WriteString("    " + command)
				}
			}
			return typed.String()
		})
		for _, code := range inCode.FindAllString(plain, -1) {
			for _, m := range aCommand.FindAllStringSubmatch(code, -1) {
				line, _, _ := strings.Cut(m[1], " -- ")
				if why := unknownTo(root, line); why != "" {
					t.Errorf("%s: souk %s: %s", filepath.Base(file), line, why)
				}
				found++
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d commands were found", found)
	}
}

// unknownTo says what of a command line there is not; "" when all is.
func unknownTo(root *cobra.Command, line string) string {
	cmd := root
	for _, word := range strings.Fields(line) {
		sub, _, err := cmd.Find([]string{word})
		if !aWord.MatchString(word) || err != nil || sub == cmd {
			break
		}
		cmd = sub
	}
	if cmd == root {
		return "there is no such command"
	}
	cmd.InitDefaultHelpFlag()
	for _, m := range aFlag.FindAllStringSubmatch(line, -1) {
		name := strings.TrimLeft(m[1], "-")
		short := func(r rune) bool { return cmd.Flags().ShorthandLookup(string(r)) != nil }
		if !strings.HasPrefix(m[1], "--") && !strings.ContainsFunc(name, func(r rune) bool { return !short(r) }) {
			continue // -it is -i -t
		}
		if cmd.Flags().Lookup(name) == nil && root.PersistentFlags().Lookup(name) == nil {
			return "it has no flag " + m[1]
		}
	}
	return ""
}

// An installed program has no directory docs: help names documents by what prints them. The commands that write some of
// them are used where the source is.
func TestHelpNamesNoDocumentFiles(t *testing.T) {
	c := &cli.Env{Out: io.Discard, Err: io.Discard, Getenv: func(string) string { return "" }}
	var each func(cmd *cobra.Command)
	each = func(cmd *cobra.Command) {
		text := cmd.Short + cmd.Long + cmd.Example + cmd.Flags().FlagUsages()
		if strings.Contains(text, "docs/") && cmd.CommandPath() != "souk sim" && cmd.Parent().Name() != "sim" {
			t.Errorf("the help of %q names a file of docs", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			each(sub)
		}
	}
	each(root(c))
}
