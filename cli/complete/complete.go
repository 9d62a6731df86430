// Package complete completes what a user types at a shell: the arguments of a command from the nouns in its usage line
// (NODE, MACHINE..., [NAMESPACE]), and the values of flags from the flag's name. A new command needs only a correct
// usage line; a test finds flags without completion.
package complete

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cli"
)

// patience bounds how long a shell waits after Tab.
const patience = 2 * time.Second

// source lists the possible words of an argument or flag. A word may have a description after a tab. On an error
// nothing is offered, since a shell cannot show it.
type source func(ctx context.Context, c *cli.Env) ([]string, error)

// Attach adds completion of arguments and flag values to every command below root, unless the command has its own.
func Attach(c *cli.Env, root *cobra.Command) {
	args, values := nouns(), values()
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
			cmd.ValidArgsFunction = argsOf(c, cmd.Use, args)
		}
		flag := func(f *pflag.Flag) {
			if v, known := values[f.Name]; known && v.fits(f) {
				_ = cmd.RegisterFlagCompletionFunc(f.Name, // fails if the command has its own
					func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
						return v.offer(cmd, c, typed, nil)
					})
			}
		}
		cmd.LocalNonPersistentFlags().VisitAll(flag)
		cmd.PersistentFlags().VisitAll(flag)
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root)
}

// argsOf completes a command's arguments by its usage line.
func argsOf(c *cli.Env, usage string, known map[string]value) cobra.CompletionFunc {
	places := usageNouns(usage)
	return func(cmd *cobra.Command, given []string, typed string) ([]string, cobra.ShellCompDirective) {
		// cobra appends a "--" of its own when it parses for a completion.
		if dash := cmd.ArgsLenAtDash(); dash >= 0 && dash < len(given) {
			return nil, cobra.ShellCompDirectiveDefault // a program's own arguments
		}
		n := len(given)
		if last := len(places) - 1; n > last && last >= 0 && places[last].many {
			n = last
		}
		if n >= len(places) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		if either := places[n].either; len(either) > 0 {
			return begin(either, typed, nil), cobra.ShellCompDirectiveNoFileComp
		}
		return known[places[n].noun].offer(cmd, c, typed, given)
	}
}

// place is where an argument stands in a usage line.
type place struct {
	noun   string
	either []string // or one of these words
	many   bool
}

// usageNouns reads the arguments of a usage line: "wait JOB..." has one place for many jobs, "[on|off]" one for either
// word. Of alternative nouns the first counts; flags and a program's own arguments are ignored.
func usageNouns(use string) (places []place) {
	for _, word := range strings.Fields(use)[1:] {
		noun := strings.Trim(word, "[].")
		switch {
		case noun == "--" || noun == "|":
			return places
		case noun == "flags" || strings.HasPrefix(noun, "-"):
		case noun == strings.ToUpper(noun):
			noun, _, _ = strings.Cut(noun, "=")
			places = append(places, place{noun: strings.TrimRight(noun, "["), many: strings.Contains(word, "...")})
		default:
			places = append(places, place{either: strings.Split(noun, "|")})
		}
	}
	return places
}

// ask asks a source, for at most patience.
func ask(cmd *cobra.Command, c *cli.Env, list source) []string {
	ctx, cancel := context.WithTimeout(cmd.Context(), patience)
	defer cancel()
	words, err := list(ctx, c)
	if err != nil {
		return nil
	}
	return words
}

// begin returns the words that begin with typed, without those already given.
func begin(words []string, typed string, given []string) []string {
	return slices.DeleteFunc(words, func(w string) bool {
		word, _, _ := strings.Cut(w, "\t")
		return word == "" || !strings.HasPrefix(word, typed) || slices.Contains(given, word)
	})
}

// value is how an argument, or the value of a flag, is completed. The zero value offers nothing.
type value struct {
	list  source
	kind  string // the flag's type; "": any of strings
	many  bool   // several values, separated by commas
	more  bool   // something follows: no space after it
	colon bool   // a colon follows
	file  bool   // or a file
	dir   bool   // or a directory
}

func (v value) fits(f *pflag.Flag) bool {
	is := f.Value.Type()
	return is == v.kind || (v.kind == "" && strings.HasPrefix(is, "string")) // string, stringArray, stringSlice
}

// offer returns the completions of typed; given are the words that exist already.
func (v value) offer(cmd *cobra.Command, c *cli.Env, typed string,
	given []string) ([]string, cobra.ShellCompDirective) {
	directive := cobra.ShellCompDirectiveNoFileComp
	switch {
	case v.dir:
		return nil, cobra.ShellCompDirectiveFilterDirs
	case v.file:
		directive = cobra.ShellCompDirectiveDefault
	}
	if v.list == nil {
		return nil, directive
	}
	before := ""
	if comma := strings.LastIndexByte(typed, ','); v.many && comma >= 0 {
		before, typed = typed[:comma+1], typed[comma+1:]
		given = strings.Split(before, ",")
	}
	words := begin(ask(cmd, c, v.list), typed, given)
	for i, w := range words {
		if v.colon {
			word, text, _ := strings.Cut(w, "\t")
			w = word + ":\t" + text
		}
		words[i] = before + w
	}
	if len(words) > 0 && (v.more || v.many || v.colon) {
		directive |= cobra.ShellCompDirectiveNoSpace
	}
	return words, directive
}
