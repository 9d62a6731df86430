package cli

import (
	"bufio"
	"bytes"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/soukhq/souk/machine"
)

// Cell is a text and the colour it has on a terminal ("" is none).
type Cell struct {
	Text   string
	Colour string
}

// Table prints rows in columns as wide as their widest cell. Colours do not count.
func (c *Env) Table(head []string, rows [][]Cell) {
	for _, r := range rows {
		for i := range r {
			r[i].Text = strings.Map(Printable, r[i].Text)
		}
	}
	width := make([]int, len(head))
	for i, h := range head {
		width[i] = utf8.RuneCountInString(h)
	}
	for _, r := range rows {
		for i, x := range r {
			width[i] = max(width[i], utf8.RuneCountInString(x.Text))
		}
	}
	colour := c.coloured()
	out := bufio.NewWriterSize(Raw(c.Out), 1<<16) // not a system call for each line
	defer out.Flush()
	var b []byte
	line := func(r []Cell) {
		b = b[:0]
		for i, x := range r {
			if colour && x.Colour != "" {
				b = fmt.Appendf(b, "\x1b[%sm%s\x1b[0m", x.Colour, x.Text)
			} else {
				b = append(b, x.Text...)
			}
			if i < len(r)-1 {
				for range width[i] - utf8.RuneCountInString(x.Text) + 2 {
					b = append(b, ' ')
				}
			}
		}
		_, _ = out.Write(append(bytes.TrimRight(b, " "), '\n'))
	}
	line(Cells(head...))
	for _, r := range rows {
		line(r)
	}
}

// Cells returns cells without a colour.
func Cells(texts ...string) []Cell {
	out := make([]Cell, len(texts))
	for i, t := range texts {
		out[i] = Cell{Text: t}
	}
	return out
}

// coloured reports whether stdout is a terminal whose user has not asked for no colour (no-color.org).
func (c *Env) coloured() bool { return c.Getenv("NO_COLOR") == "" && IsTerminal(c.Out) }

// StateCell returns a machine's state in its colour.
func StateCell(s machine.State) Cell {
	switch {
	case s == machine.Started:
		return Cell{string(s), "32"}
	case s == machine.Failed:
		return Cell{string(s), "31"}
	case s.Transient():
		return Cell{string(s), "33"}
	}
	return Cell{string(s), "2"}
}

// Patience is how long a user waits before silence needs an explanation.
const Patience = time.Second

// Progress says on a terminal, once a second of silence has passed, what is being waited for. Call the answer when it
// is over.
func (c *Env) Progress(format string, args ...any) func() {
	if c.JSON || !IsTerminal(c.Err) {
		return func() {}
	}
	t := time.AfterFunc(Patience, func() { fmt.Fprintf(c.Err, format+" ...\n", args...) })
	return func() { t.Stop() }
}
