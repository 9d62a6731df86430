package server

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/soukhq/souk/runtime/process"
)

// ReaperMain is the hidden command "souk reaper DIR": the parent of a worker's machines, which outlives souk itself. It
// reports whether the arguments are that command.
func ReaperMain(argv []string) (mine bool, err error) {
	if len(argv) != 2 || argv[0] != "reaper" {
		return false, nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return true, process.ReaperMain(ctx, argv[1])
}
