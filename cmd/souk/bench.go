package main
import "github.com/spf13/cobra"
func (c *cli) cmdBench() *cobra.Command { return &cobra.Command{Use:"bench"} }
