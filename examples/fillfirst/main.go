// Command fillfirst is a scheduler of its own: it puts each machine on the fullest worker that takes it, so that others
// stay empty. It is a client of the market like souk's own strategies: it reads the view, chooses, asks for a hold,
// and grants. What it believes may be old; the worker's refusal brings the newest record, and the next best is asked.
//
//	SOUK_ADDR=http://127.0.0.1:7070 SOUK_TOKEN=... go run ./examples/fillfirst -n 4 -- /bin/sleep 60
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

func main() {
	n := flag.Int("n", 1, "how many machines")
	app := flag.String("app", "default", "their app, which must exist")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: fillfirst [-n N] [-app APP] -- CMD [ARG...]")
		os.Exit(64)
	}
	if err := run(context.Background(), os.Stdout, os.Getenv("SOUK_ADDR"), os.Getenv("SOUK_TOKEN"), *app, *n,
		flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "fillfirst:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, addr, token, app string, n int, argv []string) error {
	c := client.New(addr, token)
	for range n {
		l := &machine.Launch{Config: &machine.Config{Image: "souk/host", Init: machine.Init{Exec: argv}}}
		m, err := place(ctx, c, app, l)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s on %s\n", m.ID, m.Worker)
	}
	return nil
}

// place asks one worker after the other, the fullest first.
func place(ctx context.Context, c *client.Client, app string, l *machine.Launch) (*machine.Machine, error) {
	fleet, err := c.Workers(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(fleet.Workers, func(a, b cluster.Record) int { return int(a.Free().Memory - b.Free().Memory) })
	var refusals []error
	for _, w := range fleet.Workers {
		h, err := c.Hold(ctx, w.Worker, api.Bid{App: app, Launch: l, TTL: 2})
		if fault.Is(err, fault.Exhausted) { // a typed no: what it lacks is in the sentence
			refusals = append(refusals, err)
			continue
		}
		if err != nil {
			return nil, err
		}
		l.ID = h.Machine
		free := w.Free().Memory
		return c.GrantAt(ctx, w.Worker, api.Bid{App: app, Launch: l, Hold: h.Hold,
			Reason: fmt.Sprintf("fillfirst: the fullest worker that takes it, with %d MiB free", free)})
	}
	return nil, fmt.Errorf("no worker takes the machine: %w", errors.Join(refusals...))
}
