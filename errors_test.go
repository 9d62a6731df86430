package souk_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var updateErrors = flag.Bool("update-errors", false, "write docs/reference/errors.md anew")

const errorsFile = "docs/reference/errors.md"

const errorsHead = `# Every error souk makes

The kind of an error decides the exit code (exit-codes.md) and the HTTP status; codes are for programs; texts are for
people. This file is written by ` + "`go test . -run ErrorTexts -update-errors`" + `, and a test fails when it is not what the
code says.

## Texts

One line for each place where an error is made: its package, its kind, its code, its text. %s stands for what was wanted,
what there was, or where.

| package | kind | code | text |
| --- | --- | --- | --- |
`

const codesHead = `
## Codes

One line for each code: the package that declares it, the kinds of the errors that have it, what it says. Those of package
fault are for several packages' errors.

| code | package | kinds | says that |
| --- | --- | --- | --- |
`

// errorText is one place where an error is made.
type errorText struct{ pkg, kind, code, text string }

// TestErrorTextsMatchTheReference holds the list of all error texts against the code, so that each is read as a sentence before it
// changes.
func TestErrorTextsMatchTheReference(t *testing.T) {
	var all []errorText
	files := sources(t)
	known := codesOf(files)
	for _, s := range files {
		if s.test || strings.HasPrefix(s.pkg, "tools") || s.pkg == "fault" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.CallExpr:
				if e, ok := madeByCall(s, known, x); ok {
					e.pkg = s.pkg
					all = append(all, e)
				}
			case *ast.CompositeLit:
				if e, ok := madeByLiteral(s, known, x); ok {
					e.pkg = s.pkg
					all = append(all, e)
				}
			}
			return true
		})
	}
	if len(all) < 300 {
		t.Fatalf("only %d errors were found", len(all))
	}
	var b strings.Builder
	b.WriteString(errorsHead)
	var lines []string
	for _, e := range all {
		if e.text == "" {
			continue // put together elsewhere; its parts are tested where they are made
		}
		checkSentence(t, e)
		lines = append(lines, fmt.Sprintf("| %s | %s | %s | %s |\n", e.pkg, e.kind, e.code,
			strings.ReplaceAll(strings.ReplaceAll(e.text, "|", "\\|"), "\n", "\\n")))
	}
	slices.Sort(lines)
	for _, l := range slices.Compact(lines) {
		b.WriteString(l)
	}
	b.WriteString(codesHead + codeLines(known, all))
	if *updateErrors {
		if err := os.WriteFile(errorsFile, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(errorsFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != b.String() {
		t.Errorf("%s is not what the code says; read the texts that changed, then run go test . -run ErrorTexts "+
			"-update-errors", errorsFile)
	}
}

// codeLines returns the table of codes.
func codeLines(known codes, all []errorText) string {
	kinds := map[string][]string{}
	for _, e := range all {
		if e.kind != "" && !slices.Contains(kinds[e.code], e.kind) {
			kinds[e.code] = append(kinds[e.code], e.kind)
		}
	}
	var lines []string
	for _, c := range known {
		slices.Sort(kinds[c.code])
		lines = append(lines, fmt.Sprintf("| %s | %s | %s | %s |\n", c.code, c.pkg, strings.Join(kinds[c.code], ", "),
			c.says))
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "")
}

// kindInFront matches a word for programs in front of a sentence, which api.StatusWord puts there for their clients alone.
var kindInFront = regexp.MustCompile(`^([a-z]+(_[a-z]+)+|aborted): `)

// checkSentence wants words with a beginning and an end: no kind in front, no trailing full stop or newline, no "failed to",
// more than one word.
func checkSentence(t *testing.T, e errorText) {
	t.Helper()
	text := strings.TrimSpace(e.text)
	switch {
	case text != e.text && !strings.HasSuffix(e.text, ": "): // what follows is put behind it
		t.Errorf("%s: %q has blanks around it", e.pkg, e.text)
	case kindInFront.MatchString(text):
		t.Errorf("%s: %q begins with a word for programs, which the kind and the code are", e.pkg, e.text)
	case strings.HasSuffix(text, "."):
		t.Errorf("%s: %q ends with a full stop; errors are joined", e.pkg, e.text)
	case strings.HasPrefix(strings.ToLower(text), "failed to"), strings.HasPrefix(strings.ToLower(text), "error "):
		t.Errorf("%s: %q says that it failed, not what to do", e.pkg, e.text)
	}
}

// madeByCall reads fault.New(kind, code, text, ...), fault.Wrap(err, kind, code, text, ...) and usagef(text, ...).
func madeByCall(s source, known codes, c *ast.CallExpr) (e errorText, ok bool) {
	at := -1
	switch f := c.Fun.(type) {
	case *ast.SelectorExpr:
		if id, isID := f.X.(*ast.Ident); isID && id.Name == "fault" {
			switch f.Sel.Name {
			case "New":
				at = 0
			case "Wrap":
				at = 1
			}
		}
	case *ast.Ident:
		if f.Name == "usagef" && len(c.Args) > 0 {
			return errorText{kind: "usage", text: literal(c.Args[0])}, true
		}
	}
	if at < 0 || len(c.Args) < at+3 {
		return e, false
	}
	return errorText{kind: name(c.Args[at]), code: known.text(s, c.Args[at+1]), text: literal(c.Args[at+2])}, true
}

// madeByLiteral reads fault.Error{Kind: ..., Code: ..., Text: ...}.
func madeByLiteral(s source, known codes, l *ast.CompositeLit) (e errorText, ok bool) {
	if t, is := l.Type.(*ast.SelectorExpr); !is || t.Sel.Name != "Error" {
		return e, false
	} else if id, is := t.X.(*ast.Ident); !is || id.Name != "fault" {
		return e, false
	}
	of := keyed(l)
	return errorText{kind: name(of["Kind"]), code: known.text(s, of["Code"]), text: literal(of["Text"])}, true
}

func name(x ast.Expr) string {
	if s, ok := x.(*ast.SelectorExpr); ok {
		return strings.ToLower(s.Sel.Name)
	}
	return ""
}

// literal gives a string that is written out, also in parts, also as fmt.Sprintf's first argument; "" for others.
func literal(x ast.Expr) string {
	switch v := x.(type) {
	case *ast.BasicLit:
		if v.Kind == token.STRING {
			s, err := strconv.Unquote(v.Value)
			if err == nil {
				return s
			}
		}
	case *ast.BinaryExpr:
		if v.Op == token.ADD {
			return literal(v.X) + literal(v.Y)
		}
	case *ast.CallExpr:
		if s, ok := v.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Sprintf" && len(v.Args) > 0 {
			return literal(v.Args[0])
		}
	}
	return ""
}
