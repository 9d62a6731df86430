package jobs

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/core/jobs"
)

// bar is a job's progress on a terminal, one line, redrawn in place.
type bar struct {
	w     io.Writer
	on    bool
	width func() int // the terminal's present width; 0: unknown
	shown int        // columns that the line has now
}

const (
	barWidth = 30
	barLeast = 6 // a narrower bar is left out
	barEvery = 100 * time.Millisecond
)

func newBar(c *cli.Env) *bar {
	return &bar{w: cli.Raw(c.Err), on: !c.JSON && cli.IsTerminal(c.Err),
		width: func() int { return c.ColumnsOf(c.Err) }}
}

func (b *bar) show(j *jobs.Job) {
	if !b.on {
		return
	}
	most := b.width() - 1 // some terminals wrap at the last column
	if most < 0 {
		most = math.MaxInt
	}
	line := strings.Map(cli.Printable, barText(j, most))
	wide := cli.TextWidth(line)
	pad := max(0, min(b.shown, most)-wide)
	fmt.Fprintf(b.w, "\r%s%s", line, strings.Repeat(" ", pad))
	b.shown = wide
}

// barText returns a job's progress in at most so many columns. With little room the bar gets shorter, then it
// disappears, then the text at the end does.
func barText(j *jobs.Job, most int) string {
	parts := []string{thousands(j.Done()) + " of " + thousands(j.Tasks)}
	if j.Failed > 0 {
		parts = append(parts, thousands(j.Failed)+" failed")
	}
	switch {
	case j.Running > 0:
		parts = append(parts, fmt.Sprintf("%d running", j.Running))
		if left := leftText(j); left != "" {
			parts = append(parts, left)
		}
	case j.Why != "" && len(j.Why) < 80:
		parts = append(parts, j.Why)
	}
	for len(parts) > 1 && cli.TextWidth(strings.Join(parts, ", ")) > most {
		parts = parts[:len(parts)-1]
	}
	text := cli.CutText(strings.Join(parts, ", "), most)
	wide := min(barWidth, most-cli.TextWidth(text)-len("[] "))
	if wide < barLeast {
		return text
	}
	full := wide * min(j.Done(), j.Tasks) / max(1, j.Tasks)
	return fmt.Sprintf("[%s%s] %s", strings.Repeat("#", full), strings.Repeat(".", wide-full), text)
}

// clear removes the line.
func (b *bar) clear() {
	if b.on && b.shown > 0 {
		fmt.Fprint(b.w, "\r\x1b[K")
		b.shown = 0
	}
}

// pause waits until the next redraw is due.
func (b *bar) pause(ctx context.Context) {
	if !b.on {
		return
	}
	t := time.NewTimer(barEvery)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// thousands prints a number with commas.
func thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func countOf(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(n) + " " + many
}

// shortTime prints milliseconds as people say them.
func shortTime(ms float64) string {
	d := time.Duration(ms * float64(time.Millisecond))
	switch {
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", ms)
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// timeText returns a job's age, its rate, and its tasks' durations, as far as measured.
func timeText(j *jobs.Job) string {
	text := shortTime(j.Elapsed) + " since it was submitted"
	if j.Ended != nil {
		text = shortTime(j.Elapsed) + " from its submission to its end"
	}
	if j.PerSecond >= 1 {
		text += fmt.Sprintf(", %.0f tasks/s", j.PerSecond)
	}
	if j.Took != nil {
		text += ", a task takes " + spanText(*j.Took)
	}
	return text
}

// leftText returns how long a job will still take; "": too few tasks have ended to know.
func leftText(j *jobs.Job) string {
	if j.Left == nil {
		return ""
	}
	return spanText(*j.Left) + " left"
}

// spanText prints a time that is known within bounds: "3 to 5 min", "at most 20 s".
func spanText(s jobs.Span) string {
	low, unit := roundTime(s.LowMS)
	high, highUnit := roundTime(s.HighMS)
	switch {
	case low == "0" && high == "0":
		return "less than 1 ms"
	case low == "0":
		return "at most " + high + " " + highUnit
	case unit != highUnit:
		return low + " " + unit + " to " + high + " " + highUnit
	case low == high:
		return "about " + high + " " + highUnit
	}
	return low + " to " + high + " " + highUnit
}

// roundTime returns milliseconds with two significant digits, and their unit.
func roundTime(ms float64) (number, unit string) {
	x, unit := ms, "ms"
	switch {
	case ms >= 2*3600_000:
		x, unit = ms/3600_000, "h"
	case ms >= 2*60_000:
		x, unit = ms/60_000, "min"
	case ms >= 1000:
		x, unit = ms/1000, "s"
	}
	if unit != "ms" && x < 10 {
		return strings.TrimSuffix(fmt.Sprintf("%.1f", x), ".0"), unit
	}
	return fmt.Sprintf("%.0f", x), unit
}
