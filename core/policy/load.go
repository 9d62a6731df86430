package policy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"github.com/pelletier/go-toml/v2"

	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// Source is a loaded policy file: its content, and its expressions ready to be evaluated. It is immutable, and may be
// used by many goroutines.
type Source struct {
	Name        string
	Description string
	Text        string // of the file
	Sample      int
	Best        int
	Strategy    string
	Cost        uint64    // estimate of one worker's filters and scores, in CEL's units, at most MaxTerms * MaxCost
	Idle        []Problem // expressions with the same value for every worker and request, so that they choose nothing

	filters []clause
	scores  []clause
}

// clause is one filter or score.
type clause struct {
	name    string
	scores  bool // it is a score, not a filter
	weight  float64
	text    string // the expression, or the name of the built-in
	builtin *placement.Builtin
	program cel.Program
	paths   []path
	cost    uint64
}

// fileText is the file as TOML has it.
type fileText struct {
	Name        string        `toml:"name"`
	Description string        `toml:"description"`
	Sample      int           `toml:"sample"`
	Best        int           `toml:"best"`
	Strategy    string        `toml:"strategy"`
	Filter      []filterText  `toml:"filter"`
	Score       []scoreText   `toml:"score"`
	Typical     []typicalText `toml:"typical"`
}

type filterText struct {
	Name string `toml:"name"`
	Expr string `toml:"expr"`
}

type scoreText struct {
	Name    string   `toml:"name"`
	Weight  *float64 `toml:"weight"`
	Expr    string   `toml:"expr"`
	Builtin string   `toml:"builtin"`
}

// Bounds of the numbers of a file.
const (
	MaxWeight = 1000
	MaxSample = 100_000
	MaxBest   = 100
)

// validTerm reports whether name can name a filter or a score.
func validTerm(name string) bool {
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (i == 0 || c != '_' && c != '-') {
			return false
		}
	}
	return name != "" && len(name) <= 40
}

