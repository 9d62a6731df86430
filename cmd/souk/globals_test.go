package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
)

// Each command says which of the flags before all commands it takes, and what it does not take it refuses.
func TestFlagWithoutEffectIsRefused(t *testing.T) {
	t.Parallel()
	c := &cli.Env{Out: io.Discard, Err: io.Discard, Getenv: func(string) string { return "" }}
	paths := map[string]bool{}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
		if cmd.HasParent() {
			path := strings.TrimPrefix(cmd.CommandPath(), "souk ")
			paths[path] = true
			refusesIdle(t, cmd, path)
		}
	}
	visit(root(c))
	for path := range takes() {
		if !paths[path] {
			t.Errorf("souk %s is said to take flags, and is no command", path)
		}
	}
	for path := range paths {
		if first, _, _ := strings.Cut(path, " "); !hasKey(takes(), first) {
			t.Errorf("nothing says which flags souk %s takes", first)
		}
	}
}

func hasKey(m map[string]string, key string) bool {
	_, has := m[key]
	return has
}

// refusesIdle tries each flag at one command, with enough arguments for it to begin.
func refusesIdle(t *testing.T, cmd *cobra.Command, path string) {
	t.Helper()
	words := strings.Fields(path)
	args := enough(cmd)
	if args == nil {
		return
	}
	given := map[string]string{cli.FlagApp: "shop", cli.FlagAddr: "unix:/nowhere", cli.FlagSouk: "no-such"}
	for flag, value := range given {
		if cmd.LocalFlags().Lookup(flag) != nil && cmd.InheritedFlags().Lookup(flag) == nil {
			continue // it has one of its own
		}
		takes := said(path, flag)
		if takes && flag != cli.FlagSouk {
			continue // what it does then others test; a context that is not there is refused before anything is done
		}
		argv := slices.Concat(words, []string{"--" + flag, value}, args)
		code, _, errs := invoke(t, nil, argv...)
		refused := strings.Contains(errs, "--"+flag+" has no effect at")
		if refused == takes || refused && code != cli.ExitUsage {
			t.Errorf("souk %s: code %d: %s", strings.Join(argv, " "), code, errs)
		}
	}
}

// said looks up what a command takes.
func said(path, flag string) bool {
	for {
		if its, listed := takes()[path]; listed {
			return slices.Contains(strings.Fields(its), flag)
		}
		at := strings.LastIndexByte(path, ' ')
		if at < 0 {
			return false
		}
		path = path[:at]
	}
}

// enough returns as many arguments as a command wants; nil: it is not known how many.
func enough(cmd *cobra.Command) []string {
	for _, args := range [][]string{{}, {"x"}, {"x", "y"}, {"1:1", "x"}, {"--", "/bin/true"},
		{"x", "--", "/bin/true"}} {
		words := slices.DeleteFunc(slices.Clone(args), func(s string) bool { return s == "--" })
		if cmd.Args == nil || cmd.Args(cmd, words) == nil {
			return args
		}
	}
	return nil
}
