package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// Node makes the command "souk node".
func Node(c *cli.Env) *cobra.Command {
	return cli.Parent(&cobra.Command{Use: "node", Short: "Cordon, drain, inspect and remove the hosts of a cluster",
		Long: `What is done to a host of a cluster: a member and its worker, which have one id.

  cordon    it takes nothing new; what it has stays and runs
  drain     it is cordoned, its machines are made anew elsewhere, its tasks end
  uncordon  it takes things again
  rm        it is gone for good, and may come back only by joining anew
  evict     its disk is in other hands: it is removed, and all keys and tokens that it had open nothing`,
		Example: "  souk node ls\n  souk node drain fra-2 --reason 'new disks' --yes"},
		cmdNodeLs(c), cmdNodeInspect(c), cmdNodeCordon(c), cmdNodeUncordon(c), cmdNodeDrain(c), cmdNodeRm(c),
		cmdNodeEvict(c))
}

// nodeInfo is one host: its member's state, and its worker's record.
type nodeInfo struct {
	ID     string          `json:"id"`
	Member *cluster.Member `json:"member,omitempty"` // nil: this souk is alone
	Worker *cluster.Record `json:"worker,omitempty"` // nil: it is unreachable
}

func nodes(ctx context.Context, c *cli.Env, cl *client.Client) ([]nodeInfo, error) {
	list, err := cl.MemberList(ctx)
	if err != nil {
		return nil, err
	}
	members := list.Members
	workers, err := cl.Workers(ctx)
	if err != nil {
		return nil, err
	}
	var out []nodeInfo
	at := func(id string) *nodeInfo {
		i := slices.IndexFunc(out, func(n nodeInfo) bool { return n.ID == id })
		if i < 0 {
			out, i = append(out, nodeInfo{ID: id}), len(out)
		}
		return &out[i]
	}
	for i := range members {
		at(string(members[i].ID)).Member = &members[i]
	}
	for i := range workers.Workers {
		at(string(workers.Workers[i].Worker)).Worker = &workers.Workers[i]
	}
	slices.SortFunc(out, func(a, b nodeInfo) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

func (n *nodeInfo) state() string {
	switch {
	case n.Member == nil:
		return "alone"
	case n.Member.Removed:
		return "removed" // even if its agent still runs
	}
	return string(n.Member.State)
}

func cmdNodeLs(c *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List hosts: whether they are heard of, and what they take",
		Example: "  souk node ls",
		Args:    cli.Args(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			list, err := nodes(cmd.Context(), c, cl)
			if err != nil {
				return err
			}
			if c.JSON {
				cli.JSONList(c, list)
				return nil
			}
			var rows [][]cli.Cell
			for _, n := range list {
				row := []string{n.ID, n.state(), "", "", "", "", ""}
				if w := n.Worker; w != nil {
					row = []string{
						n.ID,
						n.state(),
						string(w.State),
						string(w.Region),
						fmt.Sprint(w.Machines),
						w.Free().String(),
						cordonLine(w.Cordon, time.Now()),
					}
				}
				rows = append(rows, cli.Cells(row...))
			}
			c.Table([]cli.Column{cli.Keep("NODE").Cut(8), cli.Drop("MEMBER", 5), cli.Keep("WORKER"),
				cli.Drop("REGION", 2).Cut(6), cli.Drop("MACHINES", 4), cli.Drop("FREE", 1).Cut(24),
				cli.Reason("CORDON")}, rows)
			return nil
		},
	}
}

// cordonLine says who cordoned a worker, why, and how long that lasts.
func cordonLine(k *cluster.Cordon, now time.Time) string {
	if k == nil {
		return ""
	}
	if k.Until.IsZero() {
		return fmt.Sprintf("%s: %s (no end)", k.Owner, k.Reason)
	}
	return fmt.Sprintf("%s: %s (%s left)", k.Owner, k.Reason, max(0, k.Until.Sub(now)).Round(time.Second))
}

func cmdNodeInspect(c *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "inspect NODE",
		Short:   "Tell all that is known of one host",
		Example: "  souk node inspect fra-2",
		Args:    cli.Args(1, 1, "the id of a node"),
		RunE: func(cmd *cobra.Command, argv []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			list, err := nodes(cmd.Context(), c, cl)
			if err != nil {
				return err
			}
			i := slices.IndexFunc(list, func(n nodeInfo) bool { return n.ID == argv[0] })
			if i < 0 {
				return fault.New(fault.NotFound, codeNodeNotFound, "there is no node %s; \"souk node ls\" lists them",
					argv[0])
			}
			h, err := cl.Health(cmd.Context(), argv[0])
			if err != nil {
				return err
			}
			mine := slices.DeleteFunc(h.Findings, func(f api.HealthFinding) bool { return string(f.Member) != argv[0] })
			if c.JSON {
				c.JSONLine(c.Out, map[string]any{"node": list[i], "findings": mine})
				return nil
			}
			printNode(c, &list[i])
			c.PrintFindings(mine)
			return nil
		},
	}
}

