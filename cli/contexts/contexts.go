// Package contexts has the command that selects the souk to talk to: souk context.
package contexts

import (
	"cmp"
	"context"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/fault"
)

const contextLong = `A context is a name for a souk: its address, a token for it, and the root that its certificate comes from.

A cluster has an address at each member, and any of them answers for all. A context may name several; and over TLS it learns
those of all members, with the roots of their certificates, from the one that answers. Where one does not answer within
about a second, the next is asked.

Without any, commands talk to the souk of this host: its agent, or else souk dev, by a socket in its directory that
only its user and root can open. These two have the names agent and dev. --addr and SOUK_ADDR go before any context;
--context and SOUK_CONTEXT before the one that is used.

Contexts are kept in souk/contexts.toml below $XDG_CONFIG_HOME or ~/.config, for their user only.`

// Context is "souk context".
func Context(c *cli.Env) *cobra.Command {
	ls := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the souks that commands can talk to; * is the one they do",
		Example: "  souk context ls\n  souk context ls --json | jq -r '.[] | select(.used) | .addr'",
		Args:    cli.Args(0, 0, "no argument"),
	}
	ls.RunE = func(*cobra.Command, []string) error { return doList(c) }
	use := &cobra.Command{
		Use:     "use [CONTEXT]",
		Short:   "Have commands talk to a souk from now on; without a name to the one of this host",
		Example: "  souk context use prod\n  souk context use",
		Args:    cli.Args(0, 1, "the name of a context"),
	}
	use.RunE = func(_ *cobra.Command, given []string) error { return doUse(c, strings.Join(given, "")) }
	rm := &cobra.Command{
		Use:     "rm CONTEXT",
		Short:   "Forget a context",
		Example: "  souk context rm prod",
		Args:    cli.Args(1, 1, "the name of a context"),
	}
	rm.RunE = func(_ *cobra.Command, given []string) error { return doRemove(c, given[0]) }
	return cli.Parent(&cobra.Command{
		Use:   "context",
		Short: "List, make and choose the souks that commands talk to",
		Long:  contextLong,
		Example: "  souk context add prod https://10.0.0.7:4280 --root api-root.pem --token-file prod.token --use\n" +
			"  souk context ls\n  souk ps --context prod",
	}, ls, cmdAdd(c), use, rm)
}

// addFlags are the flags of souk context add.
type addFlags struct {
	tokenFile string
	stdin     bool
	roots     []string
	use       bool
	unseen    bool
}

func cmdAdd(c *cli.Env) *cobra.Command {
	o := new(addFlags)
	cmd := &cobra.Command{
		Use:   "add NAME ADDR...",
		Short: "Give a souk a name",
		Long: `Give the souk at ADDR (https://HOST:PORT, unix:PATH, or HOST:PORT on loopback) a name. Several addresses are
of the members of one cluster; those that are not named it learns itself, over TLS.

Each is asked for its version first, so a wrong address, root or token is found now. Of several, one must answer.`,
		Example: "  souk context add prod https://10.0.0.7:4280 --root api-root.pem --token-file prod.token --use\n" +
			"  souk context add prod https://10.0.0.7:4280 https://10.0.0.8:4280 --root a.pem --token-stdin\n" +
			"  souk context add try unix:/tmp/try/souk.sock",
		Args: cli.Args(2, -1, "a name and an address, or several of one cluster"),
	}
	f := cmd.Flags()
	f.StringVar(&o.tokenFile, "token-file", "", "a file that holds the token, and goes on to")
	f.BoolVar(&o.stdin, "token-stdin", false, "read the token from stdin and keep it with the context")
	f.StringArrayVar(&o.roots, "root", nil,
		"a PEM file with the root of the server's certificate (default: those that the system trusts); repeatable")
	f.BoolVar(&o.use, "use", false, "have commands talk to it from now on")
	f.BoolVar(&o.unseen, "unseen", false, "do not ask whether it answers")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		return doAdd(cmd.Context(), c, o, given[0], strings.Join(given[1:], ","))
	}
	return cmd
}

