package bench

import (
	"fmt"
	"io"

	"github.com/soukhq/souk/bench"
	"github.com/soukhq/souk/cli"
)

// reporter prints what a benchmark measures.
type reporter struct {
	c    *cli.Env
	head string // printed above the first row; "": none
}

func (b *reporter) Row(r bench.Row) {
	if b.c.JSON {
		b.c.JSONLine(b.c.Out, r)
		return
	}
	if b.head != "" {
		fmt.Fprintln(b.c.Out, b.head)
		b.head = ""
	}
	fmt.Fprintln(b.c.Out, r.Text())
}

func (b *reporter) Working(format string, args ...any) func() {
	return b.c.Progress(format, args...)
}

func (b *reporter) Stderr() io.Writer { return b.c.Err }
