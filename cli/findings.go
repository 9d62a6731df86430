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
		fmt.Fprintf(c.Out, "  %s %-12s %s\n", mark, f.Check, f.Have)
		if f.Advice != "" {
			fmt.Fprintf(c.Out, "       %-12s %s\n", "", f.Advice)
		}
	}
}
