package server

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/mesh/pki"
)

func cmdCARotateGossip(c *cli.Env, open openCA) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate-gossip-key",
		Short: "Replace the key of gossip, so that a removed member can no longer read it",
		Long: `Make a new key for gossip, and wait until no member uses the old one. It is
for when a host was removed (souk node rm) and its disk is lost or in other hands: with the old key it can listen
to gossip, and speak in it.

It goes in three steps, each once every member has taken the one before: all read the new key; all write with it;
the old one is forgotten. So nothing is interrupted. A member that was not heard for a minute is not waited for, nor
is anybody in gossip who has no certificate. With --force the next step of a rotation under way is taken at once, one
step each time: who had not taken the one before is cut off until it has asked for the keys, some seconds.
The agent with the authority's directory must run, and carries it on by itself, whether or not this command waits.
Keys go to members with a certificate, over the wire, and not to removed ones.

A member that is away meanwhile comes back by itself, as long as it reaches that agent: it asks for the keys it
lacks. Where it cannot, bring them: souk ca issue. Copies of the authority's directory on other members with the
role issuer follow.`,
		Example: "  souk node rm fra-2 --reason stolen --yes\n  souk ca rotate-gossip-key",
		Args:    cli.Args(0, 0, "no argument"),
	}
	force := cmd.Flags().Bool("force", false, "take the next step of the rotation under way, whoever lags behind")
	patience := cmd.Flags().Duration("wait", 2*time.Minute, "how long to wait for the members; 0: not at all")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ca, err := open()
		if err != nil {
			return err
		}
		if *patience < 0 {
			return cli.Usagef("--wait is a time from now on, not %v", *patience)
		}
		if *force {
			return forceRotation(c, ca)
		}
		return rotateGossip(cmd.Context(), c, ca, *patience)
	}
	return cmd
}

// forceRotation takes the next step of the rotation that is under way.
func forceRotation(c *cli.Env, ca *pki.CA) error {
	k, err := ca.Gossip()
	if err != nil {
		return err
	}
	if k, err = ca.AdvanceGossip(k.Generation); err != nil {
		return err
	}
	if k.Step == "" {
		c.Say("rotated", "gossip-key", "gossip has another key; the old one opens nothing any more")
		return nil
	}
	c.Say("advanced", "gossip-key", "the new key is %s now; members that had not taken the step before ask for it",
		k.Step)
	return nil
}

// lookAgain is how often the command checks the rotation's progress, which the agent writes into the directory.
const lookAgain = 100 * time.Millisecond

func rotateGossip(ctx context.Context, c *cli.Env, ca *pki.CA, patience time.Duration) error {
	k, err := ca.RotateGossip(time.Now())
	if err != nil {
		return err
	}
	last := k.Generation + 2
	told := pki.Step("")
	late, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for k.Generation < last {
		if k.Step != told && !c.JSON {
			told = k.Step
			fmt.Fprintln(c.Out, map[pki.Step]string{pki.StepInstalled: "the new key is made; members learn to read it",
				pki.StepUsed: "every member reads it; now they write with it"}[k.Step])
		}
		if patience == 0 {
			c.Say("rotating", "gossip-key",
				"the agent with this directory carries it on; souk members shows who has come how far, under KEYS: "+
					"%d at the end",
				last)
			return nil
		}
		if wait.For(late, lookAgain) != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fault.New(
				fault.Timeout,
				fault.CodeRotation,
				"after %v the new key of gossip is %s, but not every member has taken that step: \"souk members\" "+
					"shows less than %d under KEYS for those that lag; the rotation continues by itself while the "+
					"agent with this directory runs, and --force takes the next step without them",
				patience,
				k.Step,
				k.Generation,
			)
		}
		if k, err = ca.Gossip(); err != nil {
			return err
		}
	}
	c.Say("rotated", "gossip-key", "gossip has another key; the old one opens nothing any more")
	return nil
}
