package policies

import (
	"context"
	"regexp"
	"strconv"
	"strings"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/sim/gate"
)

// planGate is a condition that fails a plan, such as "nowhere > 0" or "moved > 10%".
type planGate struct {
	text, metric string
	share        bool // the limit is in per cent of the compared machines
	limit        gate.Limit
}

// parseGate reads a condition.
func parseGate(text string) (planGate, error) {
	m := regexp.MustCompile(`^\s*(nowhere|moved|evicted|compared)\s*(>=|<=|>|<)\s*([0-9.]+)\s*(%?)\s*$`).
		FindStringSubmatch(text)
	bad := func(why string) (planGate, error) {
		return planGate{}, fault.New(fault.Invalid, fault.CodeFailIf,
			"%q is no condition: %s; write one like 'nowhere > 0' or 'moved > 10%%'", text, why)
	}
	if m == nil {
		return bad("it must be nowhere, moved, evicted or compared, a comparison, and a number of machines or a " +
			"percentage")
	}
	n, err := strconv.ParseFloat(m[3], 64)
	if err != nil {
		return bad(m[3] + " is no number")
	}
	if m[4] != "" && m[1] == "compared" {
		return bad("compared is what the others are a percentage of")
	}
	return planGate{strings.TrimSpace(text), m[1], m[4] != "", gate.Limit{Op: m[2], Factor: n}}, nil
}

// fails returns the error of a plan that meets the condition; nil: it does not.
func (g planGate) fails(p *api.PolicyPlan) error {
	x := &p.Comparison
	value := float64(map[string]int{"nowhere": len(x.Nowhere), "moved": len(x.Moves), "evicted": evicted(p),
		"compared": x.Compared}[g.metric])
	unit := ""
	if g.share {
		value, unit = 100*value/float64(max(1, x.Compared)), "%"
	}
	limit, fails := g.limit.Fails(value, 0)
	if !fails {
		return nil
	}
	return fault.New(fault.Internal, cli.CodeGate,
		"policy %s fails %q: it has %.4g%s, and the limit is %.4g%s", p.Policy,
		g.text, value, unit, limit, unit)
}

// evicted counts the machines that would be evicted to make room for those that fit nowhere.
func evicted(p *api.PolicyPlan) (n int) {
	for _, m := range p.Comparison.Nowhere {
		for _, e := range m.Evicts {
			n += e.Machines
		}
	}
	return n
}

// unplaced refuses, without yes, to apply a policy under which machines that are placed now would fit nowhere.
func unplaced(ctx context.Context, cl *client.Client, about api.PolicyQuestion, yes bool) error {
	if yes {
		return nil
	}
	p, err := cl.PlanPolicy(ctx, about)
	if err != nil {
		return err
	}
	n := len(p.Comparison.Nowhere)
	if n == 0 {
		return nil
	}
	first := p.Comparison.Nowhere[0]
	why := ""
	if len(first.Why) > 0 {
		why = ": " + cli.ClausesText(first.Why)
	}
	return cli.Usagef("policy %s would place %d of %s nowhere, should they be placed anew, such as %s of app %s%s; "+
		"\"souk policy plan\" lists them; say --yes", p.Policy, n,
		cli.NumberOf(p.Comparison.Compared, "machine", "machines"), first.Machine, first.App, why)
}

// unplacedOf is unplaced for the policy that an app chooses; "" is the default.
func unplacedOf(ctx context.Context, cl *client.Client, app, name string, yes bool) error {
	if name == "" && !yes {
		all, err := cl.Policies(ctx)
		if err != nil {
			return err
		}
		for _, p := range all {
			if p.Default {
				name = p.Name
			}
		}
	}
	return unplaced(ctx, cl, api.PolicyQuestion{Policy: name, App: app}, yes)
}
