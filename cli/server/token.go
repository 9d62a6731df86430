package server

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/member"
	"github.com/soukhq/souk/mesh/pki"
)

// Token makes the command "souk token".
func Token(c *cli.Env) *cobra.Command {
	var dir, id string
	var ttl time.Duration
	join := &cobra.Command{Use: "join", Short: "Make a token with which one more member joins, once",
		Long: `Make a token that lets one more member join, once, until it ends. It must
be run where the cluster's authority is (DIR/ca), and the agent there must run when the token is used. The token
also says by which root the agent is known, so the member that joins sends nothing to anybody else.`,
		Example: "  souk token join\n  souk token join --ttl 10m --id fra-2", Args: cli.Args(0, 0, "no argument")}
	join.Flags().StringVar(&dir, "dir", "", "the directory of the member with the authority (default: as souk agent)")
	join.Flags().DurationVar(&ttl, "ttl", time.Hour, "how long the token is good for")
	join.Flags().StringVar(&id, "id", "", "the only id that may join with it (default: any that is free)")
	join.RunE = func(*cobra.Command, []string) error {
		d, err := c.AgentDir(dir)
		if err != nil {
			return err
		}
		ca, err := pki.OpenCA(filepath.Join(d, member.CADir))
		if err != nil {
			return err
		}
		t, err := ca.NewToken(time.Now(), pki.TokenOptions{TTL: ttl, ID: id})
		if err != nil {
			return err
		}
		if c.JSON {
			c.JSONLine(c.Out, map[string]any{"token": t.String(), "ends": time.Now().Add(ttl).UTC()})
			return nil
		}
		fmt.Fprintln(c.Out, t.String())
		return nil
	}
	return cli.Parent(&cobra.Command{Use: "token", Short: "Make, list and revoke tokens", Long: tokenLong,
		Example: "  souk token join\n  souk token create ci --role operator\n  souk token ls"},
		join, cmdTokenCreate(c), cmdTokenLs(c), cmdTokenRevoke(c))
}
