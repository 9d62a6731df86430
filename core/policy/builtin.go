package policy

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"github.com/soukhq/souk/core/placement"
)

//go:embed builtin/*.toml
var shipped embed.FS

// DefaultName is the policy that is used by default.
const DefaultName = "spread"

const (
	gpuFragmentation   = "gpu-fragmentation"
	aboutFragmentation = "1 where the GPU that is left can be used by the typical requests, 0 where it becomes " +
		"useless to them (FGD)"
)

// Builtins returns the policies that come with souk, ordered by name. They are files like any other.
func Builtins() []*Source {
	names, err := fs.Glob(shipped, "builtin/*.toml")
	if err != nil {
		panic("policy: the shipped policies cannot be listed: " + err.Error())
	}
	out := make([]*Source, 0, len(names))
	for _, name := range names {
		text, err := shipped.ReadFile(name)
		if err == nil {
			var s *Source
			if s, err = Load(text); err == nil {
				out = append(out, s)
				continue
			}
		}
		panic(fmt.Sprintf("policy: the shipped policy %s is broken: %v", name, err))
	}
	return out
}

// Terms lists the built-in terms that a score can name.
func Terms() []placement.Builtin {
	return append(placement.Builtins(), placement.Builtin{Name: gpuFragmentation, About: aboutFragmentation})
}

func builtinNames() []string {
	var out []string
	for _, b := range Terms() {
		out = append(out, b.Name)
	}
	return out
}

func findBuiltin(name string, typical []typicalText) *placement.Builtin {
	if name == gpuFragmentation {
		return fragmentationScore(typical)
	}
	for _, b := range placement.Builtins() {
		if b.Name == name {
			return &b
		}
	}
	return nil
}

func indexedPath(table string, i int) string { return fmt.Sprintf("%s[%d]", table, i) }

// Summary describes a policy in one line: its filters, and its scores with their weights.
func (s *Source) Summary() string {
	var parts []string
	for _, c := range s.filters {
		parts = append(parts, c.name)
	}
	for _, c := range s.scores {
		parts = append(parts, fmt.Sprintf("%s*%s", c.name, numberText(c.weight)))
	}
	return strings.Join(parts, " ")
}
