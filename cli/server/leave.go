package server

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
)

func cmdAgentLeave(c *cli.Env) *cobra.Command {
	var dir string
	cmd := &cobra.Command{Use: "leave", Short: "Have the agent of this host say goodbye and end; its machines go on",
		Long: `Have this host's agent tell the others that it goes on purpose, and end.
Its machines run on under their reapers, and the next "souk agent" goes on with them. To empty the host first: souk
node drain.`,
		Example: "  souk agent leave", Args: cli.Args(0, 0, "no argument")}
	cmd.Flags().StringVar(&dir, "dir", "", "the directory of the agent (default: as souk agent)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := c.AgentDir(dir)
		if err != nil {
			return err
		}
		cl, err := agentOf(d)
		if err != nil {
			return err
		}
		if err := cl.Leave(cmd.Context()); err != nil {
			return err
		}
		if err := agentEnds(cmd.Context(), c, d); err != nil {
			return err
		}
		c.Say("left", d, "the agent of %s has said goodbye and has ended; its machines go on", d)
		return nil
	}
	return cmd
}

// agentOf returns a client of the agent that runs with a directory.
func agentOf(dir string) (*client.Client, error) {
	if _, err := os.Stat(filepath.Join(dir, cli.SocketFile)); err != nil {
		return nil, fault.New(fault.Unavailable, codeNoAgent, "no agent runs with the directory %s", dir)
	}
	token, err := cli.ReadLine(filepath.Join(dir, "token"))
	if err != nil {
		return nil, fault.Wrap(err, fault.Denied, fault.CodeToken, "the token of the agent in %s cannot be read", dir)
	}
	return client.New("unix:"+filepath.Join(dir, cli.SocketFile), token), nil
}

const leaveWait = 15 * time.Second

// agentEnds waits until no agent uses the directory any more.
func agentEnds(ctx context.Context, c *cli.Env, dir string) error {
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
			return fault.New(fault.Timeout, codeLeaving, "the agent of %s has left the cluster and has not ended "+
				"within %v: see its log, and end its process",
				dir,
				leaveWait)
		case <-look.C:
		}
	}
}
