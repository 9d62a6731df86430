// Command man writes souk's manual pages into a directory, from the documents: a page of section 1 for each command,
// one of section 7 for each document that "souk help TOPIC" prints.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"

	"github.com/soukhq/souk/docs"
)

func main() {
	if err := write(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

func write(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: man CLI.md DIR")
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	if err := os.MkdirAll(args[1], 0o755); err != nil {
		return err
	}
	pages := commandPages(string(text))
	for _, t := range docs.Topics() {
		pages["souk-"+t.Name+".7"] = page("souk-"+t.Name, 7, t.Title, strings.TrimPrefix(t.Text, "# "+t.Title))
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(args[1], name), md2man.Render([]byte(text)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// commandPages returns the text of each command's page by the page's name. The flags that every command has are on the
// page souk(1), with a list of the others.
func commandPages(reference string) map[string]string {
	_, rest, _ := strings.Cut(reference, "\n## ")
	pages := map[string]string{}
	var list strings.Builder
	sections := strings.Split(rest, "\n## ")
	for _, section := range sections[1:] {
		title, text, _ := strings.Cut(section, "\n")
		name := strings.ReplaceAll(title, " ", "-")
		first, _, _ := strings.Cut(strings.TrimSpace(text), "\n\n")
		first = strings.ReplaceAll(first, "\n", " ")
		if sentence, _, more := strings.Cut(first, ". "); more {
			first = sentence
		}
		fmt.Fprintf(&list, "* %s(1): %s\n", name, strings.TrimSuffix(first, "."))
		pages[name+".1"] = page(name, 1, strings.TrimSuffix(first, "."),
			flagList(text)+"\n# SEE ALSO\n\nsouk(1)\n")
	}
	_, everywhere, _ := strings.Cut(sections[0], "\n")
	pages["souk.1"] = page("souk", 1, "a cluster orchestrator with no central scheduler",
		"Each command has a page of its own.\n\n# FLAGS OF ALL COMMANDS\n"+flagList(everywhere)+
			"\n# COMMANDS\n\n"+list.String())
	return pages
}

var flagTable = regexp.MustCompile("(?m)^\\| flag \\| \\|\n\\| --- \\| --- \\|\n")

var flagRow = regexp.MustCompile("(?m)^\\| `(.*?)` \\| (.*) \\|\n")

// flagList makes a list of a table of flags: a column of text is too narrow on a terminal.
func flagList(text string) string {
	return flagRow.ReplaceAllString(flagTable.ReplaceAllString(text, "\n"), "**$1**\n: $2\n\n")
}

// page sets a page in the form that man and apropos want.
func page(name string, section int, what, text string) string {
	return fmt.Sprintf("%% %q \"%d\" \"\" \"souk\" \"souk\"\n\n# NAME\n\n%s - %s\n\n# DESCRIPTION\n\n%s",
		strings.ToUpper(name), section, name, what, strings.TrimSpace(text))
}
