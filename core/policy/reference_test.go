package policy

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
)

// TestReferenceTablesAreCurrent holds the tables of docs/reference/policies.md to the fields, the built-in terms and the shipped
// policies.
func TestReferenceTablesAreCurrent(t *testing.T) {
	file := filepath.Join("..", "..", "docs", "reference", "policies.md")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const end = "<!-- end -->"
	head, rest, ok := strings.Cut(string(raw), " -update -->\n")
	_, tail, ends := strings.Cut(rest, end)
	if !ok || !ends {
		t.Fatalf("%s has no place for the tables", file)
	}
	want := head + " -update -->\n" + tables() + end + tail
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(raw) {
		t.Errorf("%s is out of date; write it with go test ./core/policy -run Reference -update", file)
	}
}

func tables() string {
	var b strings.Builder
	fields := func(of string, list []field) {
		fmt.Fprintf(&b, "\n| `%s.` | type | |\n| --- | --- | --- |\n", of)
		for _, f := range list {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.name, kindText(f.is), f.about)
		}
	}
	fields("request", fieldsOfRequest())
	fields("worker", workerFields())
	fields("worker.free", resourceFields())
	b.WriteString("\n`worker.capacity` and `worker.used` are as `worker.free`.\n\n## Built-in scores\n\n| builtin | " +
		"|\n| --- | --- |\n")
	for _, t := range Terms() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", t.Name, t.About)
	}
	b.WriteString("\n## Policies that come with souk\n\nThey are files as any other: `souk policy show NAME` prints " +
		"one to begin with.\n\n| policy | | scores, with their weights |\n| --- | --- | --- |\n")
	for _, s := range Builtins() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s.Name, s.Description, s.Summary())
	}
	b.WriteString("\n")
	return b.String()
}

func kindText(t *types.Type) string {
	switch t {
	case types.DoubleType:
		return "number"
	case types.StringType:
		return "text"
	case countsType:
		return "numbers by name"
	case dynMapType:
		return "values by name"
	case textsType:
		return "list of texts"
	case resourcesType:
		return "amounts, see below"
	}
	return cel.FormatCELType(t)
}
