package souk_test

import (
	"go/ast"
	"go/token"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// Bounds on what a reader must hold in mind at once.
const (
	maxFunction = 70  // lines
	maxColumns  = 120 // of a line of code; a tab counts four
)

// TestNoFunctionIsTooLong bounds functions. Packages and types have no bound: a count is met by packing.
func TestNoFunctionIsTooLong(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			if n := s.fset.Position(fn.End()).Line - s.fset.Position(fn.Pos()).Line; n > maxFunction {
				t.Errorf("%s: %s has %d lines; none may have more than %d", s.fset.Position(fn.Pos()), fn.Name.Name, n,
					maxFunction)
			}
		}
	}
}

// TestCodeLinesFit120Columns bounds the columns of a line of code. Comments, raw strings and words that cannot be broken may
// be longer.
func TestCodeLinesFit120Columns(t *testing.T) {
	free := regexp.MustCompile(`\S{100,}|^\s*//|//nolint:`)
	for _, s := range sources(t) {
		raw, err := os.ReadFile(s.path)
		if err != nil {
			t.Fatal(err)
		}
		inRaw := rawStrings(s)
		for i, line := range strings.Split(string(raw), "\n") {
			columns := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
			if columns > maxColumns && !inRaw[i+1] && !free.MatchString(line) {
				t.Errorf("%s:%d has %d columns; no line may have more than %d", s.path, i+1, columns, maxColumns)
			}
		}
	}
}

// rawStrings returns the lines of a file on which a raw string stands.
func rawStrings(s source) map[int]bool {
	lines := map[int]bool{}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && lit.Value[0] == '`' {
			for i := s.fset.Position(lit.Pos()).Line; i <= s.fset.Position(lit.End()).Line; i++ {
				lines[i] = true
			}
		}
		return true
	})
	return lines
}

// givenUp reads the glossary's second table: words that no identifier uses, and what is said instead.
func givenUp(t *testing.T) map[string]string {
	t.Helper()
	raw, err := os.ReadFile("docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(raw), "\n## Words that the code does not use\n")
	if !found {
		t.Fatal("docs/glossary.md has no table of words that the code does not use")
	}
	out := map[string]string{}
	for _, line := range strings.Split(table, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || strings.HasPrefix(cells[1], " ---") || strings.TrimSpace(cells[1]) == "word" {
			continue
		}
		for word := range strings.SplitSeq(cells[1], ",") {
			out[strings.TrimSpace(word)] = strings.TrimSpace(cells[2])
		}
	}
	return out
}

// TestIdentifiersUseNoWordTheGlossaryGivesUp keeps the glossary: a word is explained once, and identifiers use none that was given up.
func TestIdentifiersUseNoWordTheGlossaryGivesUp(t *testing.T) {
	words := givenUp(t)
	if len(words) < 10 {
		t.Fatalf("the glossary gives up %d words only; is its table read?", len(words))
	}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, d := range s.file.Decls {
			for _, id := range declared(d) {
				for _, w := range camelWords(id.Name) {
					if say, bad := words[w]; bad {
						t.Errorf("%s: %s uses %q; say %s (docs/glossary.md)", s.fset.Position(id.Pos()), id.Name, w,
							say)
					}
				}
			}
		}
	}
}

// TestGlossaryExplainsEachWordOnce: the glossary's first table has each word once.
func TestGlossaryExplainsEachWordOnce(t *testing.T) {
	raw, err := os.ReadFile("docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(string(raw), "\n## ")
	seen := map[string]bool{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, m := range regexp.MustCompile(`\*\*([^*]+)\*\*`).FindAllStringSubmatch(cells[1], -1) {
			word := m[1]
			if _, rest, of := strings.Cut(cells[1], "** of "); of {
				word += " of " + strings.TrimSpace(rest)
			}
			if seen[word] {
				t.Errorf("the glossary explains %q twice", word)
			}
			seen[word] = true
		}
	}
	if len(seen) < 50 {
		t.Errorf("only %d words were read", len(seen))
	}
}

// declared lists the names that a declaration makes: functions, types, their fields, constants and variables.
func declared(d ast.Decl) (out []*ast.Ident) {
	if fn, ok := d.(*ast.FuncDecl); ok {
		return []*ast.Ident{fn.Name}
	}
	for _, spec := range d.(*ast.GenDecl).Specs {
		switch spec := spec.(type) {
		case *ast.ValueSpec:
			out = append(out, spec.Names...)
		case *ast.TypeSpec:
			out = append(out, spec.Name)
			if st, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range st.Fields.List {
					out = append(out, f.Names...)
				}
			}
			if it, ok := spec.Type.(*ast.InterfaceType); ok {
				for _, f := range it.Methods.List {
					out = append(out, f.Names...)
				}
			}
		}
	}
	return out
}

// camelWords splits an identifier at its capitals: "takeFreeSeat" is take, free, seat.
func camelWords(name string) (out []string) {
	word := ""
	for _, r := range path.Base(name) {
		if (unicode.IsUpper(r) || r == '_') && word != "" {
			out, word = append(out, strings.ToLower(word)), ""
		}
		if r != '_' {
			word += string(r)
		}
	}
	return append(out, strings.ToLower(word))
}
