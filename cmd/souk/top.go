package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
)

func (c *cli) cmdTop() *cobra.Command {
	var once bool
	var every time.Duration
	cmd := &cobra.Command{Use: "top", Short: "Watch what each worker uses and does; q ends it",
		Long: `Show, and refresh, what each worker uses of its capacity, its machines, how many it brings up a second, and how old what
is known of it is. q or ^C ends it. Where the output is no terminal, or with --once, it is printed once; with --json too.`,
		Example: "  souk top\n  souk top --once --json", Args: args(0, 0, "no argument")}
	cmd.Flags().BoolVar(&once, "once", false, "print it once")
	cmd.Flags().DurationVar(&every, "every", 2*time.Second, "how often it is refreshed")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if every < 100*time.Millisecond {
			return usagef("--every is at least 100ms, not %v", every)
		}
		cl, err := c.client()
		if err != nil {
			return err
		}
		if once || c.json || !isTerminal(c.out) {
			u, err := cl.Top(cmd.Context())
			if err != nil {
				return err
			}
			c.printTop(u, nil)
			return nil
		}
		return c.watchTop(cmd.Context(), cl, every)
	}
	return cmd
}

// watchTop redraws until q is typed or ctx ends. A look that fails is shown, and the next one tried.
func (c *cli) watchTop(ctx context.Context, cl *client.Client, every time.Duration) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	if f, ok := c.in.(*os.File); ok && isTerminal(f) {
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
	fmt.Fprint(c.out, "\x1b[?25l")
	defer fmt.Fprint(c.out, "\x1b[?25h\r\n")
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last *api.UsageList
	for {
		page := new(strings.Builder)
		shown := &cli{out: page, err: page, getenv: c.getenv}
		u, err := cl.Top(ctx)
		if err != nil {
			fmt.Fprintln(page, err)
		} else {
			shown.printTop(u, last)
			last = &u
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // q
		}
		fmt.Fprint(c.out, "\x1b[H\x1b[2J"+strings.ReplaceAll(page.String(), "\n", "\r\n"))
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// printTop prints one page. last is the page before, for rates; nil: there is none.
func (c *cli) printTop(u api.UsageList, last *api.UsageList) {
	if c.json {
		c.jsonLine(c.out, u)
		return
	}
	machines, heard := 0, 0
	rows := make([][]cell, len(u.Workers))
	for i, w := range u.Workers {
		row := []string{string(w.Worker), string(w.Member), "", "", "", "", "", "", agedText(w.AgeMS)}
		if r := w.Record; r != nil {
			heard++
			machines += r.Machines
			row = []string{string(w.Worker), string(r.State), share(r, "cpu"), share(r, "memory"), share(r, "disk"), fmt.Sprint(r.Machines),
				fmt.Sprintf("%d/%d", r.Starting, r.MaxStarting), rate(&w, u.At, last), agedText(w.AgeMS)}
		}
		rows[i] = cells(row...)
	}
	fmt.Fprintf(c.out, "souk top  %s  %d workers, %d heard, %d machines\n", u.At.Format(time.TimeOnly), len(u.Workers), heard, machines)
	c.table([]string{"WORKER", "STATE", "CPU", "MEMORY", "DISK", "MACHINES", "STARTING", "STARTS/S", "AGE"}, rows)
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
