package souk_test

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/soukhq/souk/"

// layers gives every package its place; a package below one that is listed shares it. Imports point downwards only;
// inside one layer only what siblings lists, and what lies in the same top-level folder. A package that is not here
// fails the test: decide where it belongs first.
var layers = map[string]int{
	"fault": 0, "machine": 0, "cluster": 0, "backoff": 0,
	"placement": 1, "quota": 1, "policy": 1, "market": 1, "auction": 1, "fsm": 1, "lifecycle": 1, "scheduler": 1,
	"registry": 1, "broadcast": 1, "jobs": 1, "decision": 1, "api": 1, "core": 1,
	"journal": 2, "disk": 2, "decisionlog": 2, "runtime": 2, "pki": 2, "wire": 2, "gossip": 2, "names": 2,
	"routing": 1, "services": 3, "proxy": 3,
	"fleet": 3, "broker": 3, "worker": 3, "gateway": 3, "client": 3, "member": 3, "batch": 3,
	"health":  3,
	"catalog": 2, "atrest": 2, "image": 2, "manifest": 1,
	"sim": 4, "testcluster": 4,
	"docs": 2,
	"heap": 2, "handover": 2,
	"wait": 2, "unixsock": 2, "tlscert": 2, "strangers": 2, "sysmon": 2, "osthread": 2, "pace": 2,
	"silence": 2,
	"node":    3,
	"bench":   4, "check": 4,
	"cli":      5,
	"cmd/souk": 6, "examples": 6, "conformance": 6, "packaging": 6, "internal": 6,
	"internal/needs": 2,
}

// siblings lists the imports allowed inside one layer, so that they stay a tree. What a folder may, its packages may.
var siblings = map[string][]string{
	"machine": {"cluster", "fault"}, "cluster": {"fault"},
	"market": {"placement"}, "decision": {"market", "placement"}, "quota": {"placement", "scheduler/offers"},
	"lifecycle": {"fsm", "market", "placement", "quota"}, "scheduler": {"auction", "placement"},
	"jobs":    {"auction", "fsm", "market", "placement"},
	"catalog": {"atrest", "journal"}, "pki": {"atrest"},
	"manifest": {"api", "core/rollout"},
	"api":      {"core/rollout", "decision", "jobs", "market", "policy/whatif", "quota"},
	"gateway":  {"broker", "fleet"}, "member": {"broker", "fleet", "gateway"}, "policy": {"placement", "scheduler/fgd"},
	"runtime": {"heap", "osthread", "sysmon", "unixsock", "wait"}, "runtime/oci": {"image"},
	"image/imagetest":     {"internal/needs"},
	"runtime/runtimetest": {"wait/waittest"}, "tlscert": {"atrest", "journal"},
	"wire":        {"pace", "pki", "runtime", "silence", "strangers"},
	"gossip":      {"strangers"},
	"worker":      {"health"},
	"testcluster": {"check/history"}, "bench": {"sim/fleet"},
	"proxy": {"fleet"}, "services": {"broker", "fleet"},
	"node": {"batch", "fleet", "gateway", "member", "proxy", "proxy/certs", "services", "worker"},
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

func TestLayersPointDownwards(t *testing.T) {
	for _, s := range sources(t) {
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
			case depLayer == layer && top(dep) != top(s.pkg) && !slices.Contains(siblings[s.pkg], dep) &&
				!slices.Contains(siblings[top(s.pkg)], dep):
				t.Errorf("%s imports its sibling %s: list it in siblings if it must be", s.path, dep)
			}
		}
	}
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

// TestWhatIsTestedWithoutTheRaceDetectorStartsNoGoroutine: `make test` leaves it out for the simulator, which repeats
// to the byte, and for a few packages that compute.
func TestWhatIsTestedWithoutTheRaceDetectorStartsNoGoroutine(t *testing.T) {
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

func TestFilesAndPackagesAreTidy(t *testing.T) {
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

// TestNoTestSleeps: a test that sleeps is slow when it passes and wrong when the machine is busy.
func TestNoTestSleeps(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sleep" {
				if id, ok := sel.X.(*ast.Ident); ok && id.Name == "time" {
					t.Errorf("%s: a test sleeps; wait for what it waits for", s.fset.Position(n.Pos()))
				}
			}
			return true
		})
	}
}

// TestTheGlossaryIsKept: words that the glossary gives up for others do not come back in exported names and docs.
func TestTheGlossaryIsKept(t *testing.T) {
	banned := []string{"node ", " nodes", "lease of capacity"}
	for _, s := range sources(t) {
		if s.test || strings.HasPrefix(s.pkg, "cmd") || s.pkg == "node" || s.pkg == "scheduler/mincost" {
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

// TestEachLongTestHasAShortOne: each test of the second tier stands in CONTRIBUTING.md, with one of the first that is there.
func TestEachLongTestHasAShortOne(t *testing.T) {
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

// TestNothingOfTheWorkplaceIsNamed keeps paths of the machine it was built on out of the project.
func TestNothingOfTheWorkplaceIsNamed(t *testing.T) {
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
