package sim

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/sim/chaos"
)

func cmdSimChaos(c *cli.Env) *cobra.Command {
	seed, runs := uint64(1), 1000
	cmd := &cobra.Command{
		Use:   "chaos",
		Short: "Check the market's invariants under loss, crashes and stale views",
		Args:  cli.Args(0, 0, "no argument"),
		Long: "Run small fleets of workers and buyers, and gangs, whose faults a seed decides: messages lost and " +
			"late, " +
			"views seconds old,\n" +
			"workers that crash and come back. After every step the design's invariants are checked. One seed is " +
			"one run, " +
			"always the same.",
		Example: "  souk sim chaos --seed 1 --runs 1000\n  souk sim chaos --seed 145 --runs 1 --json",
	}
	cmd.Flags().Uint64Var(&seed, "seed", 1, "the first seed")
	cmd.Flags().IntVar(&runs, "runs", 1000, "how many seeds")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if runs < 1 {
			return cli.Usagef("--runs is at least 1")
		}
		var sum chaos.Report
		for k := range runs {
			if err := context.Cause(cmd.Context()); err != nil {
				return err
			}
			rep, err := chaos.Run(seed + uint64(k))
			if err != nil {
				return fault.Wrap(err, fault.Internal, chaos.CodeChaos,
					"seed %d (repeat it with: souk sim chaos --seed %d --runs 1)",
					seed+uint64(k), seed+uint64(k))
			}
			sum.Add(rep)
		}
		if c.JSON {
			c.JSONLine(c.Out, sum)
			return nil
		}
		fmt.Fprintf(
			c.Out,
			"%d runs, no invariant broken: %d ticks, %d grants, %d refusals, %d answers lost, %d crashes, %d of %d "+
				"gangs "+
				"whole, %d evictions\n",
			runs,
			sum.Ticks,
			sum.Granted,
			sum.Refused,
			sum.Lost,
			sum.Crashes,
			sum.Whole,
			sum.Gangs,
			sum.Evicted,
		)
		return nil
	}
	return cmd
}
