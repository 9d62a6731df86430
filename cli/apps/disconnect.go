package apps

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
)

// notYet is said where a policy is set or shown that souk does not act on.
const notYet = "nothing acts on it yet: whatever it says, no machine is made in the place of one whose worker is " +
	"not heard"

// cmdAppsDisconnect is "souk apps disconnect".
func cmdAppsDisconnect(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "disconnect APP [never|fast|fenced]",
		Short: "Say what is to become of machines on a worker that cannot be heard (not acted on yet)",
		Long: `Set, or show, what is to become of an app's machines whose worker cannot be heard. NOTHING ACTS ON IT YET: a worker
that is cut off goes on with its machines, and nothing makes others in their place. The policy is kept for what will.

  never   they are waited for; nothing is made in their place (the default)
  fast    others are made once the worker is dead to its neighbours: both may run for a while
  fenced  as fast, for programs that hand their SOUK_FENCE to what they write to, which refuses the older

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
			c.JSONLine(c.Out, map[string]string{"app": given[0], "policy": policy, "note": notYet})
			return nil
		}
		fmt.Fprintf(c.Out, "%s: %s\n", given[0], policy)
		if policy != "never" {
			fmt.Fprintf(c.Err, "note: %s\n", notYet)
		}
		return nil
	}
	return cmd
}
