package souk_test

import (
	"go/ast"
	"go/token"
	"path"
	"strings"
	"testing"
)

// codeConst is a constant of type fault.Code.
type codeConst struct{ pkg, name, code, says string }

// codes are the constants of type fault.Code, and the constants that are equal to one, by package and name.
type codes map[[2]string]*codeConst

func codesOf(all []source) codes {
	out := codes{}
	var alias []func()
	for _, s := range all {
		if s.test {
			continue
		}
		for _, d := range s.file.Decls {
			g, is := d.(*ast.GenDecl)
			if !is || g.Tok != token.CONST {
				continue
			}
			for _, spec := range g.Specs {
				v := spec.(*ast.ValueSpec)
				for i, n := range v.Names {
					key := [2]string{s.pkg, n.Name}
					switch {
					case i >= len(v.Values):
					case isCode(s, v.Type):
						out[key] = &codeConst{s.pkg, n.Name, literal(v.Values[i]), saysOf(g, v, n.Name)}
					case v.Type == nil:
						alias = append(alias, func() {
							if c := out.of(s, v.Values[i]); c != nil {
								out[key] = c
							}
						})
					}
				}
			}
		}
	}
	for _, a := range alias {
		a()
	}
	return out
}

// isCode reports whether an expression is the type fault.Code.
func isCode(s source, x ast.Expr) bool {
	switch t := x.(type) {
	case *ast.Ident:
		return s.pkg == "fault" && t.Name == "Code"
	case *ast.SelectorExpr:
		id, is := t.X.(*ast.Ident)
		return is && id.Name == "fault" && t.Sel.Name == "Code"
	}
	return false
}

// saysOf returns what a constant's comment says of it, from a comment behind it or from the sentence before it.
func saysOf(g *ast.GenDecl, v *ast.ValueSpec, name string) string {
	if v.Comment != nil {
		return strings.TrimSpace(v.Comment.Text())
	}
	text, _, _ := strings.Cut(strings.ReplaceAll(g.Doc.Text()+" ", "\n", " "), ". ")
	text, is := strings.CutPrefix(text, name+" says that ")
	if !is {
		return ""
	}
	return strings.TrimSpace(text)
}

// of returns the constant that an expression of a file names, nil where it names none.
func (c codes) of(s source, x ast.Expr) *codeConst {
	switch v := x.(type) {
	case *ast.Ident:
		return c[[2]string{s.pkg, v.Name}]
	case *ast.SelectorExpr:
		id, is := v.X.(*ast.Ident)
		if !is {
			return nil
		}
		for _, i := range s.file.Imports {
			p, ours := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), module)
			if ours && (i.Name != nil && i.Name.Name == id.Name || i.Name == nil && path.Base(p) == id.Name) {
				return c[[2]string{p, v.Sel.Name}]
			}
		}
	}
	return nil
}

// text returns the code that an expression of a file is, as a constant or written out; "" for others.
func (c codes) text(s source, x ast.Expr) string {
	if k := c.of(s, x); k != nil {
		return k.code
	}
	return literal(x)
}

// TestErrorCodesAreDeclaredOnceAsConstants: a code of an error is written out once, as a constant of type fault.Code with a sentence, and
// what goes with an error is read by fault.Detail alone. Tests may write codes out: what they pin is the text.
func TestErrorCodesAreDeclaredOnceAsConstants(t *testing.T) {
	all := sources(t)
	known := codesOf(all)
	declared := map[string]*codeConst{}
	for key, c := range known {
		if key != [2]string{c.pkg, c.name} {
			continue // another name of it
		}
		switch first := declared[c.code]; {
		case first != nil:
			t.Errorf("%q is both %s.%s and %s.%s; declare it once, in fault where the two packages share none", c.code,
				first.pkg, first.name, c.pkg, c.name)
		case c.code == "" || c.says == "":
			t.Errorf("%s.%s has no text or no sentence that says what it means", c.pkg, c.name)
		}
		declared[c.code] = c
	}
	if len(declared) < 500 {
		t.Fatalf("only %d codes were found", len(declared))
	}
	used := usesOf(all, known)
	for _, c := range known {
		if used[c] < 2 { // once where it is declared
			t.Errorf("no error has the code %s.%s; remove it", c.pkg, c.name)
		}
	}
	takes := takersOfCodes(all)
	compared, given, asserted := 0, 0, 0
	for _, s := range all {
		if s.pkg == "fault" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if a, is := n.(*ast.TypeAssertExpr); is && selects(a.X, "Detail") {
				asserted++
				t.Errorf("%s: a Detail is asserted; use fault.Detail", s.fset.Position(n.Pos()))
			}
			if s.test {
				return true
			}
			for _, x := range comparedCodes(n) {
				compared++
				t.Errorf("%s: a code is compared with %s; use a constant", s.fset.Position(x.Pos()), x.Value)
			}
			for _, x := range givenCodes(s, takes, n) {
				given++
				t.Errorf("%s: the code %s is written out; use a constant", s.fset.Position(x.Pos()), x.Value)
			}
			return true
		})
	}
	if t.Failed() {
		t.Logf("%d codes compared and %d given as literals, %d Details asserted", compared, given, asserted)
	}
}

