package cluster

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/lifecycle"
)

// Top makes the command "souk top".
func Top(c *cli.Env) *cobra.Command {
	var once bool
	var every time.Duration
	cmd := &cobra.Command{Use: "top", Short: "Watch what each worker uses and does; q ends it",
		Long: `Show, and refresh, what each worker uses of its capacity, its machines, how
many it brings up a second, and how old what is known of it is. q or ^C ends it. Where the output is no terminal,
or with --once, it is printed once; with --json too.`,
		Example: "  souk top\n  souk top --once --json", Args: cli.Args(0, 0, "no argument")}
	cmd.Flags().BoolVar(&once, "once", false, "print it once")
	cmd.Flags().DurationVar(&every, "every", 2*time.Second, "how often it is refreshed")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if every < 100*time.Millisecond {
			return cli.Usagef("--every is at least 100ms, not %v", every)
		}
		cl, err := c.Client()
		if err != nil {
			return err
		}
		if once || c.JSON || !cli.IsTerminal(c.Out) {
			u, err := cl.Top(cmd.Context())
			if err != nil {
				return err
			}
			printTop(c, u, nil)
			return nil
		}
		return watchTop(cmd.Context(), c, cl, every)
	}
	return cmd
}

// watchTop redraws until q is typed or ctx ends. A look that fails is shown, and the next one tried.
func watchTop(ctx context.Context, c *cli.Env, cl *client.Client, every time.Duration) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	if f, ok := c.In.(*os.File); ok && cli.IsTerminal(f) {
		if old, err := term.MakeRaw(int(f.Fd())); err == nil {
			defer term.Restore(int(f.Fd()), old) //nolint:errcheck // nothing can be done about it
			go func() {
				defer end()
				var key [1]byte
				for {
					n, err := f.Read(key[:])
					if err != nil || n == 1 && (key[0] == 'q' || key[0] == 3) {
						return
					}
				}
			}()
		}
	}
	screen := cli.Raw(c.Out)
	fmt.Fprint(screen, "\x1b[?25l")
	defer fmt.Fprint(screen, "\x1b[?25h\r\n")
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last *api.UsageList
	for {
		page := new(strings.Builder)
		shown := &cli.Env{Out: cli.Guarded(page), Err: page, Getenv: c.Getenv}
		u, err := cl.Top(ctx)
		if err != nil {
			fmt.Fprintln(shown.Out, err)
		} else {
			printTop(shown, u, last)
			last = &u
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // q
		}
		fmt.Fprint(screen, "\x1b[H\x1b[2J"+strings.ReplaceAll(page.String(), "\n", "\r\n"))
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// printTop prints one page. last is the page before, for rates; nil: there is none.
func printTop(c *cli.Env, u api.UsageList, last *api.UsageList) {
	if c.JSON {
		c.JSONLine(c.Out, u)
		return
	}
	machines, heard := 0, 0
	rows := make([][]cli.Cell, len(u.Workers))
	for i, w := range u.Workers {
		row := []string{string(w.Worker), string(w.Member), "", "", "", "", "", "", agedText(w.AgeMS)}
		if r := w.Record; r != nil {
			heard++
			machines += r.Machines
			row = []string{
				string(w.Worker),
				string(r.State),
				share(r, "cpu"),
				share(r, "memory"),
				share(r, "disk"),
				fmt.Sprint(r.Machines),
				fmt.Sprintf("%d/%d", r.Starting, r.MaxStarting),
				rate(&w, u.At, last),
				agedText(w.AgeMS),
			}
		}
		rows[i] = cli.Cells(row...)
	}
	fmt.Fprintf(c.Out, "souk top  %s  %d workers, %d heard, %d machines\n", u.At.Format(time.TimeOnly), len(u.Workers),
		heard, machines)
	c.Table([]cli.Column{cli.Keep("WORKER").Cut(8), cli.Drop("STATE", 5), cli.Keep("CPU"), cli.Keep("MEMORY"),
		cli.Drop("DISK", 4), cli.Drop("MACHINES", 6), cli.Drop("STARTING", 2), cli.Drop("STARTS/S", 1),
		cli.Drop("AGE", 3)}, rows)
	for _, w := range u.Workers {
		if r := w.Record; r != nil && r.Cordon != nil && r.Cordon.Owner == lifecycle.HaltOwner {
			fmt.Fprintf(c.Out, "%s takes nothing: %s\n", w.Worker, strings.Map(cli.Printable, r.Cordon.Reason))
		}
	}
}

func share(r *cluster.Record, dim string) string {
	most := r.Capacity.Get(dim)
	if most == 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", 100*r.Used.Get(dim)/most)
}

func rate(w *api.WorkerUsage, at time.Time, last *api.UsageList) string {
	if last == nil {
		return "-"
	}
	for _, o := range last.Workers {
		if took := at.Sub(last.At).Seconds(); o.Worker == w.Worker && took > 0 && w.Starts >= o.Starts {
			return fmt.Sprintf("%.1f", float64(w.Starts-o.Starts)/took)
		}
	}
	return "-"
}

func agedText(ms float64) string {
	return time.Duration(ms * float64(time.Millisecond)).Round(100 * time.Millisecond).String()
}
