// Package quota has the commands for budgets: souk namespace, quota and apps namespace.
package quota

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/machine"
)

// Namespace is "souk namespace".
func Namespace(c *cli.Env) *cobra.Command {
	ls := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List namespaces: what they may spend, and what they do",
		Example: "  souk namespace ls\n  souk namespace ls --json | jq -r '.[] | [.name, .spent] | @tsv'",
		Args:    cli.Args(0, 0, "no argument"),
	}
	ls.RunE = func(cmd *cobra.Command, _ []string) error { return doNamespaces(cmd.Context(), c) }
	create := &cobra.Command{
		Use:     "create NAME",
		Short:   "Make a namespace without a limit",
		Example: "  souk namespace create ml",
		Args:    cli.Args(1, 1, "a name"),
	}
	create.RunE = func(cmd *cobra.Command, given []string) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		if _, err := cl.CreateNamespace(cmd.Context(), given[0]); err != nil {
			return err
		}
		c.Say("created", given[0], "namespace %s is created, without a limit; give it one with souk quota set %s",
			given[0],
			given[0])
		return nil
	}
	rm := &cobra.Command{
		Use:     "rm NAMESPACE",
		Short:   "Remove a namespace that no app is in",
		Example: "  souk namespace rm ml",
		Args:    cli.Args(1, 1, "a name"),
	}
	rm.RunE = func(cmd *cobra.Command, given []string) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		if err := cl.RemoveNamespace(cmd.Context(), given[0]); err != nil {
			return err
		}
		c.Say("removed", given[0], "namespace %s is removed", given[0])
		return nil
	}
	return cli.Parent(
		&cobra.Command{
			Use:     "namespace",
			Aliases: []string{"namespaces", "ns"},
			Short:   "List, make and remove namespaces: who shares a quota",
			Long: "A namespace is a set of apps that share a quota. An app is in the namespace default until it is " +
				"put " +
				"into another one\n(souk apps namespace).",
			Example: "  souk namespace ls\n  souk namespace create ml\n  souk apps namespace trainer ml",
		},
		ls,
		create,
		rm,
	)
}

// doNamespaces lists all namespaces.
func doNamespaces(ctx context.Context, c *cli.Env) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	all, err := cl.Namespaces(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		cli.JSONList(c, all)
		return nil
	}
	rows := make([][]cli.Cell, 0, len(all))
	for _, n := range all {
		rows = append(
			rows,
			cli.Cells(n.Name, fmt.Sprint(len(n.Apps)), fmt.Sprint(n.Machines), balanceText(n), quota.Text(n.Rate)+"/h",
				quota.Text(n.Spent), quota.Text(n.Lent)),
		)
	}
	c.Table(cli.Columns("NAMESPACE", "APPS", "MACHINES", "BALANCE", "SPENDS", "SPENT", "LENT"), rows)
	return nil
}

func balanceText(n api.Namespace) string {
	if n.Balance == nil {
		return "no limit"
	}
	return quota.Text(*n.Balance) + " of " + quota.Text(n.Budget.Burst)
}

// Quota is "souk quota".
func Quota(c *cli.Env) *cobra.Command {
	show := &cobra.Command{Use: "show [NAMESPACE]", Short: "Tell what a namespace may spend, what it does, and where",
		Example: "  souk quota show ml\n  souk quota show ml --json | jq " +
			".balance", Args: cli.Args(0, 1, "a namespace (default: default)")}
	show.RunE = func(cmd *cobra.Command, given []string) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		n, err := cl.Quota(cmd.Context(), append(given, quota.Default)[0])
		if err != nil {
			return err
		}
		printQuota(c, n)
		return nil
	}
	return cli.Parent(&cobra.Command{Use: "quota",
		Short: "Show and set what namespaces may spend, and what things cost",
		Long: `A quota is a budget of credits. Machines spend credits by the hour for what
they occupy, at the price of their band; what they spent is made good at the budget's rate. Who has nothing left is
refused, or lent to: a lent machine runs on idle room, costs nothing, and is the first to be evicted. See
"souk help quota".`,
		Example: "  souk quota show ml\n  souk quota set ml --credits-per-hour 10 --burst 40\n  souk quota " +
			"price"}, show, quotaSet(c), quotaPrice(c))
}

