package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/term"
)

// Columns returns the width of stdout's terminal: from COLUMNS if set, else from the terminal. 0: no limit, since it is
// no terminal or --wide was given.
func (c *Env) Columns() int { return c.ColumnsOf(c.Out) }

// ColumnsOf returns the width of w's terminal; 0: no limit.
func (c *Env) ColumnsOf(w io.Writer) int {
	if c.wide {
		return 0
	}
	return c.terminalColumns(w)
}

func (c *Env) terminalColumns(w io.Writer) int {
	switch {
	case c.Width > 0:
		return c.Width
	case !IsTerminal(w):
		return 0
	}
	if n, err := strconv.Atoi(c.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if f, ok := Raw(w).(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil {
			return n
		}
	}
	return 0
}

// ScreenSize returns the columns and lines of stdout's terminal.
func (c *Env) ScreenSize() (width, height int) {
	const usualWidth, usualHeight = 80, 24
	height = usualHeight
	if f, ok := Raw(c.Out).(*os.File); ok {
		if _, n, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			height = n
		}
	}
	return cmp.Or(c.terminalColumns(c.Out), usualWidth), height
}

// wideRunes are the runes that take two columns of a terminal: East Asian scripts, and emoji.
var wideRunes = &unicode.RangeTable{
	R16: []unicode.Range16{{0x1100, 0x115f, 1}, {0x2e80, 0x303e, 1}, {0x3041, 0xa4cf, 1}, {0xac00, 0xd7a3, 1},
		{0xf900, 0xfaff, 1}, {0xfe30, 0xfe6f, 1}, {0xff00, 0xff60, 1}, {0xffe0, 0xffe6, 1}},
	R32: []unicode.Range32{{0x1f300, 0x1faff, 1}, {0x20000, 0x3fffd, 1}},
}

func runeWidth(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case unicode.Is(wideRunes, r):
		return 2
	}
	return 1
}

// TextWidth returns how many columns a text takes on a terminal.
func TextWidth(text string) (n int) {
	for _, r := range text {
		n += runeWidth(r)
	}
	return n
}

// CutText cuts a text to at most most columns; a cut text ends in "…".
func CutText(text string, most int) string {
	if len(text) <= most || TextWidth(text) <= most {
		return text
	}
	n := 0
	for i, r := range text {
		if n += runeWidth(r); n > most-1 {
			return text[:i] + "…"
		}
	}
	return text
}

// breakText splits a text after at most most columns, at the last space if there is one.
func breakText(text string, most int) (head, rest string) {
	if TextWidth(text) <= most {
		return text, ""
	}
	head, rest = split(text, most)
	if rest != "" && rest[0] != ' ' {
		if at := strings.LastIndexByte(head, ' '); at > 0 {
			head, rest = head[:at], head[at:]+rest
		}
	}
	return strings.TrimRight(head, " "), strings.TrimLeft(rest, " ")
}

// Printf prints text with lines wrapped at the terminal's width, indented as by Wrap.
func (c *Env) Printf(format string, args ...any) {
	fmt.Fprint(c.Out, Wrap(fmt.Sprintf(format, args...), c.Columns()))
}

// Field prints an indented name and its text, as Printf does.
func (c *Env) Field(name, format string, args ...any) {
	c.Printf("  %-10s  %s\n", name, fmt.Sprintf(format, args...))
}

// Wrap breaks the lines of a text at spaces, so that none is wider than most; 0 is no limit. Continuation lines are
// indented to the line's text: below its first word, or in a list ("- text", "  name   text") below the text after the
// gap.
func Wrap(text string, most int) string {
	if most <= 0 {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if TextWidth(line) > most {
			lines[i] = wrapLine(line, most)
		}
	}
	return strings.Join(lines, "\n")
}

// leastLine is the least room that an indented line must have; otherwise it is not indented.
const leastLine = 4

// listIndent is the indent of a list's text if the terminal is too narrow to put it beside the name.
const listIndent = 4

func wrapLine(line string, most int) string {
	rest := strings.TrimLeft(line, " ")
	indent := len(line) - len(rest)
	if indent > most-leastLine {
		indent = 0
	}
	hang := indent
	var b strings.Builder
	b.WriteString(line[:indent])
	at := indent // columns used on the line
	if strings.HasPrefix(rest, "- ") {
		hang += len("- ")
	} else if name, text, gap := strings.Cut(rest, "  "); gap {
		wide := TextWidth(name)
		text = strings.TrimLeft(text, " ")
		hang = indent + len(rest) - len(name) - len(text) + wide
		if hang > most/2 {
			if hang = indent + listIndent; hang > most-leastLine {
				hang = 0
			}
			b.WriteString(fill(name, &at, hang, most))
			b.WriteString("\n" + strings.Repeat(" ", hang))
		} else {
			b.WriteString(name + strings.Repeat(" ", hang-indent-wide))
		}
		at, rest = hang, text
	}
	b.WriteString(fill(rest, &at, hang, most))
	return b.String()
}

// fill wraps words into lines of at most most columns. The first line has *at columns already, the others begin with
// hang spaces.
func fill(text string, at *int, hang, most int) string {
	var b strings.Builder
	begun := false // this line has a word
	for _, word := range strings.Fields(text) {
		w := TextWidth(word)
		if begun && *at+1+w > most {
			b.WriteString("\n" + strings.Repeat(" ", hang))
			*at, begun = hang, false
		}
		if begun {
			b.WriteByte(' ')
			*at++
		}
		for *at+w > most && word != "" { // too long for any line
			var head string
			head, word = split(word, max(1, most-*at))
			b.WriteString(head + "\n" + strings.Repeat(" ", hang))
			*at, w = hang, TextWidth(word)
		}
		b.WriteString(word)
		*at += w
		begun = true
	}
	return b.String()
}

// split splits a word after most columns.
func split(word string, most int) (head, rest string) {
	n := 0
	for i, r := range word {
		if n += runeWidth(r); n > most && i > 0 {
			return word[:i], word[i:]
		}
	}
	return word, ""
}
