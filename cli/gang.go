package cli

import (
	"cmp"
	"context"
	"slices"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Members replaces each reference to a gang, gang/ID, by its machines' ids, in the order of their ranks.
func (c *Env) Members(ctx context.Context, cl *client.Client, refs []string) ([]string, error) {
	if !slices.ContainsFunc(refs, machine.IsGang) {
		return refs, nil
	}
	var out []string
	for _, ref := range refs {
		if !machine.IsGang(ref) {
			out = append(out, ref)
			continue
		}
		lines, err := c.gang(ctx, cl, ref)
		if err != nil {
			return nil, err
		}
		for _, l := range lines {
			out = append(out, l.ID)
		}
	}
	return out, nil
}

// gang returns the machines of a gang by their ranks; there is one at least.
func (c *Env) gang(ctx context.Context, cl *client.Client, ref string) ([]*machine.Line, error) {
	lines, err := cl.MachineLines(ctx, client.LineOptions{App: c.AppGiven(), Name: ref})
	if err != nil {
		return nil, err
	}
	if len(lines) == 0 {
		return nil, fault.New(fault.NotFound, fault.CodeGang,
			"there is no machine of %s%s: souk gang prints the id of a gang, and \"souk ps --json\" has it, too",
			fault.Clip(ref, 80), inApp(c.AppGiven()))
	}
	slices.SortFunc(lines, func(a, b *machine.Line) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.ID, b.ID))
	})
	return lines, nil
}

// onlyOfGang returns the only machine of a gang; it fails if there are several.
func (c *Env) onlyOfGang(ctx context.Context, cl *client.Client, ref string) (*machine.Machine, error) {
	lines, err := c.gang(ctx, cl, ref)
	if err != nil {
		return nil, err
	}
	if len(lines) > 1 {
		return nil, fault.New(fault.Conflict, fault.CodeAmbiguous,
			"%s has %d machines, and one is wanted here: give its name or its id; rank 0 is %s", ref, len(lines),
			cmp.Or(lines[0].Name, lines[0].ID))
	}
	m, err := cl.Machine(ctx, lines[0].App, lines[0].ID)
	if err != nil {
		return nil, err
	}
	return Owned(m, lines[0].App), nil
}
