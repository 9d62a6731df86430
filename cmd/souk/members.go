package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

func (c *cli) cmdMembers() *cobra.Command {
	return &cobra.Command{Use: "members", Short: "List the members of the cluster, as this one knows them",
		Long: `List the members of the cluster, as the one that answers knows them. "dead" has not been heard of for some seconds: its
machines may be running all the same. RTT is of its last answer to a probe. KEYS counts the steps of rotations of the gossip key
that it has taken: one that lags has not heard of the newest (souk ca rotate-gossip-key).`,
		Example: "  souk members\n  souk members --json", Args: args(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.doMembers(cmd.Context()) }}
}

func (c *cli) doMembers(ctx context.Context) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	list, err := cl.Members(ctx)
	if err != nil {
		return err
	}
	if c.json {
		c.jsonLine(c.out, list)
		return nil
	}
	rows := make([][]cell, len(list))
	for i, m := range list {
		id := string(m.ID)
		if m.Self {
			id += " (this one)"
		}
		rtt := ""
		if m.RTT > 0 {
			rtt = ms(m.RTT)
		}
		rows[i] = []cell{{text: id}, {text: string(m.State)}, {text: age(m.Since.Format(time.RFC3339), time.Now())}, {text: m.API}, {text: m.Addr}, {text: rtt}, {text: strconv.Itoa(m.Capability)}, {text: strconv.Itoa(m.Keys)}}
	}
	c.table([]string{"MEMBER", "STATE", "SINCE", "WIRE", "GOSSIP", "RTT", "SPEAKS", "KEYS"}, rows)
	return nil
}
