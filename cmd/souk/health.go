package main

import (
	"context"
	"fmt"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// doHealth is souk doctor --cluster: unlike souk doctor, its exit code says whether all is well.
func (c *cli) doHealth(ctx context.Context) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	h, err := cl.Health(ctx)
	if err != nil {
		return err
	}
	if c.json {
		c.jsonLine(c.out, h)
	} else {
		c.printHealth(h.Findings)
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
	return fault.New(fault.Precondition, "not_well", "%d of %d findings need attention", bad, len(h.Findings))
}

func (c *cli) printHealth(findings []api.HealthFinding) {
	var last cluster.WorkerID
	for _, f := range findings {
		if f.Member != last {
			fmt.Fprintf(c.out, "%s\n", f.Member)
			last = f.Member
		}
		mark := "ok  "
		if !f.OK {
			mark = "LACK"
		}
		fmt.Fprintf(c.out, "  %s %-12s %s\n", mark, f.Check, f.Have)
		if f.Advice != "" {
			fmt.Fprintf(c.out, "       %-12s %s\n", "", f.Advice)
		}
	}
}
