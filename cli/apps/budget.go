package apps

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cli/machines"
)

// cmdAppsBudget is "souk apps budget".
func cmdAppsBudget(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "budget APP [MAX[/WINDOW]]",
		Short: "Say how many of an app's machines a worker may evict, or tell it",
		Long: "Say how many of an app's machines one worker may evict within a time, for machines that are made " +
			"from then " +
			"on and name no\n" +
			"budget of their own (souk run --evictions). 0 is never. The worker that has the machines keeps count, " +
			"also over " +
			"restarts.",
		Example: "  souk apps budget shop\n  souk apps budget shop 3/1h\n  souk apps budget shop 0\n  souk apps " +
			"budget " +
			"shop --none",
		Args: cli.Args(1, 2, "an app, and a budget to set it"),
	}
	none := cmd.Flags().Bool("none", false, "use the default")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if *none && len(given) == 2 {
			return cli.Usagef("%s wants a budget or --none, not both", cmd.CommandPath())
		}
		cl, err := c.Client()
		if err != nil {
			return err
		}
		var b api.AppBudget
		switch {
		case *none:
			b, err = cl.SetAppBudget(cmd.Context(), given[0], api.AppBudget{Default: true})
		case len(given) == 2:
			to, bad := machines.BudgetOf(given[1])
			if bad != nil {
				return bad
			}
			b, err = cl.SetAppBudget(cmd.Context(), given[0], api.AppBudget{Budget: *to})
		default:
			b, err = cl.AppBudget(cmd.Context(), given[0])
		}
		switch {
		case err != nil:
			return err
		case c.JSON:
			c.JSONLine(c.Out, b)
			return nil
		}
		text := "app %s: a worker may evict at most %d of its machines within %v\n"
		if b.Default {
			text = "app %s: a worker may evict at most %d of its machines within %v (the default)\n"
		}
		c.Printf(text, given[0], b.Budget.Max, b.Budget.Window.Round(time.Second))
		return nil
	}
	return cmd
}