func quotaSet(c *cli.Env) *cobra.Command {
	var b quota.Budget
	var weight float64
	var none bool
	var most []string
	cmd := &cobra.Command{Use: "set NAMESPACE", Short: "Set what a namespace may spend, and occupy at once",
		Long: `Set what a namespace may occupy at once with --max, and what it may spend: for ever --credits-per-hour, at once at
most --burst. Either may be set without the other. Flags that are not given leave what there is; the burst of a first
budget is an hour's worth if nothing else is said.`,
		Example: "  souk quota set ml --max cpu=8,memory=32,gpu=2\n  souk quota set ml --max memory=\n" +
			"  souk quota set ml --credits-per-hour 10 --burst 40\n  souk quota set ml --lend=false\n" +
			"  souk quota set ml --none", Args: cli.Args(1, 1, "a namespace")}
	f := cmd.Flags()
	f.Float64Var(&b.PerHour, "credits-per-hour", 0, "what it may spend for ever; 0: --burst is all it ever gets")
	f.Float64Var(&b.Burst, "burst", 0, "what it may spend at once, after a long rest (default: an hour's worth)")
	f.BoolVar(&b.Lend, "lend", true,
		"let what goes beyond it start all the same where there is idle room, and be the first to be evicted")
	f.Float64Var(&weight, "weight", 1, "of its fair share, beside other namespaces")
	f.StringSliceVar(&most, "max", nil, "RESOURCE=AMOUNT, what all it has may occupy at once: cores (cpu), GiB of "+
		"memory and of disk, volumes among it, GPUs (gpu), extras by their names; RESOURCE= takes one away; repeatable")
	f.BoolVar(&none, "none", false, "take all limits away")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		set := f.Changed
		if none && (set("credits-per-hour") || set("burst") || set("lend") || set("max")) {
			return cli.Usagef("%s wants limits or --none, not both", cmd.CommandPath())
		}
		cl, err := c.Client()
		if err != nil {
			return err
		}
		old, err := cl.Quota(cmd.Context(), given[0])
		if err != nil {
			return err
		}
		to := &b
		switch {
		case none, old.Budget == nil && !set("credits-per-hour") && !set("burst") && (set("weight") || set("max")):
			to = nil
		case old.Budget == nil && !set("credits-per-hour") && !set("burst"):
			return cli.Usagef("namespace %s has no quota yet: say --max or --credits-per-hour", given[0])
		case old.Budget == nil && !set("burst"):
			b.Burst = b.PerHour
		case old.Budget != nil:
			b = merged(b, *old.Budget, set)
		}
		var w *float64
		if set("weight") {
			w = &weight
		}
		caps, err := capsOf(old.Max, most, none)
		if err != nil {
			return err
		}
		n, err := cl.SetQuota(cmd.Context(), given[0], to, w, caps)
		if err != nil {
			return err
		}
		printQuota(c, n)
		return nil
	}
	return cmd
}

// capsOf changes caps as --max says; nil where nothing changes.
func capsOf(old quota.Caps, given []string, none bool) (*quota.Caps, error) {
	if none {
		return &quota.Caps{}, nil
	}
	if len(given) == 0 {
		return nil, nil //nolint:nilnil // they stay
	}
	caps := maps.Clone(old)
	if caps == nil {
		caps = quota.Caps{}
	}
	for _, g := range given {
		name, text, is := strings.Cut(g, "=")
		if is && text == "" {
			delete(caps, name)
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || name == "" {
			return nil, cli.Usagef("--max is RESOURCE=AMOUNT, as cpu=8 or memory=32, not %q", g)
		}
		caps[name] = v
	}
	return &caps, nil
}

// merged returns a budget in which unset fields keep their old values.
func merged(b, old quota.Budget, set func(flag string) bool) quota.Budget {
	if !set("credits-per-hour") {
		b.PerHour = old.PerHour
	}
	if !set("burst") {
		b.Burst = old.Burst
	}
	if !set("lend") {
		b.Lend = old.Lend
	}
	return b
}

func printQuota(c *cli.Env, n api.Namespace) {
	if c.JSON {
		c.JSONLine(c.Out, n)
		return
	}
	apps := "no app"
	if len(n.Apps) > 0 {
		apps = strings.Join(n.Apps[:min(len(n.Apps), 8)], ", ")
	}
	c.Printf("namespace %s: %s\n", n.Name, apps)
	if len(n.Max) > 0 {
		c.Printf("  may occupy at most %s at once; what goes beyond that is refused\n", n.Max)
	}
	if b := n.Budget; b == nil && len(n.Max) == 0 {
		c.Printf("  no limit\n")
	} else if b != nil {
		beyond := "is refused"
		if b.Lend {
			beyond = "is lent to, where there is idle room"
		}
		c.Printf("  may spend %s an hour, and up to %s at once; what goes beyond that "+
			"%s\n", credits(b.PerHour), quota.Text(b.Burst), beyond)
		c.Printf("  balance %s of %s\n", quota.Text(*n.Balance), quota.Text(b.Burst))
	}
	c.Printf("  spends %s an hour for %s (%s); %s an hour of it is lent\n", credits(n.Rate),
		machines(n.Machines), n.Used, quota.Text(n.LentRate))
	c.Printf("  has spent %s, and was lent %s\n", credits(n.Spent), quota.Text(n.Lent))
	var rows [][]cli.Cell
	for _, w := range n.Workers {
		rows = append(
			rows,
			cli.Cells(string(w.Worker), fmt.Sprint(w.Machines), quota.Text(w.Rate)+"/h", quota.Text(w.Spent),
				quota.Text(w.Lent)),
		)
	}
	if len(rows) > 0 {
		c.Table(cli.Columns("WORKER", "MACHINES", "SPENDS", "SPENT", "LENT"), rows)
	}
}

func quotaPrice(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "price [NAME=CREDITS]...", Short: "Show what things cost, or set it",
		Long: `Show what an hour costs of one core (cpu), one GiB of memory or disk, one
port, one gpu, or one of a named extra, and the factors of the bands. NAME=CREDITS sets one, NAME= takes it away; a band
is named batch, service or system. free always costs nothing. An extra has a
price when a worker offers it.`,
		Example: "  souk quota price\n  souk quota price cpu=1 gpu=25 batch=0.4", Args: cli.Args(0, -1, "NAME=CREDITS")}
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		p, err := cl.Price(cmd.Context())
		if err != nil {
			return err
		}
		if len(given) > 0 {
			workers, err := cl.Workers(cmd.Context())
			if err != nil {
				return err
			}
			if err := setPrices(&p, given, offered(workers.Workers)); err != nil {
				return err
			}
			if p, err = cl.SetPrice(cmd.Context(), p); err != nil {
				return err
			}
		}
		if c.JSON {
			c.JSONLine(c.Out, p)
			return nil
		}
		unit := map[string]string{"cpu": "a core", "memory": "a GiB", "disk": "a GiB"}
		var rows [][]cli.Cell
		for _, name := range slices.Sorted(maps.Keys(p.PerHour)) {
			of := unit[name]
			if of == "" {
				of = "one"
			}
			row := []string{name, of}
			for _, band := range []machine.Band{machine.BandFree, machine.BandBatch, machine.BandService,
				machine.BandSystem} {
				row = append(row, quota.Text(p.PerHour[name]*p.Factor(band)))
			}
			rows = append(rows, cli.Cells(row...))
		}
		c.Table(cli.Columns("RESOURCE", "PER HOUR OF", "FREE", "BATCH", "SERVICE", "SYSTEM"), rows)
		return nil
	}
	return cmd
}

