package doctor

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cli/check"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/policy"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/node"
)

// doDecisions is souk doctor --decisions: it recomputes every decision of a souk's log.
func doDecisions(ctx context.Context, c *cli.Env, dirFlag string) error {
	dir, err := c.HomeWith(dirFlag, node.DecisionsDir, "decision log")
	if err != nil {
		return err
	}
	done := c.Progress("checking")
	found, notes, err := check.Decisions(ctx, filepath.Join(dir, node.DecisionsDir), policies(ctx, c))
	done()
	if err != nil {
		return err
	}
	for _, n := range notes {
		fmt.Fprintf(c.Err, "note: %s\n", n)
	}
	printInvariant(c, found)
	if !found.OK {
		return fault.New(fault.Internal, cli.CodeDecisions,
			"some recorded decisions come out differently when they are computed again; the lines above name them")
	}
	return nil
}

// policies finds souk's built-in policies, and asks the server for others.
func policies(ctx context.Context, c *cli.Env) check.PolicyOf {
	known := map[decision.Policy]*placement.Policy{}
	for _, s := range policy.Builtins() {
		p := s.Bind(policy.NewEvaluator())
		known[decision.Policy{Name: s.Name}] = &p
	}
	fetch := func(d decision.Policy) *placement.Policy {
		cl, err := c.Client()
		if err != nil {
			return nil
		}
		f, err := cl.Policy(ctx, d.Name, d.Version)
		if err != nil {
			return nil
		}
		s, err := policy.Load([]byte(f.Text))
		if err != nil {
			return nil
		}
		p := s.Bind(policy.NewEvaluator())
		p.Version = d.Version
		return &p
	}
	return func(d decision.Policy) (placement.Policy, bool) {
		p, asked := known[d]
		if !asked {
			p = fetch(d)
			known[d] = p
		}
		if p == nil {
			return placement.Policy{}, false
		}
		return *p, true
	}
}
