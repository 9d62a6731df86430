package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// did is what a command prints in --json that changes something and has nothing else to show.
type did struct {
	Did  string `json:"did"`
	What string `json:"what"`
}

func (c *cli) say(did did, format string, args ...any) {
	if c.json {
		c.jsonLine(c.out, did)
		return
	}
	fmt.Fprintf(c.out, format+"\n", args...)
}

func (c *cli) cmdApps() *cobra.Command {
	list := func(cmd *cobra.Command, _ []string) error {
		cl, err := c.client()
		if err != nil {
			return err
		}
		as, err := cl.Apps(cmd.Context())
		if err != nil {
			return err
		}
		if c.json {
			jsonList(c, as)
			return nil
		}
		var rows [][]cell
		for _, a := range as {
			rows = append(rows, cells(a.Name, a.Status, fmt.Sprint(a.MachineCount), fmt.Sprint(a.VolumeCount)))
		}
		c.table([]string{"NAME", "STATUS", "MACHINES", "VOLUMES"}, rows)
		return nil
	}
	create := &cobra.Command{Use: "create NAME", Short: "Make an app", Example: "  souk apps create shop", Args: args(1, 1, "a name")}
	create.RunE = func(cmd *cobra.Command, given []string) error {
		cl, err := c.client()
		if err != nil {
			return err
		}
		if _, err := cl.CreateApp(cmd.Context(), given[0]); err != nil {
			return err
		}
		c.say(did{"created", given[0]}, "app %s is there", given[0])
		return nil
	}
	destroy := &cobra.Command{Use: "destroy NAME", Short: "Destroy an app with its machines and volumes",
		Example: "  souk apps destroy shop --yes", Args: args(1, 1, "a name")}
	yes := destroy.Flags().Bool("yes", false, "really: machines are killed and volumes are lost")
	destroy.RunE = func(cmd *cobra.Command, given []string) error {
		cl, err := c.client()
		if err != nil {
			return err
		}
		a, err := cl.App(cmd.Context(), given[0])
		if err != nil {
			return err
		}
		if !*yes && a.MachineCount+a.VolumeCount > 0 {
			return usagef("app %s has %d machines and %d volumes, which would be lost; say --yes", a.Name, a.MachineCount, a.VolumeCount)
		}
		if err := cl.DestroyApp(cmd.Context(), given[0]); err != nil {
			return err
		}
		c.say(did{"destroyed", given[0]}, "app %s is destroyed", given[0])
		return nil
	}
	return parent(&cobra.Command{Use: "apps", Short: "List, make and destroy apps", Example: "  souk apps\n  souk apps --json",
		Args: args(0, 0, "no argument, or create, destroy, policy, budget, namespace or disconnect"), RunE: list}, create, destroy, c.cmdAppsPolicy(), c.cmdAppsBudget(), c.cmdAppsNamespace(), c.cmdAppsDisconnect())
}

func (c *cli) cmdSecrets() *cobra.Command {
	list := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List secrets, never their values",
		Example: "  souk secrets list --app shop", Args: args(0, 0, "no argument")}
	list.RunE = func(cmd *cobra.Command, _ []string) error {
		cl, err := c.client()
		if err != nil {
			return err
		}
		ss, err := cl.Secrets(cmd.Context(), c.appOrDefault())
		if err != nil {
			return err
		}
		if c.json {
			jsonList(c, ss)
			return nil
		}
		var rows [][]cell
		for _, s := range ss {
			rows = append(rows, cells(s.Name, s.Digest))
		}
		c.table([]string{"NAME", "DIGEST"}, rows)
		return nil
	}
	set := &cobra.Command{Use: "set NAME[=VALUE]...", Short: "Set secrets; machines see them at their next start",
		Long: `Set secrets of an app; its machines see them in their environment at their next start. A NAME without a value
takes it from stdin, to the last byte but one trailing newline, so that it is in no shell history and no process list.`,
		Example: "  souk secrets set DB_PASSWORD < password.txt\n  souk secrets set --app shop KEY=value OTHER=value",
		Args:    args(1, -1, "NAME=VALUE, or a NAME whose value is on stdin")}
	set.RunE = func(cmd *cobra.Command, given []string) error {
		values, err := c.secretValues(given)
		if err != nil {
			return err
		}
		return c.setSecrets(cmd, values, "set", given)
	}
	unset := &cobra.Command{Use: "unset NAME...", Short: "Delete secrets", Example: "  souk secrets unset DB_PASSWORD", Args: args(1, -1, "names")}
	unset.RunE = func(cmd *cobra.Command, given []string) error {
		values := map[string]*string{}
		for _, n := range given {
			values[n] = nil
		}
		return c.setSecrets(cmd, values, "unset", given)
	}
	return parent(&cobra.Command{Use: "secrets", Short: "List, set and delete an app's secrets",
		Example: "  souk secrets set DB_PASSWORD < password.txt\n  souk secrets list"}, list, set, unset)
}