// usesOf counts how often the product's code names each constant.
func usesOf(all []source, known codes) map[*codeConst]int {
	out := map[*codeConst]int{}
	for _, s := range all {
		if s.test {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if x, is := n.(ast.Expr); is {
				if c := known.of(s, x); c != nil {
					out[c]++
				}
			}
			return true
		})
	}
	return out
}

// codeLiteral returns a text that is written out, where an expression is one.
func codeLiteral(x ast.Expr) *ast.BasicLit {
	if b, is := x.(*ast.BasicLit); is && b.Kind == token.STRING && b.Value != `""` {
		return b
	}
	return nil
}

func selects(x ast.Expr, name string) bool {
	s, is := x.(*ast.SelectorExpr)
	return is && s.Sel.Name == name
}

// holdsCode reports whether an expression is the code of an error: CodeOf(err), or a field Code. The clauses of a verdict,
// each named c, have codes of their own.
func holdsCode(x ast.Expr) bool {
	switch v := x.(type) {
	case *ast.CallExpr:
		return selects(v.Fun, "CodeOf")
	case *ast.SelectorExpr:
		of, is := v.X.(*ast.Ident)
		return v.Sel.Name == "Code" && (!is || of.Name != "c")
	}
	return false
}

// comparedCodes returns the literals that a comparison or a switch compares codes with.
func comparedCodes(n ast.Node) (out []*ast.BasicLit) {
	switch x := n.(type) {
	case *ast.BinaryExpr:
		if x.Op != token.EQL && x.Op != token.NEQ {
			return nil
		}
		for _, pair := range [][2]ast.Expr{{x.X, x.Y}, {x.Y, x.X}} {
			if b := codeLiteral(pair[1]); b != nil && holdsCode(pair[0]) {
				out = append(out, b)
			}
		}
	case *ast.SwitchStmt:
		if x.Tag == nil || !holdsCode(x.Tag) {
			return nil
		}
		for _, c := range x.Body.List {
			for _, e := range c.(*ast.CaseClause).List {
				if b := codeLiteral(e); b != nil {
					out = append(out, b)
				}
			}
		}
	}
	return out
}

// taker names a function of a package; "" is of any package.
type taker struct{ pkg, name string }

// takersOfCodes returns which arguments of which functions are codes.
func takersOfCodes(all []source) map[taker][]int {
	out := map[taker][]int{{"", "New"}: {1}, {"", "Wrap"}: {2}} // of package fault
	for _, s := range all {
		for _, d := range s.file.Decls {
			f, is := d.(*ast.FuncDecl)
			if !is || s.pkg == "fault" {
				continue
			}
			at := 0
			for _, p := range f.Type.Params.List {
				for range max(1, len(p.Names)) {
					if isCode(s, p.Type) {
						out[taker{s.pkg, f.Name.Name}] = append(out[taker{s.pkg, f.Name.Name}], at)
					}
					at++
				}
			}
		}
	}
	return out
}

// givenCodes returns the literals that are given as codes: to a function, as a field of a fault.Error, or to one that is
// there.
func givenCodes(s source, takes map[taker][]int, n ast.Node) (out []*ast.BasicLit) {
	add := func(x ast.Expr) {
		if b := codeLiteral(x); b != nil {
			out = append(out, b)
		}
	}
	switch x := n.(type) {
	case *ast.CallExpr:
		who := taker{s.pkg, ""}
		switch f := x.Fun.(type) {
		case *ast.Ident:
			who.name = f.Name
		case *ast.SelectorExpr:
			who.name = f.Sel.Name
			if id, is := f.X.(*ast.Ident); is && id.Name == "fault" {
				who.pkg = ""
			}
		}
		for _, at := range takes[who] {
			if at < len(x.Args) {
				add(x.Args[at])
			}
		}
		if isCode(s, x.Fun) {
			add(x.Args[0])
		}
	case *ast.CompositeLit: // an error has a Kind as well
		if e, is := keyed(x)["Code"]; is && keyed(x)["Kind"] != nil {
			add(e)
		}
	case *ast.AssignStmt:
		for i, l := range x.Lhs {
			if i < len(x.Rhs) && holdsCode(l) {
				add(x.Rhs[i])
			}
		}
	}
	return out
}

// keyed returns the values of a literal by their keys.
func keyed(l *ast.CompositeLit) map[string]ast.Expr {
	out := map[string]ast.Expr{}
	for _, el := range l.Elts {
		if kv, is := el.(*ast.KeyValueExpr); is {
			if key, is := kv.Key.(*ast.Ident); is {
				out[key.Name] = kv.Value
			}
		}
	}
	return out
}
