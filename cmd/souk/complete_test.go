package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cli"
)

// freeText are flags whose values a user makes up, or finds nowhere in souk.
//
//nolint:gochecknoglobals // a constant
var freeText = []string{
	"acme", "acme-directory", "addr",
	"array",
	"attr",
	"baseline",
	"begin", "bind",
	"cursor",
	"deadline", "decision-log",
	"detach-keys",
	"dns",
	"domain",
	"entrypoint",
	"env",
	"export",
	"evictions",
	"extra",
	"fail-if",
	"forward-chain",
	"gossip",
	"gpu",
	"group",
	"headroom",
	"host",
	"http", "https",
	"id",
	"image",
	"label",
	"max",
	"memory",
	"metadata",
	"mirror",
	"name",
	"nonce",
	"note",
	"only",
	"owner",
	"peer",
	"ports",
	"proxy-protocol-from",
	"comment", "constraint", "cpus-per-task", "dependency", "gpus-per-node", "gpus-per-task", "gres", "ignore",
	"job-name", "mem",
	"mem-per-cpu", "nodes", "ntasks", "ntasks-per-node", "time", "wrap",
	"reason",
	"request",
	"reserve",
	"since",
	"secret",
	"token",
	"trusted-proxy",
	"user",
	"wire",
	"workdir",
}

// Every flag that takes a word completes it, or is known to be what a user makes up; every argument has a place in the
// command's usage line.
func TestEveryFlagIsCompleted(t *testing.T) {
	t.Parallel()
	c := &cli.Env{Out: io.Discard, Err: io.Discard, Getenv: func(string) string { return "" }}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if !strings.HasPrefix(f.Value.Type(), "string") || slices.Contains(freeText, f.Name) {
				return
			}
			if _, has := cmd.GetFlagCompletionFunc(f.Name); !has && f.Annotations[cobra.BashCompFilenameExt] == nil {
				t.Errorf("%s --%s completes nothing", cmd.CommandPath(), f.Name)
			}
		})
		if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
			t.Errorf("%s completes no argument", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			if sub.Name() != "help" && sub.Name() != "completion" {
				visit(sub)
			}
		}
	}
	visit(root(c))
}
