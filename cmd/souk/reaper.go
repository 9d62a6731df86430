package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/runtime/process"
)

// asReaper is the hidden command "souk reaper DIR": the parent of a worker's machines, which outlives souk itself. It
// says whether the arguments are that command, and its exit code.
func asReaper(argv []string) (code int, mine bool) {
	if len(argv) != 2 || argv[0] != "reaper" {
		return 0, false
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := process.ReaperMain(ctx, argv[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitError, true
	}
	return exitOK, true
}

// examineRuntime asks a runtime of its own, in a directory that is removed again, what it has and lacks here.
func examineRuntime(ctx context.Context, dir string) []cluster.Finding {
	lacks := func(err error) []cluster.Finding {
		return []cluster.Finding{{Name: "runtime", Have: "does not start", Advice: err.Error()}}
	}
	tmp, err := os.MkdirTemp(above(dir), ".souk-doctor-*")
	if err != nil {
		return lacks(err)
	}
	defer os.RemoveAll(tmp)
	r, err := process.Open(process.Options{Dir: filepath.Join(tmp, "run"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return lacks(err)
	}
	defer r.Close()
	found := r.Examine(ctx)
	if err := r.StopReaper(ctx); err != nil {
		return append(found, lacks(err)...)
	}
	return found
}
