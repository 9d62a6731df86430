// Command souk is the whole of souk in one program: the server (souk dev), its clients (souk run, ps, logs, ...), and
// its measurements (souk bench). docs/reference/cli.md lists every command, docs/reference/exit-codes.md every exit code.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

func main() { os.Exit(realMain()) }

// realMain is main for tests, which run it under the name souk.
func realMain() int {
	if code, mine := asReaper(os.Args[1:]); mine {
		return code // a reaper lives for long and in numbers: it must not pay for the command line's machinery
	}
	if code, mine := asBenchMember(os.Args[1:]); mine {
		return code
	}
	// A client ends before a collection would pay. A server's heap is a few megabytes, and memory is what it has left.
	debug.SetGCPercent(800)
	if len(os.Args) > 1 && os.Args[1] == "dev" {
		debug.SetGCPercent(400)
	}
	// The second signal finds nobody listening and ends the program at once, whatever it was doing.
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		signal.Stop(signals)
		cancel(interrupted{s})
	}()
	c := &cli{in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv}
	return c.run(ctx, os.Args[1:])
}

// interrupted is why the context ended: the user's ^C, or a SIGTERM.
type interrupted struct{ signal os.Signal }

func (i interrupted) Error() string { return "stopped by " + i.signal.String() }
