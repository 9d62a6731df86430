package policy

import (
	"strings"

	"cel.dev/cel-go/cel"
	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/env"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// Bounds of a file and its expressions.
const (
	MaxFile    = 64 << 10 // bytes
	MaxTerms   = 32       // filters and scores together
	MaxExpr    = 4096     // characters of one expression
	MaxNesting = 32       // of brackets, calls and operators in one expression
	MaxCost    = 50_000   // of one evaluation, in CEL's units: estimated at load time, enforced at run time
	maxNodes   = 2000     // of an expression, with its macros expanded
	maxRegex   = 2000     // instructions of a regular expression's program
)

// The largest record that the cost estimate assumes. MaxCost stops the evaluation of a larger one.
const (
	mostListed = 256 // apps, images, attributes, labels, regions
	longText   = 256 // bytes: cluster.MaxText
)

// newEnv makes the language: CEL's standard library, the two variables, min and max, and arithmetic that mixes whole
// numbers with others, so that "1 - worker.used.cpu / worker.capacity.cpu" needs no conversions.
func newEnv() (*cel.Env, error) {
	mixed := []string{operators.Add, operators.Subtract, operators.Multiply, operators.Divide}
	without := env.NewLibrarySubset()
	for _, op := range append([]string{operators.Equals, operators.NotEquals}, mixed...) {
		without.AddExcludedFunctions(env.NewFunction(op))
	}
	opts := []cel.EnvOption{
		cel.StdLib(cel.StdLibSubset(without)),
		cel.CustomTypeProvider(newProvider()),
		cel.Variable("request", requestType),
		cel.Variable("worker", workerType),
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.ParserRecursionLimit(MaxNesting),
		cel.ParserExpressionSizeLimit(MaxExpr),
		cel.ParserErrorRecoveryLimit(4),
		cel.ExpressionNodeLimit(maxNodes),
		cel.RegexProgramSizeLimit(maxRegex),
		extremeFunction("min", func(a, b float64) float64 { return min(a, b) }),
		extremeFunction("max", func(a, b float64) float64 { return max(a, b) }),
	}
	for _, op := range mixed {
		opts = append(opts, arithmeticOperator(op))
	}
	for _, op := range []string{operators.Equals, operators.NotEquals} {
		opts = append(opts, equalityOperator(op))
	}
	return cel.NewCustomEnv(opts...)
}

// arithmeticOperator declares an operator for whole numbers, for others, and for one of each.
func arithmeticOperator(op string) cel.EnvOption {
	id := strings.Trim(op, "_") // unlike any of CEL's own IDs
	name := map[string]string{"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}[id]
	both := func(a, b ref.Val) ref.Val { return calculate(op, a, b) }
	numbers := func(suffix string, a, b, out *types.Type) cel.FunctionOpt {
		return cel.Overload(name+"_"+suffix, []*types.Type{a, b}, out, cel.BinaryBinding(both))
	}
	overloads := []cel.FunctionOpt{
		numbers("int64", types.IntType, types.IntType, types.IntType),
		numbers("double", types.DoubleType, types.DoubleType, types.DoubleType),
		numbers("int64_double", types.IntType, types.DoubleType, types.DoubleType),
		numbers("double_int64", types.DoubleType, types.IntType, types.DoubleType),
	}
	if op == operators.Add {
		overloads = append(overloads, numbers("string", types.StringType, types.StringType, types.StringType))
	}
	return cel.Function(op, overloads...)
}

// equalityOperator declares == and != for values of one type, and for numbers of both: a worker's machines are
// compared with 3. CEL itself evaluates them. A comparison that can never be true, as of a region with 3, is refused.
func equalityOperator(op string) cel.EnvOption {
	name := map[string]string{operators.Equals: "same", operators.NotEquals: "differ"}[op]
	var overloads []cel.FunctionOpt
	for _, t := range []*types.Type{types.BoolType, types.StringType, types.DoubleType, types.IntType, textsType} {
		overloads = append(overloads, cel.Overload(name+"_"+cel.FormatCELType(t), []*types.Type{t, t}, types.BoolType))
	}
	i, d := types.IntType, types.DoubleType
	return cel.Function(op, append(overloads,
		cel.Overload(name+"_int_double", []*types.Type{i, d}, types.BoolType),
		cel.Overload(name+"_double_int", []*types.Type{d, i}, types.BoolType))...)
}

func calculate(op string, a, b ref.Val) ref.Val {
	if x, y, ok := numberPair(a, b); ok && (a.Type() != types.IntType || b.Type() != types.IntType) {
		switch op {
		case operators.Add:
			return types.Double(x + y)
		case operators.Subtract:
			return types.Double(x - y)
		case operators.Multiply:
			return types.Double(x * y)
		}
		return types.Double(x / y)
	}
	switch op { // both whole, or both texts; CEL's own operators check overflow and division by 0
	case operators.Add:
		if t, ok := a.(traits.Adder); ok {
			return t.Add(b)
		}
	case operators.Subtract:
		if t, ok := a.(traits.Subtractor); ok {
			return t.Subtract(b)
		}
	case operators.Multiply:
		if t, ok := a.(traits.Multiplier); ok {
			return t.Multiply(b)
		}
	case operators.Divide:
		if t, ok := a.(traits.Divider); ok {
			return t.Divide(b)
		}
	}
	return types.NoSuchOverloadErr()
}

func numberPair(a, b ref.Val) (x, y float64, ok bool) {
	x, okX := asNumber(a)
	y, okY := asNumber(b)
	return x, y, okX && okY
}

func asNumber(v ref.Val) (float64, bool) {
	switch v := v.(type) {
	case types.Double:
		return float64(v), true
	case types.Int:
		return float64(v), true
	case types.Uint:
		return float64(v), true
	}
	return 0, false
}

func extremeFunction(name string, of func(a, b float64) float64) cel.EnvOption {
	both := cel.BinaryBinding(func(a, b ref.Val) ref.Val {
		x, y, ok := numberPair(a, b)
		if !ok {
			return types.NoSuchOverloadErr()
		}
		return types.Double(of(x, y))
	})
	i, d := types.IntType, types.DoubleType
	return cel.Function(name,
		cel.Overload(name+"_double", []*types.Type{d, d}, d, both),
		cel.Overload(name+"_int_double", []*types.Type{i, d}, d, both),
		cel.Overload(name+"_double_int", []*types.Type{d, i}, d, both), cel.Overload(name+"_int", []*types.Type{i, i},
			d, both))
}

// sizes gives the cost estimate the sizes of what an expression reads.
type sizes struct{}

func (sizes) EstimateCallCost(string, string, *cost.AstNode, []cost.AstNode) *cost.CallEstimate {
	return nil
}

func (sizes) EstimateSize(element cost.AstNode) *cost.SizeEstimate {
	path := element.Path()
	if len(path) == 0 || (path[0] != "worker" && path[0] != "request") {
		return nil
	}
	most := cost.RangedSizeEstimate(0, longText)
	if k := element.Type().Kind(); k == types.ListKind || k == types.MapKind {
		most = cost.RangedSizeEstimate(0, mostListed)
	}
	return &most
}

// fieldPaths lists the longest field chains of the variables that an expression reads, for a filter's refusal to show.
// It returns at most eight, in the order of the expression.
func fieldPaths(root celast.Expr) [][]string {
	var out [][]string
	seen := map[string]bool{}
	var visit func(e celast.Expr)
	visit = func(e celast.Expr) {
		if p := fieldChain(e); len(p) > 1 {
			if key := strings.Join(p, "."); !seen[key] && len(out) < 8 {
				seen[key] = true
				out = append(out, p)
			}
			return
		}
		for _, sub := range childExprs(e) {
			visit(sub)
		}
	}
	visit(root)
	return out
}

// fieldChain returns the chain of fields and constant keys of e, beginning with a variable; nil if e is none.
func fieldChain(e celast.Expr) []string {
	switch e.Kind() {
	case celast.IdentKind:
		if name := e.AsIdent(); name == "worker" || name == "request" {
			return []string{name}
		}
	case celast.SelectKind:
		if head := fieldChain(e.AsSelect().Operand()); head != nil {
			return append(head, e.AsSelect().FieldName())
		}
	case celast.CallKind:
		c := e.AsCall()
		if c.FunctionName() != operators.Index || len(c.Args()) != 2 || c.Args()[1].Kind() != celast.LiteralKind {
			return nil
		}
		key, isText := c.Args()[1].AsLiteral().(types.String)
		if head := fieldChain(c.Args()[0]); head != nil && isText {
			return append(head, string(key))
		}
	}
	return nil
}

// childExprs returns the direct subexpressions of e.
func childExprs(e celast.Expr) []celast.Expr {
	switch e.Kind() {
	case celast.SelectKind:
		return []celast.Expr{e.AsSelect().Operand()}
	case celast.CallKind:
		c := e.AsCall()
		if c.IsMemberFunction() {
			return append([]celast.Expr{c.Target()}, c.Args()...)
		}
		return c.Args()
	case celast.ListKind:
		return e.AsList().Elements()
	case celast.MapKind:
		var out []celast.Expr
		for _, entry := range e.AsMap().Entries() {
			out = append(out, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
		return out
	case celast.ComprehensionKind:
		c := e.AsComprehension()
		return []celast.Expr{c.IterRange(), c.LoopCondition(), c.LoopStep()}
	}
	return nil
}
