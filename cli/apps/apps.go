// Package apps has the commands for apps and for what their machines use: souk apps, secrets and volumes.
package apps

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cli/policies"
	"github.com/soukhq/souk/cli/quota"
)

// Apps makes the command "souk apps".
func Apps(c *cli.Env) *cobra.Command {
	list := func(cmd *cobra.Command, _ []string) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		as, err := cl.Apps(cmd.Context())
		if err != nil {
			return err
		}
		if c.JSON {
			cli.JSONList(c, as)
			return nil
		}
		printApps(c, as)
		return nil
	}
	create := &cobra.Command{
		Use: "create NAME", Short: "Make an app",
		Example: "  souk apps create shop",
		Args:    cli.Args(1, 1, "a name"),
	}
	create.RunE = func(cmd *cobra.Command, given []string) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		if _, err := cl.CreateApp(cmd.Context(), given[0]); err != nil {
			return err
		}
		c.Say("created", given[0], "app %s is created", given[0])
		return nil
	}
	destroy := &cobra.Command{Use: "destroy APP", Short: "Destroy an app with its machines and volumes",
		Example: "  souk apps destroy shop --yes", Args: cli.Args(1, 1, "a name")}
	yes := destroy.Flags().Bool("yes", false, "really: machines are killed and volumes are lost")
	destroy.RunE = func(cmd *cobra.Command, given []string) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		a, err := cl.App(cmd.Context(), given[0])
		if err != nil {
			return err
		}
		if !*yes && a.MachineCount+a.VolumeCount > 0 {
			return cli.Usagef("app %s has %s and %s, which would be lost; say --yes", a.Name,
				cli.NumberOf(a.MachineCount, "machine", "machines"), cli.NumberOf(a.VolumeCount, "volume", "volumes"))
		}
		if err := cl.DestroyApp(cmd.Context(), given[0]); err != nil {
			return err
		}
		c.Say("destroyed", given[0], "app %s is destroyed", given[0])
		return nil
	}
	return cli.Parent(
		&cobra.Command{Use: "apps", Short: "List, make and destroy apps", Example: "  souk apps\n  souk apps --json",
			Args: cli.Args(0, 0, "no argument, or create, destroy, policy, budget, namespace or disconnect"),
			RunE: list},
		create,
		destroy,
		policies.AppsPolicy(c),
		cmdAppsBudget(c),
		quota.AppsNamespace(c),
		cmdAppsDisconnect(c),
	)
}

func printApps(c *cli.Env, as []api.App) {
	rows := make([][]cli.Cell, len(as))
	for i, a := range as {
		rows[i] = cli.Cells(a.Name, a.Status, fmt.Sprint(a.MachineCount), fmt.Sprint(a.VolumeCount))
	}
	c.Table([]cli.Column{cli.Keep("NAME").Cut(8), cli.Drop("STATUS", 2), cli.Keep("MACHINES"),
		cli.Drop("VOLUMES", 1)}, rows)
}