// offered returns the built-in resources with a price, and the extras that workers offer.
func offered(workers []cluster.Record) []string {
	names := []string{"cpu", "memory", "disk", "ports", "gpu"}
	for i := range workers {
		for name := range workers[i].Capacity.Named {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// setPrices sets prices, and removes those given as NAME=. It refuses a name that is neither offered nor has a price.
func setPrices(p *quota.Price, given, offered []string) error {
	if p.PerHour == nil {
		p.PerHour = map[string]float64{}
	}
	if p.Bands == nil {
		p.Bands = map[machine.Band]float64{}
	}
	for _, g := range given {
		name, text, _ := strings.Cut(g, "=")
		if _, has := p.PerHour[name]; has && text == "" && strings.Contains(g, "=") {
			delete(p.PerHour, name)
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || name == "" {
			return cli.Usagef("a price is written NAME=CREDITS, as cpu=0.8, not %q", g)
		}
		switch machine.Band(name) {
		case machine.BandFree, machine.BandBatch, machine.BandService, machine.BandSystem:
			p.Bands[machine.Band(name)] = v
		default:
			if _, has := p.PerHour[name]; !has && !slices.Contains(offered, name) {
				return cli.Usagef("no worker offers %q, so it can have no price; there are %s, and the bands batch, "+
					"service and system", name, strings.Join(offered, ", "))
			}
			p.PerHour[name] = v
		}
	}
	return nil
}

// AppsNamespace is "souk apps namespace".
func AppsNamespace(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "namespace APP [NAMESPACE]",
		Short: "Tell the namespace of an app, or put it into another one",
		Long: "Tell the namespace that pays for an app, or put the app into another one. Machines that are there " +
			"stay " +
			"in the namespace that\nthey were made in; those that are made from then on are of the new one.",
		Example: "  souk apps namespace trainer\n  souk apps namespace trainer ml",
		Args:    cli.Args(1, 2, "an app, and a namespace to put it there"),
	}
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		if len(given) == 2 {
			if err := cl.SetAppNamespace(cmd.Context(), given[0], given[1]); err != nil {
				return err
			}
		}
		name, err := cl.AppNamespace(cmd.Context(), given[0])
		if err != nil {
			return err
		}
		if c.JSON {
			c.JSONLine(c.Out, map[string]string{"app": given[0], "namespace": name})
			return nil
		}
		c.Printf("app %s is in namespace %s\n", given[0], name)
		return nil
	}
	return cmd
}

func credits(n float64) string {
	if t := quota.Text(n); t != "1" {
		return t + " credits"
	}
	return "1 credit"
}

func machines(n int) string {
	if n == 1 {
		return "1 machine"
	}
	return fmt.Sprintf("%d machines", n)
}