// maxSecret bounds a secret read from stdin.
const maxSecret = 1 << 20

func (c *cli) secretValues(given []string) (map[string]*string, error) {
	values := map[string]*string{}
	fromStdin := ""
	for _, g := range given {
		k, v, has := strings.Cut(g, "=")
		if k == "" {
			return nil, usagef("a secret is written NAME=VALUE, not %q", g)
		}
		if !has {
			if fromStdin != "" {
				return nil, usagef("only one value can come from stdin, and both %s and %s have none", fromStdin, k)
			}
			fromStdin = k
			raw, err := io.ReadAll(io.LimitReader(c.in, maxSecret+1))
			if err != nil {
				return nil, fault.Wrap(err, fault.Invalid, "stdin", "the value of %s could not be read from stdin", k)
			}
			if len(raw) > maxSecret {
				return nil, fault.New(fault.Invalid, "secret_size", "the value of %s is larger than %d bytes", k, maxSecret)
			}
			v = strings.TrimSuffix(string(raw), "\n")
		}
		values[k] = &v
	}
	return values, nil
}

func (c *cli) setSecrets(cmd *cobra.Command, values map[string]*string, verb string, given []string) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	app := c.appOrDefault()
	err = cl.SetSecrets(cmd.Context(), app, values)
	if fault.Is(err, fault.NotFound) && app == defaultApp && verb == "set" {
		// As with run, the default app is made when it is first needed.
		if _, made := cl.CreateApp(cmd.Context(), app); made != nil && !appTaken(made) {
			return made
		}
		err = cl.SetSecrets(cmd.Context(), app, values)
	}
	if err != nil {
		return err
	}
	for _, g := range given {
		name, _, _ := strings.Cut(g, "=")
		c.say(did{verb, name}, "%s is %s in app %s; machines see it at their next start", name, verb, app)
	}
	return nil
}

func (c *cli) cmdMetadata() *cobra.Command {
	var nonce string
	show := func(cmd *cobra.Command, refs []string) error {
		cl, m, err := c.one(cmd, refs[0])
		if err != nil {
			return err
		}
		kv, err := cl.Metadata(cmd.Context(), m.App, m.ID)
		if err != nil {
			return err
		}
		if c.json {
			c.jsonLine(c.out, kv)
			return nil
		}
		var rows [][]cell
		for _, p := range strings.Fields(pairs(kv)) {
			k, v, _ := strings.Cut(p, "=")
			rows = append(rows, cells(k, v))
		}
		c.table([]string{"KEY", "VALUE"}, rows)
		return nil
	}
	change := func(cmd *cobra.Command, ref string, kv map[string]*string) error {
		cl, m, err := c.one(cmd, ref)
		if err != nil {
			return err
		}
		if err := cl.PatchMetadata(cmd.Context(), m.App, m.ID, nonce, kv); err != nil {
			return err
		}
		c.say(did{"changed metadata", m.ID}, "the metadata of %s is changed; nothing that runs was touched", label(m))
		return nil
	}
	set := &cobra.Command{Use: "set MACHINE KEY=VALUE...", Short: "Set keys", Example: "  souk metadata set web role=front",
		Args: args(2, -1, "a machine and KEY=VALUE"), ValidArgsFunction: c.completeFirst}
	set.RunE = func(cmd *cobra.Command, given []string) error {
		kv, err := keyValues("metadata", given[1:], nil)
		if err != nil {
			return err
		}
		patch := map[string]*string{}
		for k, v := range kv {
			patch[k] = &v
		}
		return change(cmd, given[0], patch)
	}
	unset := &cobra.Command{Use: "unset MACHINE KEY...", Short: "Delete keys", Example: "  souk metadata unset web role",
		Args: args(2, -1, "a machine and keys"), ValidArgsFunction: c.completeFirst}
	unset.RunE = func(cmd *cobra.Command, given []string) error {
		patch := map[string]*string{}
		for _, k := range given[1:] {
			patch[k] = nil
		}
		return change(cmd, given[0], patch)
	}
	cmd := parent(&cobra.Command{Use: "metadata MACHINE", Short: "Show and change a machine's metadata",
		Example: "  souk metadata web\n  souk metadata set web role=front", Args: args(1, 1, "one machine, or set or unset"),
		ValidArgsFunction: c.completeFirst, RunE: show}, set, unset)
	cmd.PersistentFlags().StringVar(&nonce, "nonce", "", "the nonce of the machine's lease, when one is held")
	return cmd
}

