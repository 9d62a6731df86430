package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
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
	usage := cmd.UsageString()
	for _, sub := range cmd.Commands() { // cobra leaves one space behind the longest name, which is no gap
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

// joined puts the lines of each paragraph into one. Lines that are set in stand for themselves.
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

// wrapShell breaks lines of shell so that they are still the same commands: with a backslash, and not within quotes.
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
		if strings.ContainsAny(word, `'"`) { // as a program's text it may have a new line for a space
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
