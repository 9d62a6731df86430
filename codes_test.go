package souk_test

import (
	"go/ast"
	"go/token"
	"path"
	"strings"
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
