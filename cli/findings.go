package cli

import (
	"fmt"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
)

func (c *Env) PrintFindings(findings []api.HealthFinding) {
	var last cluster.WorkerID
	for _, f := range findings {
		if f.Member != last {
			fmt.Fprintf(c.Out, "%s\n", f.Member)
			last = f.Member
		}
		mark := "ok  "
		if !f.OK {
			mark = "LACK"
		}
		c.Printf("  %s %-12s %s\n", mark, f.Check, f.Have)
		if f.Advice != "" {
			c.Printf("       %-12s %s\n", "", f.Advice)
		}
	}
}
