package jobs

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/jobs"
)

// bar is a job's progress on a terminal, one line that is written over.
type bar struct {
	w     io.Writer
	on    bool
	shown int // characters on the line
}

const (
	barWidth = 30
	barEvery = 100 * time.Millisecond
)

func newBar(c *cli.Env) *bar { return &bar{w: cli.Raw(c.Err), on: !c.JSON && cli.IsTerminal(c.Err)} }

func (b *bar) show(j *jobs.Job) {
	if !b.on {
		return
	}
	line := strings.Map(cli.Printable, barText(j))
	pad := max(0, b.shown-len(line))
	fmt.Fprintf(b.w, "\r%s%s", line, strings.Repeat(" ", pad))
	b.shown = len(line)
}

func barText(j *jobs.Job) string {
	full := barWidth * j.Done() / max(1, j.Tasks)
	text := fmt.Sprintf("[%s%s] %s of %s", strings.Repeat("#", full), strings.Repeat(".", barWidth-full),
		thousands(j.Done()), thousands(j.Tasks))
	if j.Failed > 0 {
		text += fmt.Sprintf(", %s failed", thousands(j.Failed))
	}
	switch {
	case j.Running > 0:
		text += fmt.Sprintf(", %d running, %.0f/s, %s left", j.Running, j.PerSecond, shortTime(j.LeftMS))
	case j.Why != "" && len(j.Why) < 80:
		text += ", " + j.Why
	}
	return text
}

// clear takes the line away.
func (b *bar) clear() {
	if b.on && b.shown > 0 {
		fmt.Fprintf(b.w, "\r%s\r", strings.Repeat(" ", b.shown))
		b.shown = 0
	}
}

// pause keeps the bar from being drawn more often than eyes see.
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
