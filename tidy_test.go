package souk_test

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/soukhq/souk/"

// layers gives every top-level folder its place, and those packages that have another than their folder's. Imports point
// downwards only; inside one layer only what siblings lists. A folder that is not here fails the test: decide where it
// belongs first.
var layers = map[string]int{
	"fault": 0, "cluster": 0, "machine": 0, "internal/backoff": 0,
	"core": 1, "api": 1,
	"internal": 2, "store": 2, "runtime": 2, "mesh": 2, "docs": 2,
	"fleet": 3, "broker": 3, "worker": 3, "gateway": 3, "client": 3, "member": 3, "proxy": 3, "services": 3, "node": 3,
	"sim": 4, "bench": 4,
	"cli": 5,
	"cmd": 6, "examples": 6, "packaging": 6, "test": 6,
}

// siblings lists the top-level folders that a folder of the same layer may import, so that they stay a tree.
var siblings = map[string][]string{
	"cluster": {"fault"}, "machine": {"cluster", "fault"},
	"api":   {"core"},
	"store": {"internal"}, "runtime": {"internal"}, "mesh": {"internal", "runtime", "store"},
	"broker": {"fleet"}, "gateway": {"broker", "fleet", "services"},
	"member": {"broker", "fleet"}, "proxy": {"fleet"}, "services": {"broker", "fleet"},
	"node":  {"broker", "fleet", "gateway", "member", "proxy", "services", "worker"},
	"bench": {"sim"},
}

// only lists packages that few may import, by folder.
var only = map[string][]string{
	"gateway": {"node", "bench"}, // it is HTTP alone: whoever else wants something of it wants what is below it
}

// forbidden lists what the pure layers may not touch: there is no clock, no chance and no I/O below L2.
var forbidden = map[string]string{
	"os": "I/O belongs to L2", "net": "I/O belongs to L2", "net/http": "I/O belongs to L2",
	"os/exec":   "I/O belongs to L2",
	"math/rand": "use math/rand/v2 with a *rand.Rand argument", "crypto/rand": "chance is an argument",
	"log":      "L0 and L1 return errors",
	"log/slog": "L0 and L1 return errors", "sync": "L0 and L1 have no goroutines", "context": "L0 and L1 do not wait",
}

// forbiddenNames are package names that would shadow std or a common variable.
var forbiddenNames = []string{"net", "http", "rpc", "log", "errors", "state", "config", "store", "queue", "plan",
	"util", "utils", "common", "helpers"}

// layerOf gives the layer of a package, or of the nearest folder above it that has one.
func layerOf(pkg string) (layer int, known bool) {
	for pkg != "." {
		if l, ok := layers[pkg]; ok {
			return l, true
		}
		pkg = path.Dir(pkg)
	}
	return 0, false
}

func top(pkg string) string { return strings.SplitN(pkg, "/", 2)[0] }

type source struct {
	pkg, path string
	file      *ast.File
	fset      *token.FileSet
	test      bool
	lines     int
}

