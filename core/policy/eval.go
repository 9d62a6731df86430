package policy

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// Evaluator evaluates expressions over requests and records. It keeps boxed values between calls, so it belongs to one
// goroutine at a time, and so does every placement.Policy bound to it.
type Evaluator struct {
	request requestValue
	worker  workerValue
	read    reads
}

// NewEvaluator makes an evaluator.
func NewEvaluator() *Evaluator {
	e := &Evaluator{}
	e.request.is, e.request.of = requestType, &requestFields{}
	e.worker.is = workerType
	for _, a := range []*amounts{&e.worker.free, &e.worker.capacity, &e.worker.used} {
		a.is = resourcesType
	}
	e.worker.attrBoxes = map[string]attrBox{}
	e.request.labels = attributesOf("request", "label",
		func() cluster.Attributes { return e.request.of.r.Scheduling.Labels },
		func(_ string, v cluster.Value) ref.Val { return boxValue(v) }, &e.read)
	e.request.named = countsOf(func() map[string]int64 { return e.request.of.r.Resources.Named })
	e.worker.attributes = attributesOf("worker", "attribute",
		func() cluster.Attributes { return e.worker.of.Attributes }, e.worker.attributeValue, &e.read)
	e.worker.apps = countsOf(func() map[string]int { return e.worker.of.Apps })
	return e
}

// mostBoxed bounds the attributes whose boxed values are kept.
const mostBoxed = 1024

func (w *workerValue) attributeValue(name string, v cluster.Value) ref.Val {
	b, ok := w.attrBoxes[name]
	if !ok || b.raw != v {
		if len(w.attrBoxes) >= mostBoxed {
			clear(w.attrBoxes)
		}
		b = attrBox{v, boxValue(v)}
		w.attrBoxes[name] = b
	}
	return b.val
}

// ResolveName returns a variable to CEL.
func (e *Evaluator) ResolveName(name string) (any, bool) {
	switch name {
	case "worker":
		return &e.worker, true
	case "request":
		return &e.request, true
	}
	return nil, false
}

// Parent is nil: there are no other variables.
func (e *Evaluator) Parent() cel.Activation { return nil }

func (e *Evaluator) evalProgram(p cel.Program, r *placement.Request, w *cluster.Record) (ref.Val, error) {
	e.request.of.r, e.request.regions, e.worker.of = r, nil, w
	e.read.reset()
	out, _, err := p.Eval(e)
	return out, err
}

// Bind makes the placement policy of the source. The policy belongs to one goroutine at a time, like the evaluator;
// one without expressions may be shared.
func (s *Source) Bind(e *Evaluator) placement.Policy {
	p := placement.Policy{Name: s.Name, Sample: s.Sample, Best: s.Best, Strategy: s.Strategy}
	for i := range s.filters {
		c := &s.filters[i]
		p.Filters = append(p.Filters, placement.Filter{Name: c.name, Wanted: c.text,
			Of: func(r *placement.Request, w *cluster.Record) (bool, string) { return e.evalFilter(c, r, w) }})
	}
	for i := range s.scores {
		c := &s.scores[i]
		t := placement.Term{Name: c.name, Weight: c.weight}
		if c.builtin != nil {
			t.Of, t.Note, t.OwnApp = c.builtin.Of, c.builtin.Note, true // no built-in reads other apps
		} else {
			t.Of = func(r *placement.Request, w *cluster.Record) float64 { x, _ := e.evalScore(c, r, w); return x }
			t.Note = func(r *placement.Request, w *cluster.Record) string { _, say := e.evalScore(c, r, w); return say }
		}
		p.Terms = append(p.Terms, t)
	}
	return p
}

// Shared reports whether several goroutines may use the policy of Bind: it has no expression.
func (s *Source) Shared() bool {
	for _, c := range s.scores {
		if c.builtin == nil {
			return false
		}
	}
	return len(s.filters) == 0
}

func (e *Evaluator) evalFilter(c *clause, r *placement.Request, w *cluster.Record) (ok bool, had string) {
	out, err := e.evalProgram(c.program, r, w)
	if err != nil {
		return false, e.explainUndefined(err)
	}
	switch out {
	case types.True:
		return true, ""
	case types.False:
		return false, e.describeValues(c)
	}
	return false, "undefined: it is neither true nor false but " + valueText(out)
}

