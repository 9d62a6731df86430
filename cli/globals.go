package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// The global flags that do not apply to every command.
const (
	FlagAddr = "addr"
	FlagSouk = "context"
	FlagApp  = "app"
)

// takesKey is the annotation with the global flags that a command takes.
const takesKey = "souk-takes"

// Takes sets which global flags apply to a command, separated by blanks.
func Takes(cmd *cobra.Command, flags string) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[takesKey] = flags
}

// lacks reports whether a global flag does not apply to a command.
func lacks(cmd *cobra.Command, flag string) bool {
	said, known := cmd.Annotations[takesKey]
	return known && cmd.InheritedFlags().Lookup(flag) != nil && !slices.Contains(strings.Fields(said), flag)
}

// refuseIdle refuses a given global flag that does not apply, rather than ignore it.
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

// hideIdle hides inapplicable global flags from a command's help.
func hideIdle(cmd *cobra.Command) {
	for _, flag := range []string{FlagApp, FlagAddr, FlagSouk} {
		if f := cmd.Root().PersistentFlags().Lookup(flag); f != nil {
			f.Hidden = lacks(cmd, flag)
		}
	}
}
