package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// NewRoot makes the command souk without its commands: its help and the global flags.
func (c *Env) NewRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "souk",
		Short: "A cluster orchestrator with no central scheduler",
		Long: `souk runs machines (processes with a shape, an environment and a life of their own) on workers that
answer yes or no at once, and says why.

Begin with "souk dev" in one terminal and "souk run -- /bin/sh -c 'echo hello; sleep 1000'" in another.

A MACHINE is named by its id, by its name, or as "souk status" prints it by the replica that it stands for, such as web/0:
of --app, else of the app of the souk.toml here, else of the only app that has it.

Environment: SOUK_ADDR (of a souk; else that of SOUK_CONTEXT, else the one of this host), SOUK_TOKEN, SOUK_APP (instead of
--app), SOUK_KEY_FILE (a key from outside, which seals the keys of this host), NO_COLOR.

"souk help exit-codes" tells the exit codes, "souk help operating" how to run it; "souk help help" lists all documents.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
	}
	root.PersistentPreRunE = refuseIdle
	root.SetFlagErrorFunc(WrongFlag)
	root.SetHelpFunc(c.help)
	root.Version = Version() // no template: text/template would keep all methods in the binary, 6 MB
	pf := root.PersistentFlags()
	pf.BoolVar(&c.JSON, "json", false, "print JSON: one value, or one line per value where there can be many")
	pf.BoolVarP(&c.wide, "wide", "w", false, "print whole tables and lines, however narrow the terminal is")
	pf.StringVar(&c.addr, "addr", "",
		"HOST:PORT, URL or unix:PATH of the souk to talk to, or several of one cluster with commas between them "+
			"(default $SOUK_ADDR, else that of the context)")
	pf.StringVar(&c.context, "context", "",
		"the souk to talk to, by the name it has in \"souk context\" (default $SOUK_CONTEXT, else the one that is "+
			"used, else the souk of this host)")
	pf.StringVar(&c.app, "app", "",
		"the app (default $SOUK_APP, else any app for machines that exist and \"default\" for new ones)")
	return root
}

func unknownCommand(cmd *cobra.Command, name string) error {
	cmd.SuggestionsMinimumDistance = 2
	text := fmt.Sprintf("%s has no command %q", cmd.CommandPath(), name)
	if here := otherTools[name]; here != "" && !cmd.HasParent() {
		return Usagef("%s; what does that here is %q", text, here)
	}
	if s := cmd.SuggestionsFor(name); len(s) > 0 {
		return Usagef("%s; did you mean %q?", text, s[0])
	}
	return Usagef("%s; see \"%s --help\"", text, cmd.CommandPath())
}

// Parent is a command with subcommands. Without an action of its own it prints its help; if its action is a list, the
// subcommand ls does the same. Subcommands have other tools' names as aliases.
func Parent(cmd *cobra.Command, subs ...*cobra.Command) *cobra.Command {
	lists := cmd.RunE != nil && !strings.Contains(cmd.Use, " ")
	listed := func(s *cobra.Command) bool { return s.Name() == "ls" || s.Name() == "list" }
	if lists && !slices.ContainsFunc(subs, listed) {
		subs = append(subs, &cobra.Command{Use: "ls", Short: "The same as " + cmd.Name(), Hidden: true,
			Args: Args(0, 0, "no argument"), RunE: cmd.RunE})
	}
	alias(subs)
	cmd.AddCommand(subs...)
	if cmd.RunE != nil {
		if lists {
			cmd.Args = func(cmd *cobra.Command, args []string) error {
				if len(args) > 0 {
					return unknownCommand(cmd, args[0])
				}
				return nil
			}
		}
		return cmd
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return unknownCommand(cmd, args[0])
	}
	return cmd
}

// alias adds other tools' names to each command, unless another command has that name.
func alias(subs []*cobra.Command) {
	taken := func(name string) bool {
		return slices.ContainsFunc(subs, func(s *cobra.Command) bool { return s.Name() == name || s.HasAlias(name) })
	}
	for _, same := range [][]string{{"ls", "list"}, {"rm", "destroy", "revoke", "unset", "remove", "delete"}} {
		for _, s := range subs {
			if !slices.Contains(same, s.Name()) {
				continue
			}
			for _, name := range same {
				if name != "revoke" && name != "unset" && !taken(name) {
					s.Aliases = append(s.Aliases, name)
				}
			}
			break
		}
	}
}

// Args makes the check of a number of arguments, most < 0 being no limit; usage says in words what belongs there.
func Args(least, most int, usage string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if len(given) < least || (most >= 0 && len(given) > most) {
			return Usagef("%s wants %s; see \"%s --help\"", cmd.CommandPath(), usage, cmd.CommandPath())
		}
		return nil
	}
}
