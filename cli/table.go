package cli

import (
	"bufio"
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/machine"
)

// Cell is a text and the colour it has on a terminal ("" is none).
type Cell struct {
	Text   string
	Colour string
}

// Column is a column of a table, and how it shrinks if the terminal is too narrow for the whole table.
type Column struct {
	Head  string
	Least int // texts may be cut to this width, but not below the head; 0: only as a last resort
	Order int // order in which it is left out, 1 first; 0: never

	whole bool // its texts are wrapped at spaces, never cut; see Reason
}

// Keep returns a column that is never left out.
func Keep(head string) Column { return Column{Head: head} }

// Drop returns a column that may be left out for lack of room, in the order of order.
func Drop(head string, order int) Column { return Column{Head: head, Order: order} }

// Cut returns the column with texts that may be cut to least before any column is left out.
func (x Column) Cut(least int) Column {
	x.Least = least
	return x
}

// reasonLeast is how wide a column of sentences is at least; with less room the sentences go below their rows.
const reasonLeast = 28

// Reason returns the column of a reason: on a narrow terminal its texts wrap over several lines in the row, or below it
// if other columns would have to shrink for that. A table has at most one.
func Reason(head string) Column { return Column{Head: head, Least: reasonLeast, whole: true} }

// Columns returns columns of which the first is always shown, and the others are left out from the right.
func Columns(heads ...string) []Column {
	out := make([]Column, len(heads))
	for i, h := range heads {
		out[i] = Column{Head: h, Order: len(heads) - i}
	}
	out[0].Order = 0
	return out
}

// fit returns each column's width on a terminal of most columns (0: no limit). Width 0 means left out. wide has the
// widths that the columns would need.
func fit(columns []Column, wide []int, most int) []int {
	shown := slices.Clone(wide)
	if most <= 0 {
		return shown
	}
	least := func(i int) int {
		if columns[i].Least > 0 {
			return min(wide[i], max(columns[i].Least, TextWidth(columns[i].Head)))
		}
		return wide[i]
	}
	for tooWide(shown, most, least) {
		out := -1
		for i, x := range columns {
			if shown[i] > 0 && x.Order > 0 && (out < 0 || x.Order < columns[out].Order) {
				out = i
			}
		}
		if out < 0 {
			break
		}
		shown[out] = 0
	}
	narrow(shown, most, least)
	narrow(shown, most, func(int) int { return 1 })
	for i := len(shown) - 1; i > 0 && tooWide(shown, most, func(i int) int { return shown[i] }); i-- {
		shown[i] = 0
	}
	return shown
}

// tooWide reports whether the shown columns do not fit into most even at their least widths.
func tooWide(shown []int, most int, least func(int) int) bool {
	total := -columnGap
	for i, w := range shown {
		if w > 0 {
			total += least(i) + columnGap
		}
	}
	return total > most
}

// narrow makes the widest columns narrower, none below its least, until all fit into most.
func narrow(shown []int, most int, least func(int) int) {
	for tooWide(shown, most, func(i int) int { return shown[i] }) {
		widest := -1
		for i, w := range shown {
			if w > least(i) && (widest < 0 || w > shown[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		shown[widest]--
	}
}

const columnGap = 2

// layout is fit for a table that may have a column of reasons. below is that column if its texts go below their rows;
// -1: none.
func layout(columns []Column, wide []int, most int) (shown []int, below int) {
	shown = fit(columns, wide, most)
	at := slices.IndexFunc(columns, func(x Column) bool { return x.whole })
	if at < 0 || most <= 0 {
		return shown, -1
	}
	beside := shown[at] >= min(wide[at], reasonLeast)
	for i := range shown {
		beside = beside && (i == at || shown[i] == wide[i])
	}
	if beside {
		return shown, -1
	}
	without := slices.Clone(wide)
	without[at] = 0
	return fit(columns, without, most), at
}

// belowIndent is the indent of a text below its row.
const belowIndent = 4

// Table prints rows in columns as wide as their widest cell, as far as the terminal has room. Colour codes do not count
// as width.
func (c *Env) Table(columns []Column, rows [][]Cell) {
	wide := make([]int, len(columns))
	heads := make([]Cell, len(columns))
	for i, x := range columns {
		heads[i].Text, wide[i] = x.Head, max(1, TextWidth(x.Head)) // not 0, which means left out
	}
	for _, r := range rows {
		for i := range r {
			r[i].Text = strings.Map(Printable, r[i].Text)
			wide[i] = max(wide[i], TextWidth(r[i].Text))
		}
	}
	most := c.Columns()
	shown, below := layout(columns, wide, most)
	out := bufio.NewWriterSize(Raw(c.Out), 1<<16) // not a system call for each line
	defer out.Flush()
	t := tableWriter{out: out, columns: columns, shown: shown, colour: c.coloured()}
	t.row(heads)
	for _, r := range rows {
		t.row(r)
		if below >= 0 && below < len(r) && r[below].Text != "" {
			indent := strings.Repeat(" ", min(belowIndent, most/2))
			fmt.Fprintln(out, Wrap(indent+r[below].Text, most))
		}
	}
}

// tableWriter writes the rows of a table.
type tableWriter struct {
	out     *bufio.Writer
	columns []Column
	shown   []int // each column's width; 0: left out
	colour  bool
	b       []byte
}

// row writes a row. A reason that wraps continues below its first line.
func (t *tableWriter) row(r []Cell) {
	for again := true; again; {
		again = false
		var rest []Cell
		t.b = t.b[:0]
		gap := 0
		for i, x := range r {
			if t.shown[i] == 0 {
				continue
			}
			for range gap {
				t.b = append(t.b, ' ')
			}
			text := x.Text
			if t.columns[i].whole {
				var more string
				if text, more = breakText(text, t.shown[i]); more != "" {
					rest = make([]Cell, len(r))
					rest[i], again = Cell{more, x.Colour}, true
				}
			}
			text = CutText(text, t.shown[i])
			if t.colour && x.Colour != "" && text != "" {
				t.b = fmt.Appendf(t.b, "\x1b[%sm%s\x1b[0m", x.Colour, text)
			} else {
				t.b = append(t.b, text...)
			}
			gap = t.shown[i] - TextWidth(text) + columnGap
		}
		_, _ = t.out.Write(append(bytes.TrimRight(t.b, " "), '\n'))
		r = rest
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

// unknownState is the state shown for a machine whose worker is unreachable.
const unknownState = "unknown"

// LineStateCell returns a machine's state as it is known, in its colour.
func LineStateCell(m *machine.Line) Cell {
	switch {
	case !Heard(m.HostStatus) && m.State != machine.Destroyed:
		return Cell{unknownState, "33"}
	case m.Returns:
		return Cell{string(m.State) + ", waits for room", "33"}
	case m.Failing:
		return Cell{string(m.State) + ", a check fails", "33"}
	case m.NextTry != "" && m.State == machine.Restarting:
		wait, _ := until(m.NextTry, time.Now())
		return Cell{string(m.State) + " in " + ageText(wait), "33"}
	case m.Tries > 1 && m.State != machine.Restarting:
		return Cell{string(m.State) + ", tries again", "33"}
	}
	return StateCell(m.State)
}

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

// Progress shows on a terminal, after a second of silence, what the command waits for. Call the returned function when
// the wait is over.
func (c *Env) Progress(format string, args ...any) func() {
	if c.JSON || !IsTerminal(c.Err) {
		return func() {}
	}
	t := time.AfterFunc(Patience, func() { fmt.Fprintf(c.Err, format+" ...\n", args...) })
	return func() { t.Stop() }
}
