// Command souk is the whole of souk in one program: the server (souk dev, souk agent), its clients (souk run, ps,
// logs, ...), the simulator (souk sim) and the measurements (souk bench). The commands are in the packages below cli,
// one for each noun; docs/reference/cli.md lists them all, docs/reference/exit-codes.md every exit code.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	_ "time/tzdata" // time zones for jobs, on hosts without a zone database

	"github.com/soukhq/souk/bench"
	"github.com/soukhq/souk/bench/request"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cli/server"
)

func main() { os.Exit(realMain()) }

// realMain is main for tests, which run it under the name souk.
func realMain() int {
	// Reapers are long-lived and many: they must not pay for the command line's machinery.
	for _, hidden := range []func([]string) (bool, error){server.ReaperMain, server.WireGuardMain,
		bench.MemberMain, bench.FloodMain, request.Main} {
		if mine, err := hidden(os.Args[1:]); mine {
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return cli.ExitError
			}
			return cli.ExitOK
		}
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(800) // short-lived clients need no collection; servers set their own (heap.Keep)
	}
	// A second signal has the default action and ends the program at once.
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		signal.Stop(signals)
		cancel(cli.Interrupted{Signal: s})
	}()
	c := &cli.Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv}
	return c.Run(ctx, rootFor(c, os.Args[1:]), os.Args[1:])
}