func printNode(c *cli.Env, n *nodeInfo) {
	c.Printf("%s\n", n.ID)
	line := func(name, text string) {
		if text != "" {
			c.Field(name, "%s", text)
		}
	}
	if m := n.Member; m != nil {
		line("member", fmt.Sprintf("%s since %s", m.State, m.Since.Format(time.RFC3339)))
		line("wire", m.API)
		line("gossip", m.Addr)
	}
	w := n.Worker
	if w == nil {
		line("worker", "cannot be asked")
		return
	}
	line("worker", fmt.Sprintf("%s, region %s, start number %d", w.State, w.Region, w.Incarnation))
	line("cordon", cordonLine(w.Cordon, time.Now()))
	line("machines", fmt.Sprintf("%d, %d of them starting", w.Machines, w.Starting))
	line("capacity", w.Capacity.String())
	line("free", w.Free().String())
	for i := range w.GPUs {
		line(fmt.Sprintf("gpu %d", i), cli.DeviceText(&w.GPUs[i]))
	}
	attrs := make([]string, 0, len(w.Attributes))
	for k, v := range w.Attributes {
		attrs = append(attrs, fmt.Sprintf("%s=%v", k, v))
	}
	slices.Sort(attrs)
	line("attributes", strings.Join(attrs, " "))
}

// cordonFlags are what a cordon must say.
type cordonFlags struct {
	owner, reason string
	ttl           time.Duration
	set           *pflag.FlagSet
}

func (o *cordonFlags) add(cmd *cobra.Command) {
	o.set = cmd.Flags()
	cmd.Flags().StringVar(&o.owner, "owner", "", "who wants it (default: who runs this command)")
	cmd.Flags().StringVar(&o.reason, "reason", "", "what for; needed")
	cmd.Flags().DurationVar(&o.ttl, "for", 0,
		"how long; then it ends by itself (default: until \"souk node uncordon\")")
}

func (o *cordonFlags) cordon() (api.WorkerCordon, error) {
	if o.reason == "" {
		return api.WorkerCordon{}, cli.Usagef("--reason is needed: others will want to know why the node takes nothing")
	}
	if o.ttl < 0 || o.ttl == 0 && o.set.Changed("for") {
		return api.WorkerCordon{}, cli.Usagef("--for is a time from now on, not %v; leave it out and the cordon stays",
			o.ttl)
	}
	return api.WorkerCordon{Owner: cmp.Or(o.owner, cli.WhoAmI()), Reason: o.reason, TTL: o.ttl.Seconds()}, nil
}

func cmdNodeCordon(c *cli.Env) *cobra.Command {
	o := new(cordonFlags)
	cmd := &cobra.Command{Use: "cordon NODE", Short: "Make a host take nothing new; what it has stays and runs",
		Long: `Make a host's worker take nothing new. It is written in the worker's own
journal, so it holds over restarts, for every gateway, and while the host is cut off. Machines that are there
already run on, restart, and may be stopped and started.`,
		Example: "  souk node cordon fra-2 --reason 'new disks' --for 2h", Args: cli.Args(1, 1, "the id of a node")}
	o.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		k, err := o.cordon()
		if err != nil {
			return err
		}
		cl, err := c.Client()
		if err != nil {
			return err
		}
		rec, err := cl.CordonWorker(cmd.Context(), argv[0], k)
		if err != nil {
			return err
		}
		return sayCordon(c, &rec)
	}
	return cmd
}

func cmdNodeUncordon(c *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "uncordon NODE",
		Short:   "Make a host take things again",
		Example: "  souk node uncordon fra-2",
		Args:    cli.Args(1, 1, "the id of a node"),
		RunE: func(cmd *cobra.Command, argv []string) error {
			cl, err := c.Client()
			if err != nil {
				return err
			}
			rec, err := cl.UncordonWorker(cmd.Context(), argv[0])
			if err != nil {
				return err
			}
			return sayCordon(c, &rec)
		},
	}
}

func sayCordon(c *cli.Env, rec *cluster.Record) error {
	if c.JSON {
		c.JSONLine(c.Out, rec)
		return nil
	}
	if rec.Cordon == nil {
		c.Printf("%s is %s\n", rec.Worker, rec.State)
		return nil
	}
	c.Printf("%s is %s, by %s\n", rec.Worker, rec.State, cordonLine(rec.Cordon, time.Now()))
	return nil
}

// removed is what node rm prints in --json.
type removed struct {
	Did       string                 `json:"did"`
	What      string                 `json:"what"`
	Forgotten []api.ForgottenMachine `json:"forgotten"`
	Tokens    []api.Token            `json:"tokens"`
}

func cmdNodeRm(c *cli.Env) *cobra.Command {
	var force, forget, end, yes bool
	var reason string
	cmd := &cobra.Command{Use: "rm NODE", Aliases: []string{"remove"}, Short: "Remove a host that is gone for good",
		Long: `Remove a host that is gone for good: every member refuses its certificate
and forgets its machines, which are listed and need --forget-machines: what they are made of only the host knew. A
host that is alive is refused: drain it, and let it leave ("souk agent leave" there).
With --force it is cut off while its machines run on, and nobody can ask for them any more.

A host whose disk was lost is removed like that, and joins anew with its old id: souk token join --id NODE.
Tokens that were made at it, and with those, are let in no more. They are listed and need --end-tokens. A host that nobody here remembers is removed with --force.

One thing a removed host keeps is the key of gossip. When its disk is in other hands use souk node evict, which rotates
that too.`,
		Example: "  souk node rm fra-2 --reason 'sold' --yes", Args: cli.Args(1, 1, "the id of a node")}
	cmd.Flags().BoolVar(&force, "force", false, "also when it is alive")
	cmd.Flags().BoolVar(&forget, "forget-machines", false, "also where it has told of machines, which are forgotten")
	cmd.Flags().BoolVar(&end, "end-tokens", false, "also where tokens were made at it, which end")
	cmd.Flags().BoolVar(&yes, "yes", false, "really")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who wonder later")
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		if !yes {
			return cli.Usagef("what %s had is forgotten, and it must join anew to come back; say --yes", argv[0])
		}
		cl, err := c.Client()
		if err != nil {
			return err
		}
		out, err := cl.RemoveMember(cmd.Context(), argv[0], client.RemoveOptions{By: cli.WhoAmI(), Reason: reason,
			Force: force, ForgetMachines: forget, EndTokens: end})
		if err != nil {
			return err
		}
		if c.JSON {
			c.JSONLine(c.Out, removed{"removed", argv[0], out.Forgotten, out.Tokens})
			return nil
		}
		c.Printf("%s is removed; it must join anew to come back\n", argv[0])
		for _, m := range out.Forgotten {
			c.Field("forgotten", "%s/%s (%s)", m.App, cmp.Or(m.Name, "-"), m.ID)
		}
		for _, t := range out.Tokens {
			c.Field("ended", "the token %s (%s)", t.Name, t.Role)
		}
		c.Field("next", "if its disk is in other hands: souk node evict %s, on the host with the cluster's authority",
			argv[0])
		return nil
	}
	return cmd
}
