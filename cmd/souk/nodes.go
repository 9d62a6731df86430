package main

import (
	"cmp"
	"context"
	"fmt"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

func (c *cli) cmdNode() *cobra.Command {
	return parent(&cobra.Command{Use: "node", Short: "Cordon, drain, inspect and remove the hosts of a cluster",
		Long: `What is done to a host of a cluster: a member and its worker, which have one id.

  cordon    it takes nothing new; what it has stays and runs
  drain     it is cordoned, and its machines are made anew elsewhere
  uncordon  it takes things again
  rm        it is gone for good, and may come back only by joining anew`,
		Example: "  souk node ls\n  souk node drain fra-2 --reason 'new disks' --yes"},
		c.cmdNodeLs(), c.cmdNodeInspect(), c.cmdNodeCordon(), c.cmdNodeUncordon(), c.cmdNodeDrain(), c.cmdNodeRm())
}

// nodeInfo is one host: what is believed of the member, and what its worker says.
type nodeInfo struct {
	ID     string          `json:"id"`
	Member *cluster.Member `json:"member,omitempty"` // none: this souk is alone
	Worker *cluster.Record `json:"worker,omitempty"` // none: it cannot be heard
}

func (c *cli) nodes(ctx context.Context, cl *client.Client) ([]nodeInfo, error) {
	members, err := cl.Members(ctx)
	if err != nil {
		return nil, err
	}
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
	if n.Member == nil {
		return "alone"
	}
	return string(n.Member.State)
}

func (c *cli) cmdNodeLs() *cobra.Command {
	return &cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List hosts: whether they are heard of, and what they take",
		Example: "  souk node ls", Args: args(0, 0, "no argument"), RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			list, err := c.nodes(cmd.Context(), cl)
			if err != nil {
				return err
			}
			if c.json {
				jsonList(c, list)
				return nil
			}
			var rows [][]cell
			for _, n := range list {
				row := []string{n.ID, n.state(), "", "", "", "", ""}
				if w := n.Worker; w != nil {
					row = []string{n.ID, n.state(), string(w.State), string(w.Region), fmt.Sprint(w.Machines), w.Free().String(), cordonLine(w.Cordon, time.Now())}
				}
				rows = append(rows, cells(row...))
			}
			c.table([]string{"NODE", "MEMBER", "WORKER", "REGION", "MACHINES", "FREE", "CORDON"}, rows)
			return nil
		}}
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

func (c *cli) cmdNodeInspect() *cobra.Command {
	return &cobra.Command{Use: "inspect NODE", Short: "Tell all that is known of one host", Example: "  souk node inspect fra-2",
		Args: args(1, 1, "the id of a node"), RunE: func(cmd *cobra.Command, argv []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			list, err := c.nodes(cmd.Context(), cl)
			if err != nil {
				return err
			}
			i := slices.IndexFunc(list, func(n nodeInfo) bool { return n.ID == argv[0] })
			if i < 0 {
				return fault.New(fault.NotFound, "node_not_found", "there is no node %s; \"souk node ls\" lists them", argv[0])
			}
			h, err := cl.Health(cmd.Context())
			if err != nil {
				return err
			}
			mine := slices.DeleteFunc(h.Findings, func(f api.HealthFinding) bool { return string(f.Member) != argv[0] })
			if c.json {
				c.jsonLine(c.out, map[string]any{"node": list[i], "findings": mine})
				return nil
			}
			c.printNode(&list[i])
			c.printHealth(mine)
			return nil
		}}
}

func (c *cli) printNode(n *nodeInfo) {
	fmt.Fprintf(c.out, "%s\n", n.ID)
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(c.out, "  %-10s %s\n", name, text)
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
}

func (o *cordonFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.owner, "owner", "", "who wants it (default: who runs this command)")
	cmd.Flags().StringVar(&o.reason, "reason", "", "what for; needed")
	cmd.Flags().DurationVar(&o.ttl, "for", 0, "how long; then it ends by itself (default: until \"souk node uncordon\")")
}

func (o *cordonFlags) cordon() (api.WorkerCordon, error) {
	if o.reason == "" {
		return api.WorkerCordon{}, usagef("--reason is needed: others will want to know why the node takes nothing")
	}
	if o.ttl < 0 {
		return api.WorkerCordon{}, usagef("--for is a time from now on, not %v", o.ttl)
	}
	return api.WorkerCordon{Owner: cmp.Or(o.owner, whoami()), Reason: o.reason, TTL: o.ttl.Seconds()}, nil
}

func whoami() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "somebody"
}

