package cluster

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
)

// Workers makes the command "souk workers".
func Workers(c *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "workers",
		Short:   "List workers: what they have and what is free",
		Example: "  souk workers\n  souk workers --json",
		Args:    cli.Args(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			w, err := cl.Workers(cmd.Context())
			if err != nil {
				return err
			}
			if c.JSON {
				c.JSONLine(c.Out, w)
				return nil
			}
			var rows [][]cli.Cell
			for _, r := range w.Workers {
				rows = append(
					rows,
					cli.Cells(string(r.Worker), string(r.Region), string(r.State), fmt.Sprint(r.Machines),
						r.Free().String(),
						r.Capacity.String()),
				)
			}
			c.Table([]cli.Column{cli.Keep("WORKER").Cut(8), cli.Drop("REGION", 3).Cut(6), cli.Keep("STATE"),
				cli.Keep("MACHINES"), cli.Drop("FREE", 2).Cut(24), cli.Drop("CAPACITY", 1).Cut(24)}, rows)
			for _, u := range w.Unreachable {
				fmt.Fprintf(c.Err, "worker %s does not answer: %s\n", u.Worker, u.Error)
			}
			return nil
		},
	}
}