// evalScore returns the value of an expression, from 0 to 1, and a remark about it.
func (e *Evaluator) evalScore(c *clause, r *placement.Request, w *cluster.Record) (float64, string) {
	out, err := e.evalProgram(c.program, r, w)
	if err != nil {
		return 0, e.explainUndefined(err) + "; counts 0"
	}
	x, ok := asNumber(out)
	if b, truth := out.(types.Bool); truth {
		if ok = true; b {
			x = 1
		}
	}
	switch {
	case !ok:
		return 0, "undefined: it is no number but " + valueText(out) + "; counts 0"
	case math.IsNaN(x) || math.IsInf(x, 0):
		return 0, "undefined: it is not finite, a division by 0; counts 0"
	case x < 0:
		return 0, fmt.Sprintf("it is %s, below 0; counts 0", numberText(x))
	case x > 1:
		return 1, fmt.Sprintf("it is %s, above 1; counts 1", numberText(x))
	}
	return x, ""
}

// explainUndefined describes why an expression has no value.
func (e *Evaluator) explainUndefined(err error) string {
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "no such key: "); ok {
		for _, m := range e.read.missing {
			if m.name == name {
				return fmt.Sprintf("undefined: %s has no %s %q", m.whose, m.what, m.name)
			}
		}
	}
	switch {
	case strings.HasPrefix(text, "no such overload") && len(e.read.touched) > 0:
		parts := make([]string, len(e.read.touched))
		for i, t := range e.read.touched {
			parts[i] = fmt.Sprintf("%s %s of the %s is the %s %s", t.what, t.name, t.whose, t.value.Type(),
				clipText(t.value.String()))
		}
		return "undefined: the types do not go together; " + strings.Join(parts, ", ")
	case strings.Contains(text, "cost limit exceeded"):
		return fmt.Sprintf("undefined: it costs more than %d here", MaxCost)
	}
	return "undefined: " + clipText(oneLine(text))
}

// describeValues describes the values that a filter read: "worker.free.memory is 512, worker.attributes.zone is b".
func (e *Evaluator) describeValues(c *clause) string {
	parts := make([]string, 0, len(c.paths))
	for _, p := range c.paths {
		if v := e.readPath(p); v != nil {
			parts = append(parts, p.text+" is "+valueText(v))
		}
	}
	if len(parts) == 0 {
		return "not so"
	}
	return strings.Join(parts, ", ")
}

// path is a chain of fields and keys, beginning with a variable, ready to be read.
type path struct {
	text  string // as written
	of    string // its variable: worker or request
	steps []func(any) ref.Val
}

// newPath makes a path of names, the first of which is the variable. It ends where the type has no such field.
func newPath(names []string) path {
	p := path{text: strings.Join(names, "."), of: names[0]}
	list := workerFields()
	if p.of == "request" {
		list = fieldsOfRequest()
	}
	keyed := false
	for _, name := range names[1:] {
		if keyed {
			p.steps = append(p.steps, func(v any) ref.Val {
				if found, ok := v.(*mapValue).find(name); ok {
					return found
				}
				return nil
			})
			break
		}
		i := slices.IndexFunc(list, func(f field) bool { return f.name == name })
		if i < 0 {
			break
		}
		p.steps = append(p.steps, list[i].get)
		if keyed = list[i].is.Kind() == types.MapKind; list[i].is == resourcesType {
			list = resourceFields()
		} else {
			list = nil
		}
	}
	return p
}

// readPath reads a path; nil if a key is missing.
func (e *Evaluator) readPath(p path) ref.Val {
	var at any = &e.worker
	if p.of == "request" {
		at = &e.request
	}
	for _, step := range p.steps {
		v := step(at)
		if v == nil {
			return nil
		}
		at = v
	}
	v, _ := at.(ref.Val)
	return v
}

func valueText(v ref.Val) string {
	switch x := v.(type) {
	case types.Double:
		return numberText(float64(x))
	case types.String:
		return clipText(strconv.Quote(string(x)))
	case *mapValue:
		return fmt.Sprintf("a map of %d", x.size())
	case *types.Err:
		return clipText(x.Error())
	}
	if v.Type() == types.ListType {
		list, _ := v.Value().([]string)
		if len(list) == 0 {
			return "an empty list"
		}
		return clipText(strings.Join(list, ","))
	}
	return clipText(fmt.Sprint(v.Value()))
}

func numberText(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }
