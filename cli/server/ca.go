package server

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/member"
	"github.com/soukhq/souk/mesh/pki"
)

// CA makes the command "souk ca".
func CA(c *cli.Env) *cobra.Command {
	var dir string
	ca := func() (*pki.CA, error) {
		d, err := c.AgentDir(dir)
		if err != nil {
			return nil, err
		}
		return pki.OpenCA(filepath.Join(d, member.CADir))
	}
	cmd := cli.Parent(
		&cobra.Command{Use: "ca", Short: "Rotate a cluster's root, and give certificates by hand",
			Long: `Work with the cluster's certificate authority. These commands run on a host
that has its directory (DIR/ca), whether or not an agent runs there.

To rotate the root: prepare; a week later activate; 90 days later retire. Members follow by themselves.
To shut out a member that was removed and may be in wrong hands: rotate-gossip-key, while the agent here runs.
When certificates have ended: issue, and bring what it writes to the member. See "souk help break-glass".`,
			Example: "  souk ca list\n  souk ca prepare\n  souk ca issue fra-2 --out /media/key/fra-2"},
		cmdCAIssue(c, ca),
		cmdCAStep(c, ca, "prepare", "Make the next root; it is trusted from now on, and signs nothing yet",
			(*pki.CA).Prepare),
		cmdCAActivate(c, ca),
		cmdCAStep(c, ca, "retire", "Stop trusting the roots before the one that signs", (*pki.CA).Retire),
		cmdCARotateGossip(c, ca),
		cmdCAList(c, ca),
	)
	cmd.PersistentFlags().StringVar(&dir, "dir", "",
		"the directory of the member with the authority (default: as souk agent)")
	return cmd
}

type openCA func() (*pki.CA, error)

func cmdCAStep(c *cli.Env, open openCA, name, short string, step func(*pki.CA, time.Time) error) *cobra.Command {
	return &cobra.Command{
		Use:     name,
		Short:   short,
		Example: "  souk ca " + name,
		Args:    cli.Args(0, 0, "no argument"),
		RunE: func(*cobra.Command, []string) error {
			ca, err := open()
			if err != nil {
				return err
			}
			if err := step(ca, clock(c)); err != nil {
				return err
			}
			c.Say(name+"d", "root", "%sd", name)
			return nil
		},
	}
}

func cmdCAActivate(c *cli.Env, open openCA) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "activate",
		Short:   "Let the next root sign",
		Example: "  souk ca activate",
		Args:    cli.Args(0, 0, "no argument"),
	}
	force := cmd.Flags().Bool("force", false,
		"before a week is over: members that have not heard of it refuse whoever has a certificate of it")
	cmd.RunE = func(*cobra.Command, []string) error {
		ca, err := open()
		if err != nil {
			return err
		}
		if err := ca.Activate(clock(c), *force); err != nil {
			return err
		}
		c.Say("activated", "root",
			"the next root signs now; give the issuers new certificates of it (souk ca issue), the others renew by "+
				"themselves")
		return nil
	}
	return cmd
}

func cmdCAIssue(c *cli.Env, open openCA) *cobra.Command {
	var out string
	var roles []string
	cmd := &cobra.Command{Use: "issue MEMBER", Short: "Give a member a new certificate by hand, without asking anybody",
		Long: `Make a new key and certificate for a member, and write them as the member
keeps them: the files in --out belong into its directory's identity/, mode 0600. Whoever has them is that member. A
running agent reads them within an hour, or at its next start.`,
		Example: "  souk ca issue fra-2 --out /media/key/fra-2\n  souk ca issue a --role gateway,issuer,worker --out " +
			"/var/lib/souk/identity", Args: cli.Args(1, 1, "a member's id")}
	cmd.Flags().StringVar(&out, "out", "", "the directory to write to; needed")
	cmd.Flags().StringSliceVar(&roles, "role", []string{"gateway",
		"worker"}, "what it may do: gateway, worker, issuer")
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{"gateway", "worker", "issuer"},
		cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(_ *cobra.Command, argv []string) error {
		if out == "" {
			return cli.Usagef("--out is needed: where should the certificate be written?")
		}
		ca, err := open()
		if err != nil {
			return err
		}
		name := pki.Name{ID: argv[0]}
		for _, r := range roles {
			name.Roles = append(name.Roles, pki.Role(r))
		}
		if err := ca.IssueTo(out, name, clock(c)); err != nil {
			return err
		}
		c.Say("issued", argv[0],
			"%s: a certificate for %s until %s; put it into the member's directory, below identity",
			out, argv[0], clock(c).Add(pki.CertificateLife).UTC().Format(time.DateOnly))
		return nil
	}
	return cmd
}

func cmdCAList(c *cli.Env, open openCA) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List who was given a certificate by this directory",
		Example: "  souk ca list",
		Args:    cli.Args(0, 0, "no argument"),
		RunE: func(*cobra.Command, []string) error {
			ca, err := open()
			if err != nil {
				return err
			}
			list, err := ca.Issued()
			if err != nil {
				return err
			}
			if c.JSON {
				cli.JSONList(c, list)
				return nil
			}
			rows := make([][]cli.Cell, len(list))
			for i, g := range list {
				roles := make([]string, len(g.Roles))
				for j, r := range g.Roles {
					roles[j] = string(r)
				}
				left := g.Ends.Sub(clock(c)).Round(time.Hour)
				rows[i] = cli.Cells(g.ID, strings.Join(roles, ","), g.Ends.UTC().Format(time.DateTime), leftText(left))
			}
			c.Table([]cli.Column{cli.Keep("MEMBER").Cut(8), cli.Drop("ROLES", 2).Cut(6), cli.Drop("ENDS", 1),
				cli.Keep("LEFT")}, rows)
			return nil
		},
	}
}

func leftText(left time.Duration) string {
	if left <= 0 {
		return "ended"
	}
	return fmt.Sprintf("%d days", int(left.Hours()/24))
}

// clock returns the time as the authority's commands take it. SOUK_TEST_CLOCK moves it, for tests of what happens in
// years.
func clock(c *cli.Env) time.Time {
	if at, err := time.Parse(time.RFC3339, c.Getenv("SOUK_TEST_CLOCK")); err == nil {
		return at
	}
	return time.Now()
}
