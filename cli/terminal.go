package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/soukhq/souk/machine"
)

// Printable replaces runes that move the cursor or change a line's reading direction: names, output and answers of
// others must not control the user's terminal.
func Printable(r rune) rune {
	switch {
	case r < ' ', r == 0x7f, r >= 0x80 && r < 0xa0, r == '\u2028', r == '\u2029',
		r == '\u061c', r == '\u200e', r == '\u200f', r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069':
		return ' '
	}
	return r
}

// guarded writes text to a terminal through Printable, except newlines and tabs. Each write must be whole text: no rune
// may be split between two writes.
type guarded struct{ terminal io.Writer }

// Write writes the printable form of p.
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

// Guarded returns a writer that passes text through Printable.
func Guarded(terminal io.Writer) io.Writer { return guarded{terminal} }

// guard makes output to a terminal go through Printable.
func (c *Env) guard() {
	if IsTerminal(c.Out) {
		c.Out = Guarded(c.Out)
	}
	if IsTerminal(c.Err) {
		c.Err = Guarded(c.Err)
	}
}

// Raw returns w without its guard, for output that moves the cursor itself, and for a machine's raw output.
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

// Console connects this invocation's terminal to a remote program: input is passed byte by byte, even ^C, and output is
// shown unchanged. Close restores the terminal; so does a signal that ends souk.
type Console struct {
	Terminal machine.Terminal // its present size and type
	Sizes    <-chan machine.WindowSize

	in   *os.File
	was  *term.State // the state to restore; nil: unchanged
	once sync.Once
	over context.CancelFunc
	done chan struct{}
}

// TakeConsole takes the terminal. Without typing nothing is read from it, and its mode is unchanged. It fails without a
// terminal.
func (c *Env) TakeConsole(typing bool) (*Console, error) {
	if err := c.CheckConsole(typing); err != nil {
		return nil, err
	}
	out, _ := Raw(c.Out).(*os.File)
	in, _ := c.In.(*os.File)
	if !IsTerminal(c.Out) {
		out = in // stdout is a file or pipe: use the size of stdin's terminal
	}
	ctx, over := context.WithCancel(context.Background())
	sizes := make(chan machine.WindowSize)
	t := &Console{in: in, over: over, done: make(chan struct{}), Sizes: sizes}
	t.Terminal = machine.Terminal{Size: sizeOf(out), Term: c.Getenv("TERM")}
	if t.Terminal.Check() != nil { // an unknown terminal type
		t.Terminal.Term = ""
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGWINCH, unix.SIGTERM, unix.SIGINT, unix.SIGQUIT)
	if !signal.Ignored(unix.SIGHUP) { // ignored under nohup
		signal.Notify(signals, unix.SIGHUP)
	}
	if typing {
		var err error
		if t.was, err = term.MakeRaw(int(in.Fd())); err != nil {
			signal.Stop(signals)
			over()
			return nil, Usagef("this terminal cannot be lent to a program elsewhere (%v): leave -t out", err)
		}
	}
	go t.listen(ctx, signals, sizes, out)
	return t, nil
}

// CheckConsole refuses what TakeConsole would, and changes nothing.
func (c *Env) CheckConsole(typing bool) error {
	in, _ := c.In.(*os.File)
	switch {
	case typing && (in == nil || !term.IsTerminal(int(in.Fd()))):
		return Usagef("-t needs a terminal, and stdin is not one: leave -t out, and stdin is passed on " +
			"as it is")
	case typing && !c.ForegroundIn():
		return Usagef("-t wants the terminal, which this command may not read while it runs in the background: " +
			"bring it to the foreground, or leave -t out")
	case !IsTerminal(c.Out) && !typing:
		return Usagef("-t needs a terminal: stdin is not passed on and stdout is not one; leave -t out")
	}
	return nil
}

// listen reports new sizes, and restores the terminal when a signal ends souk.
func (t *Console) listen(ctx context.Context, signals chan os.Signal, sizes chan<- machine.WindowSize,
	out *os.File) {
	defer close(t.done)
	defer signal.Stop(signals)
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-signals:
			if s == unix.SIGWINCH {
				select {
				case sizes <- sizeOf(out):
				case <-ctx.Done():
					return
				}
				continue
			}
			t.restore()
			signal.Stop(signals)
			if s == unix.SIGHUP || s == unix.SIGQUIT { // not handled elsewhere, so they must end souk
				signal.Reset(s)
				_ = unix.Kill(os.Getpid(), s.(unix.Signal)) // signalling the own process cannot fail
			}
		}
	}
}

func sizeOf(f *os.File) machine.WindowSize {
	cols, rows, err := term.GetSize(int(f.Fd()))
	if err != nil || cols < 0 || rows < 0 {
		return machine.WindowSize{}
	}
	return machine.WindowSize{Rows: uint16(rows), Cols: uint16(cols)}
}

func (t *Console) restore() {
	t.once.Do(func() {
		if t.was != nil {
			_ = term.Restore(int(t.in.Fd()), t.was) // fails after a hangup
		}
	})
}

// Close restores the terminal.
func (t *Console) Close() {
	t.restore()
	t.over()
	<-t.done
}
