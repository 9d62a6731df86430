package machines

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cli/releases"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// gangFlags are the flags of souk gang, besides those of a machine.
type gangFlags struct {
	RunFlags
	size int
	min  int
	same string
	wait time.Duration
}

const gangLong = `Make several machines that all run CMD and start together, or not at all.
Room is held on every worker that is needed before the first machine is started; when one of them has none, all of
it is given back, and souk tries again for as long as --wait says. Meanwhile no task begins that would delay it.

Each machine finds its place in its environment, as torchrun's and MPI's programs expect it: RANK, WORLD_SIZE,
LOCAL_RANK, MASTER_ADDR, MASTER_PORT; and SOUK_GANG, SOUK_INDEX, SOUK_COUNT. The file "hostfile" in its directory,
which SOUK_PEERS_FILE names, lists the host of each rank. What --env sets is not replaced.

The gang has an id. Commands for machines take gang/ID as all of its machines, in the order of their ranks: souk wait,
logs, events, status, stop, start, restart, signal, destroy; souk ps --gang ID lists them.

Exit code 75 says that there was no room for all of them at once; nothing was started then.`

// Gang makes the command "souk gang".
func Gang(c *cli.Env) *cobra.Command {
	o := new(gangFlags)
	cmd := &cobra.Command{
		Use:   "gang -n SIZE [flags] -- CMD [ARG...]",
		Short: "Make machines that start together or not at all",
		Long:  gangLong,
		Example: `  souk gang -n 4 -- /bin/sh -c 'echo rank $RANK of $WORLD_SIZE; sleep 60'
  souk gang -n 16 --min 12 --same rack --wait 10m --cpus 8 --cpu-kind performance -- /opt/train --epochs 3
  souk wait gang/4f1c0a93be62d8517a20c9e4; souk destroy gang/4f1c0a93be62d8517a20c9e4`,
		Args: cli.Args(1, -1, "a command to run, after --"),
	}
	f := cmd.Flags()
	f.IntVarP(&o.size, "size", "n", 2, "how many machines")
	f.IntVar(&o.min, "min", 0, "how many must start at least (default: all)")
	f.StringVar(&o.same, "same", "", "an attribute of workers, such as rack, that must have one value for all of them")
	f.DurationVar(&o.wait, "wait", 0, "how long to go on trying when there is no room, at most 1h")
	o.Shape(f)
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		if cmd.Flags().Changed("min") && o.min < 1 {
			return cli.Usagef("--min is 1 or more, not %d; leave it out and all must start", o.min)
		}
		if o.size < 1 || o.min < 0 || o.min > o.size || o.wait < 0 || o.wait > time.Hour {
			return cli.Usagef("--size is at least 1, --min at most that, --wait 0s to 1h")
		}
		if err := NotAVerb(cmd, argv, "souk ps"); err != nil {
			return err
		}
		return doGang(cmd.Context(), c, o, argv)
	}
	return cmd
}

func doGang(ctx context.Context, c *cli.Env, o *gangFlags, argv []string) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	app := c.AppOrDefault()
	l, err := LaunchOf(ctx, c, cl, app, &o.RunFlags, argv)
	if err != nil {
		return err
	}
	done := c.Progress("holding room for %d machines", o.size)
	begin := time.Now()
	r := api.GangRequest{Size: o.size, Min: o.min, Same: o.same, Wait: o.wait.Seconds(), Launch: l}
	g, err := cl.LaunchGang(ctx, app, r)
	if fault.Is(err, fault.NotFound) {
		if _, made := cl.CreateApp(ctx, app); made != nil && !releases.AppExists(made) {
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
	if len(g.Machines) > 0 {
		noteWarnings(c, g.Machines[0]) // all members have the same warnings
	}
	if c.JSON {
		c.JSONLine(c.Out, g)
		return nil
	}
	c.Printf("gang %s: %d of %d machines started together in %s, try %d\n", g.Gang, len(g.Machines), g.Size,
		cli.Millis(took), g.Tries)
	rows := make([][]cli.Cell, len(g.Machines))
	for rank, m := range g.Machines {
		rows[rank] = []cli.Cell{
			{Text: fmt.Sprint(rank)},
			{Text: m.Name},
			{Text: m.ID},
			{Text: string(m.State)},
			{Text: string(m.Worker)},
		}
	}
	c.Table([]cli.Column{cli.Keep("RANK"), cli.Drop("NAME", 1).Cut(8), cli.Keep("ID"), cli.Keep("STATE"),
		cli.Drop("WORKER", 2).Cut(6)}, rows)
	c.Note("souk wait %[1]s waits for all of them; souk logs, stop and destroy take %[1]s, too",
		machine.GangPrefix+g.Gang)
	return failedMembers(g.Machines)
}

// failedMembers returns an error if a machine of a gang did not start.
func failedMembers(ms []*machine.Machine) error {
	for _, m := range ms {
		if err := launchFailed(m); err != nil {
			return err
		}
	}
	return nil
}
