package main

import "github.com/spf13/cobra"

func (c *cli) cmdSimResults() *cobra.Command {
	cmd := &cobra.Command{Use: "results", Short: "Write docs/results.md from runs", Args: args(0, 0, "no argument"),
		Example: "  souk sim results --traces DIR > docs/results.md"}
	cmd.RunE = func(*cobra.Command, []string) error { return nil }
	return cmd
}
