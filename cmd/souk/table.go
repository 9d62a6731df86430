package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/soukhq/souk/machine"
)

// cell is a text and the colour it has on a terminal ("" is none).
type cell struct {
	text   string
	colour string
}

// table prints rows in columns as wide as their widest cell. Colours do not count.
func (c *cli) table(head []string, rows [][]cell) {
	width := make([]int, len(head))
	for i, h := range head {
		width[i] = utf8.RuneCountInString(h)
	}
	for _, r := range rows {
		for i, x := range r {
			width[i] = max(width[i], utf8.RuneCountInString(x.text))
		}
	}
	colour := c.coloured()
	out := bufio.NewWriter(c.out) // not a system call for each line
	defer out.Flush()
	line := func(r []cell) {
		var b strings.Builder
		for i, x := range r {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(x.text))
			if i == len(r)-1 {
				pad = ""
			}
			if colour && x.colour != "" {
				fmt.Fprintf(&b, "\x1b[%sm%s\x1b[0m%s", x.colour, x.text, pad)
			} else {
				b.WriteString(x.text + pad)
			}
			if i < len(r)-1 {
				b.WriteString("  ")
			}
		}
		fmt.Fprintln(out, strings.TrimRight(b.String(), " "))
	}
	line(cells(head...))
	for _, r := range rows {
		line(r)
	}
}

func cells(texts ...string) []cell {
	out := make([]cell, len(texts))
	for i, t := range texts {
		out[i] = cell{text: t}
	}
	return out
}

// coloured says whether stdout is a terminal whose user has not asked for no colour (no-color.org).
func (c *cli) coloured() bool { return c.getenv("NO_COLOR") == "" && isTerminal(c.out) }

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func stateCell(s machine.State) cell {
	switch {
	case s == machine.Started:
		return cell{string(s), "32"}
	case s == machine.Failed:
		return cell{string(s), "31"}
	case s.Transient():
		return cell{string(s), "33"}
	}
	return cell{string(s), "2"}
}

// age prints how long ago an RFC 3339 time was, in its largest unit: "3s", "5m", "2h", "4d".
func age(at string, now time.Time) string {
	t, err := time.Parse(time.RFC3339Nano, at)
	if err != nil {
		return "?"
	}
	d := max(now.Sub(t), 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// ms prints a duration in milliseconds with as many digits as mean something.
func ms(d time.Duration) string {
	switch f := float64(d) / float64(time.Millisecond); {
	case f < 10:
		return fmt.Sprintf("%.2f ms", f)
	case f < 100:
		return fmt.Sprintf("%.1f ms", f)
	default:
		return fmt.Sprintf("%.0f ms", f)
	}
}

// patience is how long a user waits before silence needs an explanation.
const patience = time.Second

// progress says on a terminal, once a second of silence has passed, what is being waited for. Call the answer when it is over.
func (c *cli) progress(format string, args ...any) func() {
	if c.json || !isTerminal(c.err) {
		return func() {}
	}
	t := time.AfterFunc(patience, func() { fmt.Fprintf(c.err, format+" ...\n", args...) })
	return func() { t.Stop() }
}

// clausesText prints why a worker said no: "memory: wanted 512 MiB, had 100 MiB free of 900 MiB; ...".
func clausesText(cs []machine.Clause) string {
	parts := make([]string, len(cs))
	for i, x := range cs {
		parts[i] = fmt.Sprintf("%s: wanted %s, had %s", x.Code, x.Wanted, x.Had)
	}
	return strings.Join(parts, "; ")
}