// Load reads a policy file and checks all of it: its form, the types and the cost of every expression. The error is
// fault.Invalid with the code CodeInvalid, and lists every problem with its line and column (Problems).
func Load(text []byte) (*Source, error) {
	l := loader{text: text}
	if why := checkReadable(text); why != "" {
		return nil, invalidPolicy([]Problem{{1, 1, why}})
	}
	var f fileText
	if err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(&f); err != nil {
		l.problems = tomlProblems(text, err)
		if _, unknown := errors.AsType[*toml.StrictMissingError](err); !unknown {
			return nil, invalidPolicy(l.problems)
		}
		if err := toml.Unmarshal(text, &f); err != nil { // problems of the rest are reported with the unknown keys
			return nil, invalidPolicy(append(l.problems, tomlProblems(text, err)...))
		}
	}
	l.places = keyPlaces(text)
	e, err := newEnv()
	if err != nil {
		return nil, err
	}
	l.env = e
	s := &Source{Name: f.Name, Description: f.Description, Text: string(text), Sample: f.Sample, Best: f.Best,
		Strategy: f.Strategy}
	l.loadHead(&f)
	typical := l.loadTypical(f.Typical)
	seen := map[string]bool{placement.TermWishes: true}
	for i, t := range f.Filter {
		s.filters = append(s.filters, l.loadFilter(indexedPath("filter", i), t, seen))
	}
	for i, t := range f.Score {
		s.scores = append(s.scores, l.loadScore(indexedPath("score", i), t, typical, seen))
	}
	if len(l.problems) > 0 {
		slices.SortStableFunc(l.problems, func(a, b Problem) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
		return nil, invalidPolicy(l.problems[:min(len(l.problems), mostProblems)])
	}
	for _, c := range slices.Concat(s.filters, s.scores) {
		s.Cost += c.cost
	}
	s.Idle = l.idle
	return s, nil
}

// checkReadable returns why a file can be refused without parsing it, or "".
func checkReadable(text []byte) string {
	switch {
	case len(text) > MaxFile:
		return fmt.Sprintf("the file has %d bytes; a policy has at most %d", len(text), MaxFile)
	case len(bytes.TrimSpace(text)) == 0:
		return "the file is empty; a policy has a name and at least one [[filter]] or [[score]]"
	case !utf8.Valid(text):
		return "the file is not UTF-8 text"
	}
	return ""
}

type loader struct {
	text     []byte
	places   map[string]place
	env      *cel.Env
	problems []Problem
	idle     []Problem
}

// noteProblem adds a problem at a key of the file, or at its nearest existing parent.
func (l *loader) noteProblem(path, format string, args ...any) {
	for {
		if pl, ok := l.places[path]; ok {
			line, column := lineColumn(l.text, pl.key)
			l.problems = append(l.problems, Problem{line, column, fmt.Sprintf(format, args...)})
			return
		}
		i := strings.LastIndexAny(path, ".[")
		if i < 0 {
			l.problems = append(l.problems, Problem{1, 1, fmt.Sprintf(format, args...)})
			return
		}
		path = path[:i]
	}
}

func (l *loader) loadHead(f *fileText) {
	switch {
	case f.Name == "":
		l.noteProblem("name", "the policy has no name; write name = \"...\"")
	case !machine.ValidLabel(f.Name):
		l.noteProblem(
			"name", "%q cannot be a policy's name; use 1 to 63 lower-case letters, digits and dashes, with no dash "+
				"at the ends", clipText(f.Name))
	}
	if len(f.Description) > 1000 {
		l.noteProblem("description", "the description has %d bytes; at most 1000", len(f.Description))
	}
	if f.Sample < 0 || f.Sample > MaxSample {
		l.noteProblem("sample", "sample is %d; use 0 (all workers) to %d", f.Sample, MaxSample)
	}
	if f.Best < 0 || f.Best > MaxBest {
		l.noteProblem("best", "best is %d; use 0 or 1 (the best) to %d", f.Best, MaxBest)
	}
	if !slices.Contains([]string{"", "direct", "race", "shared", "batching", "fair-share"}, f.Strategy) {
		l.noteProblem("strategy", "there is no strategy %q; use direct, race, shared, batching or fair-share",
			clipText(f.Strategy))
	}
	switch n := len(f.Filter) + len(f.Score); {
	case n == 0:
		l.noteProblem("filter", "the policy decides nothing; give it at least one [[filter]] or [[score]]")
	case n > MaxTerms:
		l.noteProblem("filter", "the policy has %d filters and scores; at most %d", n, MaxTerms)
	}
}

func (l *loader) loadName(path, name string, seen map[string]bool) {
	switch {
	case name == "":
		l.noteProblem(path, "a filter or score needs a name; write name = \"...\"")
	case !validTerm(name):
		l.noteProblem(path+".name", "%q cannot be its name; use 1 to 40 lower-case letters, digits, _ and -",
			clipText(name))
	case seen[name]:
		l.noteProblem(
			path+".name", "the name %s is taken; names of filters and scores differ, and wishes is what requests "+
				"prefer", name)
	}
	seen[name] = true
}

func (l *loader) loadFilter(path string, t filterText, seen map[string]bool) clause {
	l.loadName(path, t.Name, seen)
	c := clause{name: t.Name, text: oneLine(t.Expr)}
	if strings.TrimSpace(t.Expr) == "" {
		l.noteProblem(path, "the filter has no expr; write expr = 'worker...'")
		return c
	}
	l.compileExpr(path+".expr", t.Expr, &c, "true or false", types.BoolType)
	return c
}

func (l *loader) loadScore(path string, t scoreText, typical []typicalText, seen map[string]bool) clause {
	l.loadName(path, t.Name, seen)
	c := clause{name: t.Name, scores: true, weight: 1, text: oneLine(t.Expr)}
	if t.Weight != nil {
		c.weight = *t.Weight
	}
	if !(c.weight >= -MaxWeight && c.weight <= MaxWeight) {
		l.noteProblem(path+".weight", "the weight is %v; use a number from -%d to %d", c.weight, MaxWeight, MaxWeight)
	}
	switch {
	case (strings.TrimSpace(t.Expr) == "") == (t.Builtin == ""):
		l.noteProblem(path, "a score has either an expr or a builtin; the built-ins are %s",
			strings.Join(builtinNames(), ", "))
	case t.Builtin != "":
		c.text = t.Builtin
		if c.builtin = findBuiltin(t.Builtin, typical); c.builtin == nil {
			l.noteProblem(path+".builtin", "there is no built-in %q; there are %s", clipText(t.Builtin),
				strings.Join(builtinNames(), ", "))
		}
	default:
		l.compileExpr(path+".expr", t.Expr, &c, "a number", types.DoubleType, types.IntType, types.BoolType)
	}
	return c
}

// compileExpr parses, type-checks, cost-estimates and plans one expression.
func (l *loader) compileExpr(path, expr string, c *clause, want string, results ...*types.Type) {
	ast, issues := l.env.Compile(expr)
	if issues != nil && issues.Err() != nil {
		for _, e := range issues.Errors() {
			l.inExpr(path, expr, e.Location.Line(), e.Location.Column(), withHint(e.Message))
		}
		return
	}
	if is := ast.OutputType(); is != types.DynType && !slices.ContainsFunc(results, is.IsExactType) {
		l.inExpr(path, expr, 1, 0, fmt.Sprintf("the expression gives %s where %s is wanted", typeName(is), want))
		return
	}
	estimate, err := l.env.EstimateCost(ast, sizes{})
	if err != nil || estimate.Max > MaxCost {
		l.inExpr(path, expr, 1, 0, fmt.Sprintf("the expression could cost %d on one worker, and %d is the most; "+
			"it goes through too much: take out a loop, or an expression in one", estimate.Max, MaxCost))
		return
	}
	program, err := l.env.Program(ast, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(MaxCost))
	if err != nil {
		l.inExpr(path, expr, 1, 0, withHint(err.Error()))
		return
	}
	c.program, c.cost = program, estimate.Max
	for _, names := range fieldPaths(ast.NativeRep().Expr()) {
		c.paths = append(c.paths, newPath(names))
	}
	if len(c.paths) == 0 {
		kept := l.problems
		l.problems = nil
		l.inExpr(path, expr, 1, 0, "it is the same for every worker and every request, so it chooses nothing")
		l.idle, l.problems = append(l.idle, l.problems...), kept
	}
}

// inExpr adds a problem inside an expression: line from 1, column from 0.
func (l *loader) inExpr(path, expr string, line, column int, what string) {
	pl, ok := l.places[path]
	if !ok || pl.raw == nil || line < 1 || column < 0 {
		l.noteProblem(path, "%s", what)
		return
	}
	row, col := lineColumn(l.text, pl.byteOffset(expr, line, column))
	l.problems = append(l.problems, Problem{row, col, what})
}

// withHint appends advice to CEL's own message.
func withHint(message string) string {
	message = oneLine(strings.TrimPrefix(message, "Syntax error: "))
	add := ""
	switch {
	case strings.HasPrefix(message, "undeclared reference to"):
		add = "there are request and worker, and the functions of CEL, min and max"
	case strings.HasPrefix(message, "undefined field"):
		add = "see the fields in docs/reference/policies.md; attributes are written worker.attributes.NAME"
	case strings.HasPrefix(message, "found no matching overload"):
		add = "the types do not go together: amounts are numbers, and a text is compared with a text"
	case strings.Contains(message, "recursion limit exceeded") || strings.Contains(message, "nesting"):
		add = fmt.Sprintf("at most %d levels", MaxNesting)
	}
	message = strings.ReplaceAll(message, " (in container '')", "")
	// compiled here, so that a program's start need not wait for it
	operatorName := regexp.MustCompile(`'!?_([^\s'_]+)_'`)
	message = operatorName.ReplaceAllString(message, "'$1'")
	if before, _, cut := strings.Cut(message, " expecting {"); cut {
		message = before + "; a value is missing here"
	}
	message = strings.ReplaceAll(message, "mismatched input '<EOF>'", "the expression breaks off")
	if add != "" {
		message += " (" + add + ")"
	}
	return clipLong(message)
}

func clipLong(s string) string {
	if len(s) > 400 {
		return strings.ToValidUTF8(s[:400], "") + "..."
	}
	return s
}

func typeName(t *types.Type) string {
	switch t {
	case types.BoolType:
		return "true or false"
	case types.StringType:
		return "a text"
	case types.IntType, types.DoubleType, types.UintType:
		return "a number"
	}
	return "a " + cel.FormatCELType(t)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
