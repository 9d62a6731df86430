package machines

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/machine"
)

const resizeLong = `Change the CPU and memory of machines without a restart. What no flag says stays as it is. A machine that does not
run has it at its next start.

It grows only where its worker has the room, and memory cannot become less than the machine uses: such a change is
refused, and nothing has changed. The machine's version stays; "souk events" tells of it.`

// Resize makes the command "souk resize".
func Resize(c *cli.Env) *cobra.Command {
	var (
		to     machine.Resize
		cpu    cli.CPU
		cpus   int
		memory cli.Size
		nonce  string
	)
	cmd := &cobra.Command{Use: "resize MACHINE... [flags]", Short: "Change machines' CPU and memory while they run on",
		Long:    resizeLong,
		Example: "  souk resize web --cpu 0.5 --memory 80m\n  souk resize web --cpus 2",
		Args:    cli.Args(1, -1, "at least one machine, by id or name")}
	f := cmd.Flags()
	f.Var(&cpu, "cpu", "CPU in cores, such as 0.3 or 2, in the place of --cpus")
	f.IntVar(&cpus, "cpus", 0, "how many CPUs of the kind: a sixteenth of a core each, or a core each")
	f.StringVar(&to.CPUKind, "cpu-kind", "",
		"shared, which may use what others leave, or performance, which is a limit")
	f.Var(&memory, "memory", "memory, such as 40m or 2g; MB without a unit")
	f.StringVar(&nonce, "nonce", "", "the nonce of the machine's lease, when one is held")
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		if err := CPUFlags(f, cpus, cpu, &to.CPUs, &to.CPUMilli); err != nil {
			return err
		}
		if to.MemoryMB = int(memory); to == (machine.Resize{}) {
			return cli.Usagef("say what is to change: --cpu or --cpus, --cpu-kind, --memory")
		}
		return c.Together(cmd.Context(), refs, func(ctx context.Context, c *cli.Env, cl *client.Client,
			m *machine.Machine) error {
			begin := time.Now()
			done := c.Progress("resizing %s", cli.Label(m))
			now, err := cl.Resize(ctx, m.App, m.ID, to, nonce)
			done()
			if err != nil {
				return err
			}
			if now = cli.Owned(now, m.App); c.JSON {
				c.JSONLine(c.Out, now)
				return nil
			}
			what := "has"
			if now.Begun != nil {
				what = "is being resized, and has"
			}
			fmt.Fprintf(c.Out, "%s %s %s (had %s; %s)\n", cli.Label(now), what, cmp.Or(cli.Shape(now.Config), "-"),
				cli.Shape(m.Config), cli.Millis(time.Since(begin)))
			return nil
		})
	}
	return cmd
}
