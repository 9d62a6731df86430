package server

import (
	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
)

func cmdAgentLives(c *cli.Env) *cobra.Command {
	var dir, reason string
	var yes bool
	cmd := &cobra.Command{Use: "lives", Short: "Say that, of two hosts with one id, this one lives",
		Long: `A copied disk (a template of a virtual machine, a restored snapshot) that is
brought up beside its original is a second worker with one id and one key. As soon as they hear of each other neither
grants or starts anything, for nobody but you knows which one is meant to be. What runs goes on.

Say this on the host of the one that lives. It gets a new certificate, and the other's is refused; who said so, when
and why is kept in the cluster. The other says at /readyz that its id is gone: stop what runs there, end its
agent, remove its directory, and let it join with an id of its own.`,
		Example: "  souk agent lives --reason 'the other was a template' --yes", Args: cli.Args(0, 0, "no argument")}
	cmd.Flags().StringVar(&dir, "dir", "", "the directory of the agent (default: as souk agent)")
	cmd.Flags().StringVar(&reason, "reason", "", "how that is known, for those who wonder later; needed")
	cmd.Flags().BoolVar(&yes, "yes", false, "really: the other one's id is gone")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case reason == "":
			return cli.Usagef("--reason is needed: others will want to know how it was decided")
		case !yes:
			return cli.Usagef("the other host of this id is shut out, with what runs there; say --yes")
		}
		d, err := c.AgentDir(dir)
		if err != nil {
			return err
		}
		cl, err := agentOf(d)
		if err != nil {
			return err
		}
		if err := cl.Lives(cmd.Context(), cli.WhoAmI(), reason); err != nil {
			return err
		}
		c.Say("lives", d, "the member of %s is the one that lives; the other must join with another id", d)
		return nil
	}
	return cmd
}
