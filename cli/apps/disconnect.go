package apps

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
)

// cmdAppsDisconnect is "souk apps disconnect".
func cmdAppsDisconnect(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "disconnect APP [never|fast|fenced]",
		Short: "Say what is to become of an app's replicas on a worker that cannot be heard",
		Long: `Set, or show, what is to become of the replicas of an app whose worker cannot be heard. It counts from the next release
on ("souk run --replicas"), for groups that do not say it themselves (on_lost). Machines that were made without a release
are waited for, whatever it says.

  never   they are waited for; nothing is made in their place
  fast    others are made in their place: two may run until the worker is heard again
  fenced  as fast, for programs that hand their SOUK_FENCE to what they write to, which refuses the older

Where nothing was set it is never of a group with a volume, and fast of any other.
SOUK_FENCE is in the environment of every machine, and is larger at each start.`,
		Example: "  souk apps disconnect shop\n  souk apps disconnect shop fenced",
		Args:    cli.Args(1, 2, "an app, and a policy to set it: never, fast or fenced"),
	}
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		if len(given) == 2 {
			if err := cl.SetDisconnect(cmd.Context(), given[0], given[1]); err != nil {
				return err
			}
		}
		policy, err := cl.Disconnect(cmd.Context(), given[0])
		if err != nil {
			return err
		}
		if c.JSON {
			c.JSONLine(c.Out, map[string]string{"app": given[0], "policy": policy})
			return nil
		}
		fmt.Fprintf(c.Out, "%s: %s\n", given[0], policy)
		return nil
	}
	return cmd
}