func (c *cli) cmdNodeCordon() *cobra.Command {
	o := new(cordonFlags)
	cmd := &cobra.Command{Use: "cordon NODE", Short: "Make a host take nothing new; what it has stays and runs",
		Long: `Make a host's worker take nothing new. It is written in the worker's own journal, so it holds over restarts, for every
gateway, and while the host is cut off. Machines that are there already run on, restart, and may be stopped and started.`,
		Example: "  souk node cordon fra-2 --reason 'new disks' --for 2h", Args: args(1, 1, "the id of a node")}
	o.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		k, err := o.cordon()
		if err != nil {
			return err
		}
		cl, err := c.client()
		if err != nil {
			return err
		}
		rec, err := cl.CordonWorker(cmd.Context(), argv[0], k)
		if err != nil {
			return err
		}
		return c.sayCordon(&rec)
	}
	return cmd
}

func (c *cli) cmdNodeUncordon() *cobra.Command {
	return &cobra.Command{Use: "uncordon NODE", Short: "Make a host take things again", Example: "  souk node uncordon fra-2",
		Args: args(1, 1, "the id of a node"), RunE: func(cmd *cobra.Command, argv []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			rec, err := cl.UncordonWorker(cmd.Context(), argv[0])
			if err != nil {
				return err
			}
			return c.sayCordon(&rec)
		}}
}

func (c *cli) sayCordon(rec *cluster.Record) error {
	if c.json {
		c.jsonLine(c.out, rec)
		return nil
	}
	if rec.Cordon == nil {
		fmt.Fprintf(c.out, "%s is %s\n", rec.Worker, rec.State)
		return nil
	}
	fmt.Fprintf(c.out, "%s is %s, by %s\n", rec.Worker, rec.State, cordonLine(rec.Cordon, time.Now()))
	return nil
}

func (c *cli) cmdNodeRm() *cobra.Command {
	var force, yes bool
	var reason string
	cmd := &cobra.Command{Use: "rm NODE", Aliases: []string{"remove"}, Short: "Remove a host that is gone for good",
		Long: `Remove a host that is gone for good: every member refuses its certificate and forgets its machines. A host that is alive is
refused: drain it, and let it leave ("souk agent leave" there). With --force it is cut off while its machines run on, and
nobody can ask for them any more.

A host whose disk was lost is removed like that, and joins anew with its old id: souk token join --id NODE.

One thing a removed host keeps is the key of gossip: until that is rotated (souk ca rotate-gossip-key, where the authority is), who
has its disk can listen to gossip, and speak in it.`,
		Example: "  souk node rm fra-2 --reason 'sold' --yes", Args: args(1, 1, "the id of a node")}
	cmd.Flags().BoolVar(&force, "force", false, "also when it is alive")
	cmd.Flags().BoolVar(&yes, "yes", false, "really")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who wonder later")
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		if !yes {
			return usagef("what %s had is forgotten, and it must join anew to come back; say --yes", argv[0])
		}
		cl, err := c.client()
		if err != nil {
			return err
		}
		if err := cl.RemoveMember(cmd.Context(), argv[0], whoami(), reason, force); err != nil {
			return err
		}
		c.say(did{"removed", argv[0]}, "%s is removed; it must join anew to come back", argv[0])
		if !c.json {
			fmt.Fprintln(c.out, "  next  if its disk is lost or in other hands: souk ca rotate-gossip-key, on the host with the cluster's authority")
		}
		return nil
	}
	return cmd
}

func (c *cli) cmdAgentLeave() *cobra.Command {
	var dir string
	cmd := &cobra.Command{Use: "leave", Short: "Have the agent of this host say goodbye and end; its machines go on",
		Long: `Have this host's agent tell the others that it goes on purpose, and end. Its machines run on under their reapers, and the next
"souk agent" takes them up again. To empty the host first: souk node drain.`,
		Example: "  souk agent leave", Args: args(0, 0, "no argument")}
	cmd.Flags().StringVar(&dir, "dir", "", "the directory of the agent (default: as souk agent)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := c.agentDir(dir)
		if err != nil {
			return err
		}
		addr, err := readLine(filepath.Join(d, "addr"))
		if err != nil {
			return fault.New(fault.Unavailable, "no_agent", "no agent runs with the directory %s", d)
		}
		token, err := readLine(filepath.Join(d, "token"))
		if err != nil {
			return fault.Wrap(err, fault.Denied, "token", "the token of the agent in %s cannot be read", d)
		}
		if err := client.New(addr, token).Leave(cmd.Context()); err != nil {
			return err
		}
		if err := c.agentEnds(cmd.Context(), d); err != nil {
			return err
		}
		c.say(did{"left", d}, "the agent of %s has said goodbye and has ended; its machines go on", d)
		return nil
	}
	return cmd
}

const leaveWait = 15 * time.Second

// agentEnds waits until no agent has the directory any more.
func (c *cli) agentEnds(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, leaveWait)
	defer cancel()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		if lock, err := lockMember(dir); err == nil {
			return lock.Close()
		}
		select {
		case <-ctx.Done():
			return fault.New(fault.Timeout, "leaving", "the agent of %s has said goodbye and has not ended within %v", dir, leaveWait)
		case <-look.C:
		}
	}
}