func doAdd(ctx context.Context, c *cli.Env, o *addFlags, name, addr string) error {
	if err := cli.CheckContextName(name); err != nil {
		return err
	}
	if o.tokenFile != "" && o.stdin {
		return cli.Usagef("--token-file and --token-stdin are two places for one token; give one of them")
	}
	all, err := c.Contexts()
	if err != nil {
		return err
	}
	if _, there := all.Contexts[name]; there {
		return fault.New(fault.Conflict, cli.CodeContext,
			"there is a context %s; remove it first: souk context rm %s", name,
			name)
	}
	k, err := o.context(c, addr)
	if err != nil {
		return err
	}
	version := ""
	if !o.unseen {
		if version, err = c.TryContext(ctx, name, k); err != nil {
			return err
		}
		version = ", souk " + version
	}
	if all.Contexts == nil {
		all.Contexts = map[string]cli.Context{}
	}
	if all.Contexts[name] = k; o.use {
		all.Current = name
	}
	if err := c.SaveContexts(all); err != nil {
		return err
	}
	next := "; souk context use " + name + " has commands talk to it"
	if o.use {
		next = ", and commands talk to it from now on"
	}
	c.Say("added", name, "context %s is %s%s%s", name, k.Addr, version, next)
	return nil
}

// context reads what the flags name.
func (o *addFlags) context(c *cli.Env, addr string) (k cli.Context, err error) {
	k.Addr = addr
	if o.tokenFile != "" {
		if k.TokenFile, err = filepath.Abs(o.tokenFile); err == nil {
			_, err = cli.ReadLine(k.TokenFile)
		}
		if err != nil {
			return k, fault.Wrap(err, fault.Invalid, fault.CodeToken, "the token in %s cannot be read", o.tokenFile)
		}
	}
	if o.stdin {
		raw, err := io.ReadAll(io.LimitReader(c.In, 4096))
		if k.Token = strings.TrimSpace(string(raw)); err != nil || k.Token == "" {
			return k, cli.Usagef("there is no token on stdin")
		}
	}
	for _, file := range o.roots {
		raw, err := os.ReadFile(file)
		if err != nil {
			return k, fault.Wrap(err, fault.Invalid, fault.CodeRoot, "the root in %s cannot be read", file)
		}
		if b, _ := pem.Decode(raw); b == nil || b.Type != "CERTIFICATE" {
			return k, fault.New(fault.Invalid, fault.CodeRoot, "%s holds no PEM certificate", file)
		}
		k.Roots += strings.TrimSpace(string(raw)) + "\n"
	}
	return k, nil
}

// listed is a context of the list.
type listed struct {
	Name      string `json:"name"`
	Addr      string `json:"addr"`
	TokenFile string `json:"token_file,omitempty"`
	Used      bool   `json:"used"`
	// Learned are the addresses of its cluster's members, as last learned from it.
	Learned []string `json:"learned,omitempty"`
}

func doList(c *cli.Env) error {
	all, err := c.Contexts()
	if err != nil {
		return err
	}
	var list []listed
	for _, h := range c.Homes() {
		list = append(list, listed{Name: h.Name, Addr: h.Addr(), Used: all.Current == h.Name})
	}
	for _, name := range all.Names() {
		k := all.Contexts[name]
		list = append(list, listed{name, k.Addr, k.TokenFile, all.Current == name, c.LearnedDoors(name)})
	}
	if c.JSON {
		cli.JSONList(c, list)
		return nil
	}
	rows := make([][]cli.Cell, 0, len(list))
	for _, l := range list {
		mark := ""
		if l.Used {
			mark = "*"
		}
		rows = append(rows, cli.Cells(mark, l.Name, l.Addr, cmp.Or(l.TokenFile, "-")))
	}
	c.Table([]cli.Column{cli.Keep(""), cli.Keep("NAME").Cut(8), cli.Keep("ADDRESS").Cut(16),
		cli.Drop("TOKEN", 1).Cut(8)}, rows)
	return nil
}

func doUse(c *cli.Env, name string) error {
	all, err := c.Contexts()
	if err != nil {
		return err
	}
	if _, there := all.Contexts[name]; !there && name != "" && name != cli.AgentContext && name != cli.DevContext {
		return c.NoContext(all, name)
	}
	all.Current = name
	if err := c.SaveContexts(all); err != nil {
		return err
	}
	if name == "" {
		c.Say("used", name, "commands talk to the souk of this host from now on")
		return nil
	}
	c.Say("used", name, "commands talk to %s from now on", name)
	return nil
}

func doRemove(c *cli.Env, name string) error {
	all, err := c.Contexts()
	if err != nil {
		return err
	}
	if _, there := all.Contexts[name]; !there {
		return c.NoContext(all, name)
	}
	delete(all.Contexts, name)
	if all.Current == name {
		all.Current = ""
	}
	if err := c.SaveContexts(all); err != nil {
		return err
	}
	c.ForgetDoors(name)
	c.Say("removed", name, "context %s is forgotten", name)
	return nil
}
