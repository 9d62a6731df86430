package machines

import (
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Printer prints the output of one machine or task, byte for byte.
type Printer struct {
	Before string // each line
	Stamps bool   // each line begins with its time
	Whole  bool   // what is missing before the first line counts

	c    *cli.Env
	seen bool
	in   map[string]bool // the middle of a line, by stream
	lost int64
}

// NewPrinter makes the printer of a command.
func NewPrinter(c *cli.Env) *Printer { return &Printer{c: c, in: map[string]bool{}} }

// Print prints a line, or a part of one: what was written to stdout on stdout, the rest on stderr.
func (p *Printer) Print(l machine.LogLine) error {
	if l.Lost > 0 && (p.seen || p.Whole) {
		p.lost += l.Lost
		p.c.Note("%d bytes of output are missing here, which are not kept", l.Lost)
	}
	p.seen = true
	if p.c.JSON {
		p.c.JSONLine(p.c.Out, l)
		return nil
	}
	w := cli.Raw(p.c.Out)
	if l.Stream == "stderr" {
		w = cli.Raw(p.c.Err)
	}
	text := l.Raw()
	if !p.in[l.Stream] {
		before := p.Before
		if p.Stamps {
			before += l.At.Local().Format(cli.TimeFormat) + " "
		}
		text = append([]byte(before), text...)
	}
	p.in[l.Stream] = l.Part
	_, err := w.Write(text)
	return err
}

// Err is the error for output that is missing; nil where none is.
func (p *Printer) Err() error {
	if p.lost == 0 {
		return nil
	}
	return fault.New(fault.Internal, "output_lost",
		"%d bytes of the output are missing, because of a machine's output only the newest is kept and it came faster "+
			"than it was read: write what must not be lost to a file", p.lost)
}