// one resolves the only machine of a command.
func (c *cli) one(cmd *cobra.Command, ref string) (*client.Client, *machine.Machine, error) {
	cl, err := c.client()
	if err != nil {
		return nil, nil, err
	}
	m, err := c.find(cmd.Context(), cl, ref)
	return cl, m, err
}

func (c *cli) cmdLease() *cobra.Command {
	var nonce string
	var ttl time.Duration
	print := func(l machine.Lease, m *machine.Machine) {
		if c.json {
			c.jsonLine(c.out, l)
			return
		}
		fmt.Fprintf(c.out, "the lease of %s is held by %s until %s\n", label(m), l.Owner, time.Unix(l.ExpiresAt, 0).Format(time.RFC3339))
		if l.Nonce != "" {
			fmt.Fprintf(c.out, "  nonce %s\n", l.Nonce)
		}
	}
	sub := func(use, short, example string, f func(cmd *cobra.Command, cl *client.Client, m *machine.Machine) error) *cobra.Command {
		return &cobra.Command{Use: use + " MACHINE", Short: short, Example: example, Args: args(1, 1, "one machine, by id or name"),
			ValidArgsFunction: c.completeFirst, RunE: func(cmd *cobra.Command, refs []string) error {
				cl, m, err := c.one(cmd, refs[0])
				if err != nil {
					return err
				}
				return f(cmd, cl, m)
			}}
	}
	show := sub("show", "Tell who holds the lease", "  souk lease show web", func(cmd *cobra.Command, cl *client.Client, m *machine.Machine) error {
		l, err := cl.Lease(cmd.Context(), m.App, m.ID)
		if err == nil {
			print(l, m)
		}
		return err
	})
	take := sub("take", "Take the lease, or with --nonce refresh it", "  souk lease take web --ttl 1m --json | jq -r .nonce", func(cmd *cobra.Command, cl *client.Client, m *machine.Machine) error {
		l, err := cl.TakeLease(cmd.Context(), m.App, m.ID, nonce, ttl)
		if err == nil {
			print(l, m)
		}
		return err
	})
	take.Flags().DurationVar(&ttl, "ttl", time.Minute, "how long it is held, in whole seconds")
	release := sub("release", "Give the lease back", "  souk lease release web --nonce 8a1b2c", func(cmd *cobra.Command, cl *client.Client, m *machine.Machine) error {
		if nonce == "" {
			return usagef("a lease is given back with its nonce: --nonce")
		}
		if err := cl.ReleaseLease(cmd.Context(), m.App, m.ID, nonce); err != nil {
			return err
		}
		c.say(did{"released", m.ID}, "the lease of %s is free", label(m))
		return nil
	})
	cmd := parent(&cobra.Command{Use: "lease", Short: "Show, take and give back the lock on a machine",
		Long:    "A lease is a lock on a machine: while it is held, only who knows its nonce can change the machine. It ends by itself.",
		Example: "  souk lease take web --ttl 30s\n  souk stop web --nonce 8a1b2c\n  souk lease release web --nonce 8a1b2c"}, show, take, release)
	cmd.PersistentFlags().StringVar(&nonce, "nonce", "", "the nonce of the lease")
	return cmd
}
