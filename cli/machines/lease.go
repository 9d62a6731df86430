package machines

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/machine"
)

// Lease is "souk lease".
func Lease(c *cli.Env) *cobra.Command {
	var nonce string
	var ttl time.Duration
	sub := func(use, short, example string, f func(cmd *cobra.Command, cl *client.Client,
		m *machine.Machine) error) *cobra.Command {
		return &cobra.Command{
			Use:     use + " MACHINE",
			Short:   short,
			Example: example,
			Args:    cli.Args(1, 1, "one machine, by id or name"),
			RunE: func(cmd *cobra.Command, refs []string) error {
				cl, m, err := c.One(cmd, refs[0])
				if err != nil {
					return err
				}
				return f(cmd, cl, m)
			},
		}
	}
	show := sub(
		"show",
		"Tell who holds the lease",
		"  souk lease show web",
		func(cmd *cobra.Command, cl *client.Client, m *machine.Machine) error {
			l, err := cl.Lease(cmd.Context(), m.App, m.ID)
			if err == nil {
				printLease(c, l, m)
			}
			return err
		},
	)
	take := sub(
		"take",
		"Take the lease, or with --nonce refresh it",
		"  souk lease take web --ttl 1m --json | jq -r .nonce",
		func(cmd *cobra.Command, cl *client.Client, m *machine.Machine) error {
			l, err := cl.TakeLease(cmd.Context(), m.App, m.ID, nonce, ttl)
			if err == nil {
				printLease(c, l, m)
			}
			return err
		},
	)
	take.Flags().DurationVar(&ttl, "ttl", time.Minute, "how long it is held, in whole seconds")
	release := sub(
		"release",
		"Give the lease back",
		"  souk lease release web --nonce 8a1b2c",
		func(cmd *cobra.Command, cl *client.Client, m *machine.Machine) error {
			if nonce == "" {
				return cli.Usagef("a lease is given back with its nonce: --nonce")
			}
			if err := cl.ReleaseLease(cmd.Context(), m.App, m.ID, nonce); err != nil {
				return err
			}
			c.Say("released", m.ID, "the lease of %s is free", cli.Label(m))
			return nil
		},
	)
	cmd := cli.Parent(&cobra.Command{Use: "lease", Short: "Show, take and give back the lock on a machine",
		Long: "A lease is a lock on a machine: while it is held, only who knows its nonce can change the machine. It " +
			"ends by itself.",
		Example: "  souk lease take web --ttl 30s\n  souk stop web --nonce 8a1b2c\n  souk lease release web --nonce " +
			"8a1b2c"}, show, take, release)
	cmd.PersistentFlags().StringVar(&nonce, "nonce", "", "the nonce of the lease")
	return cmd
}

func printLease(c *cli.Env, l machine.Lease, m *machine.Machine) {
	if c.JSON {
		c.JSONLine(c.Out, l)
		return
	}
	fmt.Fprintf(c.Out, "the lease of %s is held by %s until %s\n", cli.Label(m), l.Owner,
		time.Unix(l.ExpiresAt, 0).Format(time.RFC3339))
	if l.Nonce != "" {
		fmt.Fprintf(c.Out, "  nonce %s\n", l.Nonce)
	}
}
