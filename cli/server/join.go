package server

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/member"
	"github.com/soukhq/souk/mesh/pki"
	"github.com/soukhq/souk/mesh/wire"
)

// peersFile lists the gossip addresses that a member was told when it joined.
const peersFile = "peers"

// Join makes the command "souk join".
func Join(c *cli.Env) *cobra.Command {
	var dir, id, token, config string
	cmd := &cobra.Command{Use: "join ADDR", Short: "Make this host a member of a cluster",
		Long: `Join the cluster whose authority's agent is at ADDR (its wire address, port
4281). A key is made here and stays here; the agent at ADDR signs a certificate for it. Nothing is started; "souk
agent" starts the member, or "souk agent install" makes a service of it. A join that was refused, or whose answer got
lost, may be repeated: it is of the same id.`,
		Example: "  souk join 10.0.0.1:4281 --token souk1...", Args: cli.Args(1, 1, "the address of the agent that "+
			"lets members in, HOST:PORT")}
	cmd.Flags().StringVar(&dir, "dir", "", "where the member's state is kept (default: as souk agent)")
	cmd.Flags().StringVar(&id, "id", "", "the member's id (default: the host's name and four letters)")
	cmd.Flags().StringVar(&token, "token", "", "the token that souk token join printed (default $SOUK_JOIN_TOKEN)")
	cmd.Flags().StringVar(&config, "config", "", settingsHelp)
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		if token == "" {
			token = c.Getenv("SOUK_JOIN_TOKEN")
		}
		return doJoin(cmd.Context(), c, argv[0], dir, id, token, config)
	}
	return cmd
}

func doJoin(ctx context.Context, c *cli.Env, addr, given, id, token, config string) error {
	if token == "" {
		return cli.Usagef(
			"a token is needed: run \"souk token join\" on the first member, and give what it prints with --token")
	}
	dir, err := c.AgentDir(given)
	if err != nil {
		return err
	}
	if config, err = settingsOf(config, given); err != nil {
		return err
	}
	idFile := filepath.Join(dir, "member-id") // a repeated join uses the same id
	if before, err := cli.ReadLine(idFile); err == nil && before != "" && id == "" {
		id = before
	}
	if id, err = memberID(id); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fault.Wrap(err, fault.Invalid, fault.CodeDir, "the directory %s cannot be made", dir)
	}
	if err := cli.WriteWhole(idFile, id+"\n", 0o644); err != nil {
		return err
	}
	done := c.Progress("joining at %s", addr)
	members, err := wire.Join(ctx,
		wire.JoinOptions{Addr: addr, Token: token, Dir: filepath.Join(dir, member.IdentityDir),
			Name: pki.Name{ID: id, Roles: []pki.Role{pki.Gateway, pki.Worker}}})
	done()
	if err != nil {
		return err
	}
	if err := cli.WriteWhole(filepath.Join(dir, peersFile), strings.Join(members, "\n")+"\n", 0o644); err != nil {
		return err
	}
	if err := member.JoinedAt(dir, addr); err != nil {
		return err
	}
	settings, err := writeSettings(config, dir)
	if err != nil {
		return err
	}
	if c.JSON {
		c.JSONLine(c.Out, map[string]any{"member": id, "dir": dir, "peers": members, "config": config})
		return nil
	}
	fmt.Fprintf(c.Out, "%s is a member now; it will look for the others at %s\n", id, strings.Join(members, ", "))
	printStart(c, given, config, settings)
	return nil
}

// readLines returns a file's lines; none when it cannot be read.
func readLines(path string) []string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(raw))
}
