package doctor

import (
	"context"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/fault"
)

// The codes of this package's errors.
const (
	codeInvariants fault.Code = "invariants" // an invariant does not hold
	codeNotWell    fault.Code = "not_well"   // a finding of the doctor needs attention
	codeSbom       fault.Code = "sbom"       // the program has no list of the modules it was built from
)

// doHealth is souk doctor --cluster: unlike souk doctor, its exit code says whether all is well.
func doHealth(ctx context.Context, c *cli.Env) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	h, err := cl.Health(ctx, "")
	if err != nil {
		return err
	}
	if c.JSON {
		c.JSONLine(c.Out, h)
	} else {
		c.PrintFindings(h.Findings)
	}
	if h.OK {
		return nil
	}
	bad := 0
	for _, f := range h.Findings {
		if !f.OK {
			bad++
		}
	}
	return fault.New(fault.Precondition, codeNotWell, "%d of %d findings need attention", bad, len(h.Findings))
}
