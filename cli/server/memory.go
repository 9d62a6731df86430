package server

import (
	"context"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/node"
)

// keepMemory looks after this process's memory until ctx ends, unless the operator set GOGC.
func keepMemory(ctx context.Context, c *cli.Env) {
	if c.Getenv("GOGC") == "" {
		go node.KeepMemory(ctx)
	}
}