func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != "." && (strings.HasPrefix(name, ".") || name == "testdata" ||
				name == "tools" || name == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		out = append(out, source{pkg: filepath.ToSlash(filepath.Dir(path)), path: path, file: f, fset: fset,
			test: strings.HasSuffix(path, "_test.go"), lines: fset.File(f.Pos()).LineCount()})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestImportsPointToLowerLayers(t *testing.T) {
	for _, s := range sources(t) {
		for _, imp := range s.file.Imports {
			dep, _ := strings.CutPrefix(strings.Trim(imp.Path.Value, `"`), module)
			if few := only[top(dep)]; few != nil && top(s.pkg) != top(dep) && !slices.Contains(few, top(s.pkg)) {
				t.Errorf("%s imports %s, which only %s may, tests too", s.path, dep, strings.Join(few, " and "))
			}
		}
		if s.test || s.pkg == "." || strings.HasPrefix(s.pkg, "examples/") {
			continue
		}
		layer, known := layerOf(s.pkg)
		if !known {
			t.Errorf("%s: package %s has no layer; give it one in tidy_test.go", s.path, s.pkg)
			continue
		}
		for _, imp := range s.file.Imports {
			path := strings.Trim(imp.Path.Value, `"`) // of the import
			if layer <= 1 {
				if why, bad := forbidden[path]; bad {
					t.Errorf("%s imports %s: %s", s.path, path, why)
				}
			}
			if layer == 0 && strings.Contains(path, ".") && !strings.HasPrefix(path, module) {
				t.Errorf("%s imports %s: L0 uses the standard library only", s.path, path)
			}
			dep, ours := strings.CutPrefix(path, module)
			if !ours {
				continue
			}
			switch depLayer, known := layerOf(dep); {
			case !known:
				t.Errorf("%s imports %s, which has no layer", s.path, dep)
			case top(s.pkg) == "sim" && (depLayer == 2 || depLayer == 3):
				t.Errorf("%s imports %s (L%d): the simulator drives the pure layers only", s.path, dep, depLayer)
			case depLayer > layer:
				t.Errorf("%s (L%d) imports %s (L%d): imports point downwards", s.path, layer, dep, depLayer)
			case depLayer == layer && top(dep) != top(s.pkg) && !slices.Contains(siblings[top(s.pkg)], top(dep)):
				t.Errorf("%s imports its sibling %s: list it in siblings if it must be", s.path, dep)
			}
		}
	}
}

// TestFoldersDoNotImportEachOtherInACycle: packages cannot import each other in a circle, and folders shall not either, taken together with
// all that is below them: at the first, the second and the third level of the tree. Else its order says nothing.
func TestFoldersDoNotImportEachOtherInACycle(t *testing.T) {
	all := sources(t)
	for depth := 1; depth <= 3; depth++ {
		folder := func(pkg string) string {
			parts := strings.Split(pkg, "/")
			return strings.Join(parts[:min(depth, len(parts))], "/")
		}
		arrows := map[string][]string{}
		for _, s := range all {
			if s.test || s.pkg == "." {
				continue
			}
			for _, imp := range s.file.Imports {
				if dep, ours := strings.CutPrefix(strings.Trim(imp.Path.Value, `"`), module); ours {
					if from, to := folder(s.pkg), folder(dep); from != to && !slices.Contains(arrows[from], to) {
						arrows[from] = append(arrows[from], to)
					}
				}
			}
		}
		for _, circle := range circles(arrows) {
			t.Errorf("folders at depth %d import each other: %s", depth, strings.Join(circle, " -> "))
		}
	}
}

// circles returns those that a walk along the arrows closes, each begun and ended with the same folder.
func circles(arrows map[string][]string) (out [][]string) {
	var way []string
	done := map[string]bool{}
	var walk func(string)
	walk = func(at string) {
		if i := slices.Index(way, at); i >= 0 {
			out = append(out, append(slices.Clone(way[i:]), at))
			return
		}
		if done[at] {
			return
		}
		way = append(way, at)
		for _, to := range arrows[at] {
			walk(to)
		}
		way, done[at] = way[:len(way)-1], true
	}
	for _, from := range slices.Sorted(maps.Keys(arrows)) {
		walk(from)
	}
	return out
}

// TestPureLayersReadNoClock: in L0 and L1 time comes in as now, and chance as *rand.Rand.
func TestPureLayersReadNoClock(t *testing.T) {
	banned := map[string][]string{
		"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"},
		"rand": {"Int", "IntN", "Int64", "Int64N", "Uint64", "Uint32", "Float64", "Perm", "Shuffle", "N"},
	}
	for _, s := range sources(t) {
		if layer, known := layerOf(s.pkg); s.test || !known || layer > 1 {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: a goroutine in a pure layer", s.fset.Position(n.Pos()))
			case *ast.SelectorExpr:
				if id, ok := n.X.(*ast.Ident); ok && id.Obj == nil && slices.Contains(banned[id.Name], n.Sel.Name) {
					t.Errorf("%s: %s.%s in a pure layer", s.fset.Position(n.Pos()), id.Name, n.Sel.Name)
				}
			}
			return true
		})
	}
}

