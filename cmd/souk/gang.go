package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// gangFlags are the flags of souk gang, beside those of a machine.
type gangFlags struct {
	runFlags
	size int
	min  int
	same string
	wait time.Duration
}

const gangLong = `Make several machines that all run CMD and start together, or not at all. Room is held on every worker that is needed
before the first machine is started; when one of them has none, all of it is given back, and souk tries again for as
long as --wait says.

Each machine finds its place in its environment, as torchrun's and MPI's programs expect it: RANK, WORLD_SIZE, LOCAL_RANK,
MASTER_ADDR, MASTER_PORT; and SOUK_GANG, SOUK_INDEX, SOUK_COUNT. The file "hostfile" in its directory, which SOUK_PEERS_FILE
names, lists the host of each rank. What --env sets is not replaced.

Exit code 75 says that there was no room for all of them at once; nothing was started then.`

func (c *cli) cmdGang() *cobra.Command {
	o := new(gangFlags)
	cmd := &cobra.Command{Use: "gang -n SIZE [flags] -- CMD [ARG...]", Short: "Make machines that start together or not at all", Long: gangLong,
		Example: `  souk gang -n 4 -- ./train --epochs 3
  souk gang -n 16 --min 12 --same rack --wait 10m --cpus 8 --cpu-kind performance -- ./train`,
		Args: args(1, -1, "a command to run, after --")}
	f := cmd.Flags()
	f.IntVarP(&o.size, "size", "n", 2, "how many machines")
	f.IntVar(&o.min, "min", 0, "how many must start at least (default: all)")
	f.StringVar(&o.same, "same", "", "an attribute of workers, such as rack, that must have one value for all of them")
	f.DurationVar(&o.wait, "wait", 0, "how long to go on trying when there is no room, at most 1h")
	o.shape(f)
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		if o.size < 1 || o.min < 0 || o.min > o.size || o.wait < 0 || o.wait > time.Hour {
			return usagef("--size is at least 1, --min at most that, --wait 0s to 1h")
		}
		return c.doGang(cmd.Context(), o, argv)
	}
	return cmd
}

func (c *cli) doGang(ctx context.Context, o *gangFlags, argv []string) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	app := c.appOrDefault()
	l, err := c.launchOf(ctx, cl, app, &o.runFlags, argv)
	if err != nil {
		return err
	}
	done := c.progress("holding room for %d machines", o.size)
	begin := time.Now()
	r := api.GangRequest{Size: o.size, Min: o.min, Same: o.same, Wait: o.wait.Seconds(), Launch: l}
	g, err := cl.LaunchGang(ctx, app, r)
	if fault.Is(err, fault.NotFound) {
		if _, made := cl.CreateApp(ctx, app); made != nil && !appTaken(made) {
			done()
			return made
		}
		g, err = cl.LaunchGang(ctx, app, r)
	}
	took := time.Since(begin)
	done()
	if err != nil {
		return err
	}
	if c.json {
		c.jsonLine(c.out, g)
		return nil
	}
	fmt.Fprintf(c.out, "gang %s: %d of %d machines started together in %s, try %d\n", g.Gang, len(g.Machines), g.Size, ms(took), g.Tries)
	rows := make([][]cell, len(g.Machines))
	for rank, m := range g.Machines {
		rows[rank] = []cell{{text: fmt.Sprint(rank)}, {text: m.Name}, {text: m.ID}, {text: string(m.State)}, {text: string(m.Worker)}}
	}
	c.table([]string{"RANK", "NAME", "ID", "STATE", "WORKER"}, rows)
	return failedMembers(g.Machines)
}

// failedMembers says so when a machine of a gang did not come up.
func failedMembers(ms []*machine.Machine) error {
	for _, m := range ms {
		if err := launchFailed(m); err != nil {
			return err
		}
	}
	return nil
}
