package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/docs"
)

// helpWidth is how wide help is at most: longer lines are tiring to read.
const helpWidth = 80

// help prints a command's help within the terminal, and within 80 columns in any case. Its layout is cobra's.
func (c *Env) help(cmd *cobra.Command, _ []string) {
	most := helpWidth
	if n := c.Columns(); n > 0 {
		most = min(most, n)
	}
	text := cmd.Long
	if text == "" {
		text = cmd.Short
	}
	cmd.InitDefaultHelpCmd()
	cmd.InitDefaultHelpFlag()
	hideIdle(cmd)
	usage := cmd.UsageString()
	for _, sub := range cmd.Commands() { // cobra leaves only one space after the longest name
		name := fmt.Sprintf("\n  %-*s ", sub.NamePadding(), sub.Name())
		usage = strings.Replace(usage, name+sub.Short, name+" "+sub.Short, 1)
	}
	before, after, _ := strings.Cut(usage, cmd.Example)
	if cmd.Example == "" {
		before, after = usage, ""
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n%s%s%s", Wrap(joined(text), most), Wrap(before, most),
		wrapShell(cmd.Example, most), Wrap(after, most))
}

// joined joins the lines of each paragraph. Indented lines stay as they are.
func joined(text string) string {
	var b strings.Builder
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range lines {
		b.WriteString(strings.TrimRight(line, " "))
		switch {
		case i == len(lines)-1:
		case line == "" || lines[i+1] == "" || strings.HasPrefix(line, " ") || strings.HasPrefix(lines[i+1], " "):
			b.WriteByte('\n')
		default:
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// wrapShell breaks long shell lines without changing the commands: with a backslash, and not within quotes.
func wrapShell(text string, most int) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if TextWidth(line) > most {
			lines[i] = wrapCommand(line, most)
		}
	}
	return strings.Join(lines, "\n")
}

func wrapCommand(line string, most int) string {
	rest := strings.TrimLeft(line, " ")
	hang := strings.Repeat(" ", len(line)-len(rest)+listIndent)
	var b strings.Builder
	b.WriteString(line[:len(line)-len(rest)])
	at := len(line) - len(rest)
	for i, word := range shellWords(rest) {
		w := TextWidth(word)
		switch {
		case i == 0:
		case at+1+w+len(` \`) > most:
			b.WriteString(" \\\n" + hang)
			at = len(hang)
		default:
			b.WriteByte(' ')
			at++
		}
		if strings.ContainsAny(word, `'"`) { // a quoted text may be broken at a space
			b.WriteString(fill(word, &at, len(hang), most))
			continue
		}
		b.WriteString(word)
		at += w
	}
	return b.String()
}

// shellWords returns the words of a line of shell, quotes and all.
func shellWords(line string) (words []string) {
	begin, quote := 0, rune(0)
	for i, r := range line {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '\'' || r == '"':
			quote = r
		case r == ' ':
			if i > begin {
				words = append(words, line[begin:i])
			}
			begin = i + 1
		}
	}
	if begin < len(line) {
		words = append(words, line[begin:])
	}
	return words
}

// AddHelp gives a whole command line the command help, which prints the help of a command, or a document. It refuses
// what it does not know.
func (c *Env) AddHelp(root *cobra.Command) {
	help := &cobra.Command{Use: "help [COMMAND... | TOPIC]", Short: "Print the help of a command, or a document",
		Long: "Print the help of a command, or one of these documents:\n\n" + topicList(),
		Example: "  souk help run\n  souk help policies\n" +
			"  souk help operating | less"}
	help.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 1 {
			for _, t := range docs.Topics() {
				if t.Name == args[0] {
					_, err := io.WriteString(c.Out, t.Text)
					return err
				}
			}
		}
		of, rest, err := root.Find(args)
		if err != nil || len(rest) > 0 {
			return unknownCommand(of, rest[0])
		}
		return of.Help()
	}
	help.ValidArgsFunction = func(_ *cobra.Command, given []string, typed string) ([]string, cobra.ShellCompDirective) {
		var words []string
		of, rest, err := root.Find(given)
		if err != nil || len(rest) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for _, sub := range of.Commands() {
			if sub.IsAvailableCommand() && strings.HasPrefix(sub.Name(), typed) {
				words = append(words, sub.Name()+"\t"+sub.Short)
			}
		}
		if len(given) > 0 {
			return words, cobra.ShellCompDirectiveNoFileComp
		}
		for _, t := range docs.Topics() {
			if strings.HasPrefix(t.Name, typed) {
				words = append(words, t.Name+"\t"+t.Title)
			}
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
	root.SetHelpCommand(help)
	root.InitDefaultHelpCmd()
}

func topicList() string {
	var b strings.Builder
	for _, t := range docs.Topics() {
		fmt.Fprintf(&b, "  %-12s %s\n", t.Name, t.Title)
	}
	return b.String()
}
