package cluster

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
)

// Top makes the command "souk top".
func Top(c *cli.Env) *cobra.Command {
	var once bool
	var every time.Duration
	cmd := &cobra.Command{Use: "top", Short: "Watch what workers and machines use; q ends it",
		Long: `Show, and refresh, what each worker has granted of its capacity and what is really used of it, what it
does, which jobs have not ended, and which machines use most; and how many requests a second the proxy of the member that is asked answers, and
how many it holds until a machine is there.

  CPU, MEMORY   of a worker: what is granted of what it has, and what is used of what it has
  CPU           of a machine: 100% is one CPU
  OTHER LOAD    of a worker's host: the part of its CPUs, and the memory, that is used beside the machines of its workers:
                by programs that souk did not start, the kernel, and souk itself
  STARTS/S      machines that it brings up a second
  AGE           of what is known of it
  JOB           the oldest jobs that have not ended, with their tasks

While it runs: c, m, n and w sort machines by CPU, memory, name and worker, / shows those whose name, app or worker
has what is typed then (Esc ends that), q or ^C ends it.

Where the output is no terminal, or with --once, one picture is printed; with --json what the workers tell, and the queue.`,
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
		switch {
		case c.JSON:
			s, err := takeSample(cmd.Context(), cl, false)
			if err == nil {
				c.JSONLine(c.Out, s)
			}
			return err
		case once || !cli.IsTerminal(c.Out):
			return printTop(cmd.Context(), c, cl)
		}
		return watchTop(cmd.Context(), c, cl, every)
	}
	return cmd
}

// topSpan is the time between the two samples of a picture that is printed once, to measure CPU use.
const topSpan = 500 * time.Millisecond

// printTop prints one picture.
func printTop(ctx context.Context, c *cli.Env, cl *client.Client) error {
	first, err := cl.Top(ctx, true)
	if err != nil {
		return err
	}
	t := time.NewTimer(topSpan)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
	}
	s, err := takeSample(ctx, cl, true)
	if err != nil {
		return err
	}
	(&picture{now: s.UsageList, queue: s.Queue, last: &first}).print(c)
	return nil
}

// Escape sequences: switch to the alternate screen without a cursor, and back.
const (
	screenBegin = "\x1b[?1049h\x1b[?25l"
	screenEnd   = "\x1b[?25h\x1b[?1049l"
	lineEnd     = "\x1b[K\r\n" // clears the rest of the line
)

// watchTop redraws until q is typed or ctx ends. A failed sample is shown, and the next one tried. The user's screen is
// always restored.
func watchTop(ctx context.Context, c *cli.Env, cl *client.Client, every time.Duration) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	keys := make(chan []byte)
	if f, ok := c.In.(*os.File); ok && cli.IsTerminal(f) {
		if old, err := term.MakeRaw(int(f.Fd())); err == nil {
			defer term.Restore(int(f.Fd()), old) //nolint:errcheck // nothing can be done about it
			go readKeys(ctx, f, keys, end)
		}
	}
	sizes := make(chan os.Signal, 1)
	signal.Notify(sizes, syscall.SIGWINCH)
	defer signal.Stop(sizes)
	screen := cli.Raw(c.Out)
	fmt.Fprint(screen, screenBegin)
	defer fmt.Fprint(screen, screenEnd)
	looks := make(chan look)
	go lookOften(ctx, cl.OnMissing(func([]string) {}), every, looks) // a note would spoil the screen
	p := &picture{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case k := <-keys:
			if p.key(k) {
				return nil
			}
		case <-sizes:
		case l := <-looks:
			p.see(l)
		}
		width, height := c.ScreenSize()
		fmt.Fprint(screen, "\x1b[H"+strings.Join(p.lines(width, height), lineEnd)+"\x1b[K\x1b[J")
	}
}

// readKeys passes input on. If the terminal is gone it ends the watch.
func readKeys(ctx context.Context, f *os.File, keys chan<- []byte, end func()) {
	defer end()
	for {
		typed := make([]byte, 32)
		n, err := f.Read(typed)
		if err != nil || n == 0 {
			return
		}
		select {
		case keys <- typed[:n]:
		case <-ctx.Done():
			return
		}
	}
}

// look is one sample of the workers.
type look struct {
	sample
	err error
}

// lookOften takes samples until ctx ends, the first at once.
func lookOften(ctx context.Context, cl *client.Client, every time.Duration, looks chan<- look) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	next := time.After(topSpan) // take the second sample soon, since rates need two
	for {
		s, err := takeSample(ctx, cl, true)
		select {
		case looks <- look{s, err}:
		case <-ctx.Done():
			return
		}
		select {
		case <-next:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
