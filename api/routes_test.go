package api

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// declaredOps returns the constants of type Op, by name.
func declaredOps(t *testing.T) map[string]Op {
	t.Helper()
	ops := map[string]Op{}
	files, err := filepath.Glob("routes_*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if id, ok := spec.Type.(*ast.Ident); !ok || id.Name != "Op" {
				return true
			}
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			ops[spec.Names[0].Name] = Op(text)
			return true
		})
	}
	return ops
}

// Every operation has one route, and every route is a declared operation.
func TestEveryOperationHasOneRoute(t *testing.T) {
	rows := map[Op]int{}
	for _, r := range Routes() {
		rows[r.Op]++
	}
	ops := declaredOps(t)
	if len(ops) != len(rows) {
		t.Errorf("%d operations are declared, and %d are in the table", len(ops), len(rows))
	}
	for name, op := range ops {
		if rows[op] != 1 {
			t.Errorf("%s (%s) has %d routes", name, op, rows[op])
		}
	}
}

// Verbs and kinds are small closed sets, of which each member is used; and what a verb says agrees with the method.
func TestVerbsAndKindsAreUsedAndMatchTheMethod(t *testing.T) {
	methods := []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	verbs, kinds := map[Verb]int{}, map[Kind]int{}
	for _, r := range Routes() {
		verbs[r.Verb]++
		kinds[r.Kind]++
		method := r.Op.Method()
		if !slices.Contains(Verbs(), r.Verb) {
			t.Errorf("%s has the verb %q, which is none", r.Op, r.Verb)
		}
		if !slices.Contains(Kinds(), r.Kind) {
			t.Errorf("%s has the kind %q, which is none", r.Op, r.Kind)
		}
		if !slices.Contains(methods, method) {
			t.Errorf("%s has an unknown method", r.Op)
		}
		// To read an instance's files is to act inside of it; all else that is got changes nothing.
		if method == http.MethodGet && !r.Verb.Reads() && r.Verb != VerbExec {
			t.Errorf("%s is got, and %s changes something", r.Op, r.Verb)
		}
		if method != http.MethodGet && r.Verb.Reads() && r.Verb != VerbPlan {
			t.Errorf("%s is sent, and %s changes nothing", r.Op, r.Verb)
		}
		if r.Verb == VerbDelete && method != http.MethodDelete {
			t.Errorf("%s deletes with %s", r.Op, method)
		}
	}
	for _, v := range Verbs() {
		if verbs[v] == 0 {
			t.Errorf("no route has the verb %s", v)
		}
	}
	for _, k := range Kinds() {
		if kinds[k] == 0 {
			t.Errorf("no route has the kind %s", k)
		}
	}
}

// A scope will be checked against what a path names, so one thing has one name in all paths.
func TestRoutePathsUseOneNamePerParameter(t *testing.T) {
	parameters := []string{"app", "id", "name", "key", "org", "volume", "worker", "hold", "member", "job",
		"index", "indices",
		"digest", "decision", "policy", "namespace", "token", "port", "request", "release"}
	for _, r := range Routes() {
		for _, m := range regexp.MustCompile(`{(.*?)}`).FindAllStringSubmatch(r.Op.Pattern(), -1) {
			if !slices.Contains(parameters, m[1]) {
				t.Errorf("%s has a parameter %s; say it as the other paths do", r.Op, m[1])
			}
		}
		if !strings.HasPrefix(r.Op.Pattern(), "/") || !strings.HasSuffix(r.About, ".") {
			t.Errorf("%s: a path begins with a slash, and the sentence ends with a full stop: %q", r.Op, r.About)
		}
		if r.Code/100 != 2 || (r.Code == 204) != (r.Out == nil && r.Media == "") {
			t.Errorf("%s answers %d with %T (%s)", r.Op, r.Code, r.Out, r.Media)
		}
		if r.In != nil && r.Op.Method() == http.MethodGet {
			t.Errorf("%s is got with a body", r.Op)
		}
	}
}

func TestPathEscapesParameters(t *testing.T) {
	if got := GetMachine.Path("app/../x", "m 1"); got != "/v1/apps/app%2F..%2Fx/machines/m%201" {
		t.Errorf("a value leaves its segment: %s", got)
	}
	if got := ListApps.Path(); got != "/v1/apps" || ListApps.Method() != "GET" {
		t.Errorf("got %s %s", ListApps.Method(), got)
	}
	for _, values := range [][]string{{}, {"a"}, {"a", "b", "c"}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d values for two parameters are taken", len(values))
				}
			}()
			GetMachine.Path(values...)
		}()
	}
}
