package cli

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Printable replaces what would move the cursor, or turn round the order in which the rest of a line is read: what
// others named, wrote or answered must not write on its reader's terminal.
func Printable(r rune) rune {
	switch {
	case r < ' ', r == 0x7f, r >= 0x80 && r < 0xa0, r == '\u2028', r == '\u2029',
		r == '\u061c', r == '\u200e', r == '\u200f', r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069':
		return ' '
	}
	return r
}

// guarded is a terminal that text is written on. Lines and tabs pass; the rest goes through Printable. A write is a
// whole text: no rune is cut between two.
type guarded struct{ terminal io.Writer }

// Write writes what may be printed of p.
func (g guarded) Write(p []byte) (int, error) {
	text := string(p)
	clean := strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r == utf8.RuneError {
			return r
		}
		return Printable(r)
	}, text)
	if _, err := io.WriteString(g.terminal, clean); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Guarded returns a terminal, or what will be shown on one, for text that goes through Printable.
func Guarded(terminal io.Writer) io.Writer { return guarded{terminal} }

// guard has what is printed on a terminal go through Printable.
func (c *Env) guard() {
	if IsTerminal(c.Out) {
		c.Out = Guarded(c.Out)
	}
	if IsTerminal(c.Err) {
		c.Err = Guarded(c.Err)
	}
}

// Raw returns w without its guard: for what moves the cursor by itself, and for a machine's own output, which is passed
// on as it is.
func Raw(w io.Writer) io.Writer {
	if g, is := w.(guarded); is {
		return g.terminal
	}
	return w
}

// IsTerminal reports whether what is written to w is seen on a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := Raw(w).(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
