// Package cluster has the commands that show a cluster and drain its hosts: souk members, node, workers and top.
package cluster

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
)

// Members makes the command "souk members".
func Members(c *cli.Env) *cobra.Command {
	return &cobra.Command{Use: "members", Short: "List the members of the cluster, as this one knows them",
		Long: `List the members of the cluster, as the one that answers knows them. "dead"
has not been heard of for some seconds: its machines may be running all the same. RTT is of its last answer to a
probe. KEYS counts the steps of rotations of the gossip key that it has taken: one that lags has not heard of the
newest (souk ca rotate-gossip-key). SOUK is the version that it runs, with its commit where it is no release.`,
		Example: "  souk members\n  souk members --json", Args: cli.Args(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error { return doMembers(cmd.Context(), c) }}
}

func doMembers(ctx context.Context, c *cli.Env) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	list, err := cl.Members(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		c.JSONLine(c.Out, list)
		return nil
	}
	if len(list) == 0 {
		fmt.Fprintf(c.Out, "no members: the souk at %s is alone; \"souk init\" begins a cluster, \"souk join\" "+
			"joins one\n", cl.Addr())
		return nil
	}
	rows := make([][]cli.Cell, len(list))
	for i, m := range list {
		id := string(m.ID)
		if m.Self {
			id += " (this one)"
		}
		rtt := ""
		if m.RTT > 0 {
			rtt = cli.Millis(m.RTT)
		}
		state := string(m.State)
		if m.Removed {
			state = "removed"
		}
		rows[i] = []cli.Cell{
			{Text: id},
			{Text: state},
			{Text: cli.Age(m.Since.Format(time.RFC3339), time.Now())},
			{Text: m.API},
			{Text: m.Addr},
			{Text: rtt},
			{Text: strconv.Itoa(m.Capability)},
			{Text: strconv.Itoa(m.Keys)},
			{Text: m.Build.String()},
		}
	}
	c.Table([]cli.Column{cli.Keep("MEMBER").Cut(8), cli.Keep("STATE"), cli.Drop("SINCE", 7),
		cli.Drop("WIRE", 6), cli.Drop("GOSSIP", 5), cli.Drop("RTT", 4), cli.Drop("SPEAKS", 1),
		cli.Drop("KEYS", 2), cli.Drop("SOUK", 3)}, rows)
	return nil
}
