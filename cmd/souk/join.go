package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/member"
	"github.com/soukhq/souk/pki"
	"github.com/soukhq/souk/wire"
)

// peersFile lists the gossip addresses that a member was told when it joined.
const peersFile = "peers"

func (c *cli) cmdInit() *cobra.Command {
	var dir, id string
	cmd := &cobra.Command{Use: "init", Short: "Make the first member of a new cluster",
		Long: `Make a cluster: a certificate authority and the identity of its first member, in one directory. Nothing is started, and
nobody is asked; "souk agent" starts the member.

The authority's key stays in DIR/ca. Whoever has it can let members in, so keep a copy in a safe place: without it no
member can join, and certificates end after 90 days. Members renew theirs by themselves, for as long as an agent with
that directory can be reached.`,
		Example: "  souk init\n  souk init --dir /var/lib/souk --id fra-1", Args: args(0, 0, "no argument")}
	cmd.Flags().StringVar(&dir, "dir", "", "where the member's state is kept (default: as souk agent)")
	cmd.Flags().StringVar(&id, "id", "", "the member's id (default: the host's name and four letters)")
	cmd.RunE = func(*cobra.Command, []string) error { return c.doInit(dir, id) }
	return cmd
}

func (c *cli) doInit(given, id string) error {
	dir, err := c.agentDir(given)
	if err != nil {
		return err
	}
	if id, err = memberID(id); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fault.Wrap(err, fault.Invalid, "dir", "the directory %s cannot be made", dir)
	}
	now := time.Now()
	ca, err := pki.Init(filepath.Join(dir, member.CADir), now)
	if err != nil {
		return err
	}
	name := pki.Name{ID: id, Roles: []pki.Role{pki.Gateway, pki.Issuer, pki.Worker}}
	if err := ca.IssueTo(filepath.Join(dir, member.IdentityDir), name, now); err != nil {
		return err
	}
	if c.json {
		c.jsonLine(c.out, map[string]string{"member": id, "dir": dir})
		return nil
	}
	fmt.Fprintf(c.out, "a new cluster; its first member is %s, in %s\n", id, dir)
	fmt.Fprintf(c.out, "  keep   a copy of %s in a safe place\n", filepath.Join(dir, member.CADir))
	fmt.Fprintf(c.out, "  next   souk agent%s\n  then   souk token join%s, for each member more\n", c.dirFlag(given), c.dirFlag(given))
	return nil
}

func (c *cli) dirFlag(given string) string {
	if given == "" {
		return ""
	}
	return " --dir " + given
}

// memberID checks an id, or makes one of the host's name.
func memberID(id string) (string, error) {
	if id == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "member"
		}
		host, _, _ = strings.Cut(strings.ToLower(host), ".")
		var b [2]byte
		rand.Read(b[:]) // never fails
		id = host + "-" + hex.EncodeToString(b[:])
		if !pki.ValidID(id) {
			id = "member-" + hex.EncodeToString(b[:])
		}
	}
	if !pki.ValidID(id) {
		return "", usagef("--id is a member's id: lower-case letters, digits and dashes, not %q", id)
	}
	return id, nil
}

func (c *cli) cmdToken() *cobra.Command {
	var dir, id string
	var ttl time.Duration
	join := &cobra.Command{Use: "join", Short: "Make a token with which one more member joins, once",
		Long: `Make a token that lets one more member join, once, until it ends. It must be run where the cluster's authority is (DIR/ca),
and the agent there must run when the token is used. The token also says by which root the agent is known, so the
member that joins sends nothing to anybody else.`,
		Example: "  souk token join\n  souk token join --ttl 10m --id fra-2", Args: args(0, 0, "no argument")}
	join.Flags().StringVar(&dir, "dir", "", "the directory of the member with the authority (default: as souk agent)")
	join.Flags().DurationVar(&ttl, "ttl", time.Hour, "how long the token is good for")
	join.Flags().StringVar(&id, "id", "", "the only id that may join with it (default: any that is free)")
	join.RunE = func(*cobra.Command, []string) error {
		d, err := c.agentDir(dir)
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
		if c.json {
			c.jsonLine(c.out, map[string]any{"token": t.String(), "ends": time.Now().Add(ttl).UTC()})
			return nil
		}
		fmt.Fprintln(c.out, t.String())
		return nil
	}
	return parent(&cobra.Command{Use: "token", Short: "Make tokens", Example: "  souk token join"}, join)
}

func (c *cli) cmdJoin() *cobra.Command {
	var dir, id, token string
	cmd := &cobra.Command{Use: "join ADDR", Short: "Make this host a member of a cluster",
		Long: `Join the cluster whose authority's agent is at ADDR (its wire address, port 4281). A key is made here and stays here; the
agent at ADDR signs a certificate for it. Nothing is started; "souk agent" starts the member.`,
		Example: "  souk join 10.0.0.1:4281 --token soukjoin...", Args: args(1, 1, "the address of the agent that lets members in, HOST:PORT")}
	cmd.Flags().StringVar(&dir, "dir", "", "where the member's state is kept (default: as souk agent)")
	cmd.Flags().StringVar(&id, "id", "", "the member's id (default: the host's name and four letters)")
	cmd.Flags().StringVar(&token, "token", "", "the token that souk token join printed (default $SOUK_JOIN_TOKEN)")
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		if token == "" {
			token = c.getenv("SOUK_JOIN_TOKEN")
		}
		return c.doJoin(cmd.Context(), argv[0], dir, id, token)
	}
	return cmd
}

func (c *cli) doJoin(ctx context.Context, addr, given, id, token string) error {
	if token == "" {
		return usagef("a token is needed: run \"souk token join\" on the first member, and give what it prints with --token")
	}
	dir, err := c.agentDir(given)
	if err != nil {
		return err
	}
	idFile := filepath.Join(dir, "member-id") // a join that is repeated is of the same member
	if before, err := readLine(idFile); err == nil && before != "" && id == "" {
		id = before
	}
	if id, err = memberID(id); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fault.Wrap(err, fault.Invalid, "dir", "the directory %s cannot be made", dir)
	}
	if err := writeWhole(idFile, id+"\n", 0o644); err != nil {
		return err
	}
	done := c.progress("joining at %s", addr)
	members, err := wire.Join(ctx, wire.JoinOptions{Addr: addr, Token: token, Dir: filepath.Join(dir, member.IdentityDir),
		Name: pki.Name{ID: id, Roles: []pki.Role{pki.Gateway, pki.Worker}}})
	done()
	if err != nil {
		return err
	}
	if err := writeWhole(filepath.Join(dir, peersFile), strings.Join(members, "\n")+"\n", 0o644); err != nil {
		return err
	}
	if err := member.JoinedAt(dir, addr); err != nil {
		return err
	}
	if c.json {
		c.jsonLine(c.out, map[string]any{"member": id, "dir": dir, "peers": members})
		return nil
	}
	fmt.Fprintf(c.out, "%s is a member now; it will look for the others at %s\n  next   souk agent%s\n", id, strings.Join(members, ", "), c.dirFlag(given))
	return nil
}

// readLines gives a file's lines; none when it cannot be read.
func readLines(path string) []string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(raw))
}
