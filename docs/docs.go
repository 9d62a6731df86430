// Package docs holds the documents that souk shows by itself ("souk help TOPIC"), so that a program that is installed
// alone has them.
package docs

import (
	"embed"
	"path"
	"slices"
	"strings"
)

//go:embed operating.md security.md break-glass.md glossary.md from-fly.md from-nomad.md from-slurm.md
//go:embed reference/api.md reference/config.md reference/errors.md reference/exit-codes.md reference/history.md
//go:embed reference/policies.md reference/quota.md reference/release.md reference/souk-toml.md
var files embed.FS

// Topic is one document.
type Topic struct {
	Name  string // as a user types it: the file's name without its end
	Title string // its first heading
	Text  string // Markdown, the heading included
}

// Topics returns all documents by name.
func Topics() []Topic {
	var list []Topic
	for _, dir := range []string{".", "reference"} {
		entries, err := files.ReadDir(dir)
		if err != nil {
			panic(err) // they are part of the program
		}
		for _, e := range entries {
			if e.IsDir() {
				continue
			}
			text, err := files.ReadFile(path.Join(dir, e.Name()))
			if err != nil {
				panic(err)
			}
			title, _, _ := strings.Cut(string(text), "\n")
			list = append(list, Topic{Name: strings.TrimSuffix(e.Name(), ".md"), Title: strings.TrimPrefix(title, "# "),
				Text: string(text)})
		}
	}
	slices.SortFunc(list, func(a, b Topic) int { return strings.Compare(a.Name, b.Name) })
	return list
}
