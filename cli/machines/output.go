package machines

import (
	"bufio"
	"errors"
	"io"
	"sync"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/pace"
	"github.com/soukhq/souk/machine"
)

// Output is where the printers of one command print. It is closed before the command ends.
type Output struct {
	c        *cli.Env
	mu       sync.Mutex
	out, err *pace.Writer
}

func NewOutput(c *cli.Env) *Output {
	o := &Output{c: c, err: paced(cli.Raw(c.Err))}
	if o.out = paced(cli.Raw(c.Out)); c.JSON {
		o.out = paced(c.Out) // JSON escapes control characters itself
	}
	return o
}

func paced(w io.Writer) *pace.Writer {
	b := bufio.NewWriterSize(w, 64<<10)
	return pace.New(b, b.Flush)
}

// to returns stdout or stderr, after flushing the other, so that their order is kept.
func (o *Output) to(stderr bool) (io.Writer, error) {
	if stderr {
		return o.err, o.out.Flush()
	}
	return o.out, o.err.Flush()
}

// Close prints what has not been printed yet.
func (o *Output) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return errors.Join(o.out.Close(), o.err.Close())
}

// Printer makes the printer of one machine or task.
func (o *Output) Printer() *Printer { return &Printer{to: o, in: map[string]bool{}} }

// Printer prints the output of one machine or task, byte for byte.
type Printer struct {
	Before string // each line
	Stamps bool   // print each line's time
	Whole  bool   // missing output before the first line is an error, too
	// JSON returns what a line is printed as with --json; nil: as it is.
	JSON func(machine.LogLine) any

	to   *Output
	seen bool
	in   map[string]bool // by stream: the last print ended within a line
	lost int64
}

// Print prints a line, or a part of one: stdout's on stdout, the rest on stderr.
func (p *Printer) Print(l machine.LogLine) error {
	p.to.mu.Lock()
	defer p.to.mu.Unlock()
	if l.Lost > 0 && (p.seen || p.Whole) {
		p.lost += l.Lost
		if _, err := p.to.to(true); err != nil {
			return err
		}
		p.to.c.Note("%d bytes of output are missing here, which are not kept", l.Lost)
	}
	p.seen = true
	w, err := p.to.to(l.Stream == "stderr" && !p.to.c.JSON)
	if err != nil {
		return err
	}
	if p.to.c.JSON {
		var line any = l
		if p.JSON != nil {
			line = p.JSON(l)
		}
		p.to.c.JSONLine(w, line)
		return nil
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
	_, err = w.Write(text)
	return err
}

// PrintJSON prints something else than a line, with --json.
func (p *Printer) PrintJSON(v any) error {
	p.to.mu.Lock()
	defer p.to.mu.Unlock()
	w, err := p.to.to(false)
	if err == nil {
		p.to.c.JSONLine(w, v)
	}
	return err
}

// Note prints a note in the place of output.
func (p *Printer) Note(format string, args ...any) error {
	p.to.mu.Lock()
	defer p.to.mu.Unlock()
	_, err := p.to.to(true)
	if err == nil {
		p.to.c.Note(format, args...)
	}
	return err
}

// EndLine ends the lines that the last prints ended within, so that those of another printer begin at the margin.
func (p *Printer) EndLine() error {
	p.to.mu.Lock()
	defer p.to.mu.Unlock()
	for stream, in := range p.in {
		if !in || p.to.c.JSON {
			continue
		}
		w, err := p.to.to(stream == "stderr")
		if err == nil {
			_, err = w.Write([]byte("\n"))
		}
		if err != nil {
			return err
		}
		p.in[stream] = false
	}
	return nil
}

// Err is the error for output that is missing; nil: none is.
func (p *Printer) Err() error {
	if p.lost == 0 {
		return nil
	}
	return fault.New(fault.Internal, codeOutputLost,
		"%d bytes of the output are missing: the worker keeps only a machine's newest output, and this machine "+
			"wrote faster than it was read; write what must not be lost to a file", p.lost)
}
