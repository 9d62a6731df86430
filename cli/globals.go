package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// The flags before all commands that not every command takes.
const (
	FlagAddr = "addr"
	FlagSouk = "context"
	FlagApp  = "app"
)

// takesKey is the annotation of a command with the flags that it takes of these.
const takesKey = "souk-takes"

// Takes says which of the flags that stand before all commands have an effect at a command, separated by blanks.
func Takes(cmd *cobra.Command, flags string) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[takesKey] = flags
}

// lacks reports whether a flag that stands before all commands has no effect at a command.
func lacks(cmd *cobra.Command, flag string) bool {
	said, known := cmd.Annotations[takesKey]
	return known && cmd.InheritedFlags().Lookup(flag) != nil && !slices.Contains(strings.Fields(said), flag)
}

// refuseIdle refuses a flag that was given and has no effect: whoever gave it meant something by it.
func refuseIdle(cmd *cobra.Command, _ []string) error {
	for _, flag := range []string{FlagApp, FlagAddr, FlagSouk} {
		if !lacks(cmd, flag) || !cmd.InheritedFlags().Lookup(flag).Changed {
			continue
		}
		why := "it asks no souk"
		if flag == FlagApp {
			why = "it is not about the things of one app, or its app is an argument"
		}
		return Usagef("--%s has no effect at %q: %s; leave it out, or see \"%s --help\"", flag, cmd.CommandPath(), why,
			cmd.CommandPath())
	}
	return nil
}

// hideIdle leaves the flags that have no effect at a command out of its help.
func hideIdle(cmd *cobra.Command) {
	for _, flag := range []string{FlagApp, FlagAddr, FlagSouk} {
		if f := cmd.Root().PersistentFlags().Lookup(flag); f != nil {
			f.Hidden = lacks(cmd, flag)
		}
	}
}