// TestPackagesTestedWithoutRaceDetectorStartNoGoroutines: `make test` leaves it out for the simulator, which repeats
// to the byte, and for a few packages that compute.
func TestPackagesTestedWithoutRaceDetectorStartNoGoroutines(t *testing.T) {
	raw, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^ALONE = (.+)$`).FindSubmatch(raw)
	if list == nil {
		t.Fatal("the Makefile has no such list")
	}
	alone := strings.Fields(string(list[1]))
	for _, s := range sources(t) {
		if s.test || !slices.Contains(alone, s.pkg) && !slices.Contains(alone, top(s.pkg)+"/...") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s: a goroutine", s.fset.Position(g.Pos()))
			}
			return true
		})
	}
}

func TestFilesAreShortAndPackagesWellNamed(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range sources(t) {
		if s.lines > 600 {
			t.Errorf("%s has %d lines; none may have more than 600", s.path, s.lines)
		}
		if s.test {
			continue
		}
		documented[s.pkg] = documented[s.pkg] || s.file.Doc != nil
		if slices.Contains(forbiddenNames, s.file.Name.Name) {
			t.Errorf("%s: a package named %s shadows std or a common variable, or says nothing", s.path,
				s.file.Name.Name)
		}
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if ok && fn.Name.Name == "init" && fn.Recv == nil {
				t.Errorf("%s: init has side effects that nobody asked for", s.fset.Position(fn.Pos()))
			}
		}
	}
	for pkg, ok := range documented {
		if !ok && pkg != "." {
			t.Errorf("package %s has no package comment", pkg)
		}
	}
}

// TestNoTestSleeps: a test that sleeps is slow when it passes and wrong when the machine is busy. In a bubble of
// testing/synctest time is its own.
func TestNoTestSleeps(t *testing.T) {
	for _, s := range sources(t) {
		bubble := slices.ContainsFunc(s.file.Imports, func(i *ast.ImportSpec) bool {
			return i.Path.Value == `"testing/synctest"`
		})
		if !s.test {
			continue
		}
		ofSelect := map[ast.Stmt]bool{}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CommClause:
				ofSelect[n.Comm] = true
			case *ast.ExprStmt:
				if says := callOf(n.X); says == "time.Sleep" || says == "<-time.After" && !bubble && !ofSelect[n] {
					t.Errorf("%s: a test sleeps; wait for what it waits for, or say waittest.Pass",
						s.fset.Position(n.Pos()))
				}
			}
			return true
		})
	}
}

// callOf names the function of a package that an expression calls, or receives from, as it is written; "": another.
func callOf(x ast.Expr) string {
	prefix := ""
	if from, ok := x.(*ast.UnaryExpr); ok && from.Op == token.ARROW {
		x, prefix = from.X, "<-"
	}
	if call, ok := x.(*ast.CallExpr); ok {
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok {
				return prefix + id.Name + "." + sel.Sel.Name
			}
		}
	}
	return ""
}

// TestExportedNamesAndDocsUseGlossaryWords: words that the glossary gives up for others do not come back in exported names and docs.
func TestExportedNamesAndDocsUseGlossaryWords(t *testing.T) {
	banned := []string{"node ", " nodes", "lease of capacity"}
	for _, s := range sources(t) {
		if s.test || strings.HasPrefix(s.pkg, "cmd") || s.pkg == "node" || s.pkg == "core/scheduler/mincost" {
			// a graph has nodes
			continue
		}
		if s.file.Doc == nil {
			continue
		}
		for _, w := range banned {
			if strings.Contains(strings.ToLower(s.file.Doc.Text()), w) {
				t.Errorf("%s: the package comment says %q; see docs/glossary.md", s.path, w)
			}
		}
	}
}

// TestEveryLongTestHasAShortCounterpart: each test of the second tier stands in CONTRIBUTING.md, with one of the first that is there.
func TestEveryLongTestHasAShortCounterpart(t *testing.T) {
	tests := map[string]bool{}
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, is := d.(*ast.FuncDecl); is && s.test && strings.HasPrefix(f.Name.Name, "Test") {
				tests[s.pkg+" "+f.Name.Name] = true
			}
		}
	}
	text, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	row := regexp.MustCompile("(?m)^\\| (\\S+) \\| `(TestLong\\w+)`.* \\| `(Test\\w+)`")
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		listed[m[1]+" "+m[2]] = true
		if !tests[m[1]+" "+m[2]] || !tests[m[1]+" "+m[3]] || strings.HasPrefix(m[3], "TestLong") {
			t.Errorf("CONTRIBUTING.md: %s has no tests %s and %s", m[1], m[2], m[3])
		}
	}
	for name := range tests {
		if strings.Contains(name, " TestLong") && !listed[name] {
			t.Errorf("%s: CONTRIBUTING.md does not say what stands for it in make test", name)
		}
	}
}

// TestNoFileNamesABuildMachinePath keeps paths of the machine it was built on out of the project.
func TestNoFileNamesABuildMachinePath(t *testing.T) {
	paths := []string{"/work" + "/", "." + "library", "farm" + "-"}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error { // but bin, which is built here
		if err != nil || d.IsDir() || d.Name() == ".git" { // in a worktree of git it is a file
			if d != nil && d.IsDir() && (strings.HasPrefix(d.Name(), ".git") || path == "bin") {
				return filepath.SkipDir
			}
			return err
		}
		if d.Name() == ".git" { // of a worktree it is a file, and says where the repository is
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		sc := bufio.NewScanner(f)
		sc.Buffer(nil, 1<<22)
		for n := 1; sc.Scan(); n++ {
			for _, p := range paths {
				if strings.Contains(sc.Text(), p) {
					t.Errorf("%s:%d names %q", path, n, p)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
