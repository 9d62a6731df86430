package server

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
)

const tokenLong = `Make, list and revoke tokens.

There are two kinds. A join token (souk token join) lets one host become a member, once. All others are of the API:
who has one may use it at any member, as its role says.

Each member has a token of its own, an admin's, in its directory (DIR/token). It makes another one every 10 days, and
at once when its own is revoked; the one before stays good until it is 30 days old, so who has read it goes on.
Programs should have tokens of their own. A token ends at its end, when it is revoked, or when the member that made it
is removed (souk node rm), and with it every token that was made with it.

  admin     everything
  operator  everything but tokens, and policies it may only read
  viewer    reads, but not who has tokens

With --unix-user what is made with the token belongs to that user and runs as him, as what he asks of the socket of a
host himself (souk agent --unix-users). Without --role and --app it is good for as much: for jobs and machines of his
own app, unix-NAME.

With --app an operator's or a viewer's token is good for that app alone: its machines, volumes, secrets and releases. It may
not make or list apps, or say which policy, namespace or eviction budget the app has.`

func cmdTokenCreate(c *cli.Env) *cobra.Command {
	var role, unixUser string
	var expires time.Duration
	cmd := &cobra.Command{Use: "create NAME", Short: "Make a token of the API, and print its secret, once",
		Long: `Make a token of the API, and print its secret. It is kept nowhere: who loses it
makes another. Use it with SOUK_ADDR and SOUK_TOKEN, or in the header "Authorization: Bearer SECRET".`,
		Example: "  souk token create ci --role operator --app shop --expires 720h\n" +
			"  souk token create alice --unix-user alice\n" +
			"  SOUK_TOKEN=$(souk token create graphs)",
		Args: cli.Args(1, 1, "a name")}
	cmd.Flags().StringVar(&role, "role", "", "what it may do: admin, operator or viewer (default viewer; with "+
		"--unix-user operator)")
	cmd.Flags().StringVar(&unixUser, "unix-user", "", "the user of the host of the member asked, to whom what is made "+
		"with it belongs")
	cmd.Flags().DurationVar(&expires, "expires", 720*time.Hour, "how long it is good for, a year at most")
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		if expires <= 0 {
			return cli.Usagef("--expires is a time from now on, not %v", expires)
		}
		app := ""
		if f := cmd.Flag("app"); f != nil && f.Changed { // not SOUK_APP: a token's scope must be given explicitly
			app = c.AppNamed()
		}
		cl, err := c.Client()
		if err != nil {
			return err
		}
		made, err := cl.MakeToken(cmd.Context(),
			api.NewToken{Name: argv[0], Role: api.Role(role), App: app, UnixUser: unixUser,
				Expires: expires.Seconds()})
		if err != nil {
			return err
		}
		if c.JSON {
			c.JSONLine(c.Out, made)
			return nil
		}
		fmt.Fprintln(c.Out, made.Secret)
		return nil
	}
	return cmd
}

func cmdTokenLs(c *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the tokens of the API: their roles, who made them, and until when they are good",
		Long: `List the tokens of the API, without their secrets. MEMBER made it; WITH is the token that it was made with.
One that ended is listed for a week more.`,
		Example: "  souk token ls\n  souk token ls --json",
		Args:    cli.Args(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			list, err := cl.Tokens(cmd.Context())
			if err != nil {
				return err
			}
			if c.JSON {
				cli.JSONList(c, list)
				return nil
			}
			printTokens(c, list)
			return nil
		},
	}
}

func printTokens(c *cli.Env, list []api.Token) {
	rows := make([][]cli.Cell, len(list))
	for i, t := range list {
		rows[i] = cli.Cells(t.ID, t.Name, string(t.Role), cmp.Or(t.App, "-"), unixName(&t), string(t.Member), t.By,
			t.Made.UTC().Format(time.DateTime), t.Ends.UTC().Format(time.DateTime), string(t.State), t.Why)
	}
	c.Table([]cli.Column{cli.Keep("ID"), cli.Keep("NAME").Cut(8), cli.Drop("ROLE", 5),
		cli.Drop("APP", 4).Cut(6), cli.Drop("USER", 1).Cut(6), cli.Drop("MEMBER", 3).Cut(6), cli.Drop("WITH", 1),
		cli.Drop("MADE", 2),
		cli.Drop("ENDS", 6), cli.Keep("STATE"), cli.Reason("WHY")}, rows)
}

func unixName(t *api.Token) string {
	if t.UnixUser == nil {
		return "-"
	}
	return t.UnixUser.Name
}

func cmdTokenRevoke(c *cli.Env) *cobra.Command {
	var reason string
	cmd := &cobra.Command{Use: "revoke TOKEN", Short: "Let a token in no more, nor what was made with it",
		Long: `Let a token of the API in no more, at any member, also at one that is away and comes
back. What was made with it ends with it. With a name all good tokens of that name are revoked. A member whose own
token is revoked makes another one at once, in its directory.`,
		Example: "  souk token revoke ci --reason leaked\n  souk token revoke member-fra-2",
		Args:    cli.Args(1, 1, "a token's name or id, as souk token ls tells it")}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who wonder later")
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		gone, err := cl.RevokeToken(cmd.Context(), argv[0], cli.WhoAmI(), reason)
		if err != nil {
			return err
		}
		if c.JSON {
			cli.JSONList(c, gone)
			return nil
		}
		for _, t := range gone {
			fmt.Fprintf(c.Out, "token %s (%s) is revoked\n", t.Name, t.ID)
		}
		return nil
	}
	return cmd
}
