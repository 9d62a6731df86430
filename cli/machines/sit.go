package machines

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Attach makes the command "souk attach".
func Attach(c *cli.Env) *cobra.Command {
	var keys string
	cmd := &cobra.Command{
		Use:   "attach MACHINE",
		Short: "Sit down at a machine's terminal",
		Long: `Make this terminal that of a machine that was made with one (souk run -t): what its program writes is shown, and
what is typed goes to it, ^C too. Several may be attached. The machine's end ends this, with its exit code.

Ctrl-P Ctrl-Q (--detach-keys) leaves it running. So does the end of the connection.`,
		Example: "  souk run -itd --name box -- /bin/bash\n  souk attach box\n  souk attach --detach-keys ctrl-a,d box",
		Args:    cli.Args(1, 1, "a machine"),
	}
	addDetachKeys(cmd.Flags(), &keys)
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if _, err := detachKeys(keys); err != nil {
			return err
		}
		if c.JSON {
			return cli.Usagef("attach shows what a machine writes as it is, which --json does not: leave it out, or " +
				"use \"souk logs -f --json\"")
		}
		return c.Each(cmd.Context(), given, func(ctx context.Context, cl *client.Client, m *machine.Machine) error {
			code, left, err := sit(ctx, c, cl, m, keys, false)
			if err == nil && left {
				noteLeft(c, m)
				return nil
			}
			return execEnd(ctx, code, err)
		})
	}
	return cmd
}

func noteLeft(c *cli.Env, m *machine.Machine) {
	c.Note("%s goes on; \"souk attach %s\" comes back to it", cli.Label(m), m.ID)
}

// sit attaches this terminal to the machine until the machine has ended, or left: the user has detached.
func sit(ctx context.Context, c *cli.Env, cl *client.Client, m *machine.Machine, keys string,
	backlog bool) (code int, left bool, err error) {
	seq, err := detachKeys(keys)
	if err != nil {
		return 0, false, err
	}
	t, err := c.TakeConsole(true)
	if err != nil {
		return 0, false, err
	}
	defer t.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in := &leaver{from: c.In, keys: seq, leave: cancel}
	code, err = cl.Exec(ctx, m.App, m.ID, client.Command{Attach: true, Backlog: backlog, Stdin: in,
		Stdout: cli.Raw(c.Out), Terminal: &t.Terminal, Resize: t.Sizes})
	if in.left.Load() {
		return 0, true, nil
	}
	if fault.Is(err, fault.Unavailable) && ctx.Err() == nil {
		err = fault.Wrap(err, fault.Unavailable, fault.CodeLost,
			"the connection to souk was lost; %s continues without it, and \"souk attach %s\" attaches to it again",
			cli.Label(m), m.ID)
	}
	return code, false, err
}

// sitAt is an interactive run. If it ends before the terminal is attached, its log is printed.
func sitAt(ctx context.Context, c *cli.Env, cl *client.Client, m *machine.Machine, took time.Duration,
	o *RunFlags) error {
	fmt.Fprintf(c.Err, "%s (%s) is %s on %s after %s\n", cli.Label(m), m.ID, m.State, m.Worker, cli.Millis(took))
	code, left, err := sit(ctx, c, cl, m, o.keys, true)
	switch {
	case left:
		noteLeft(c, m)
		return nil
	case fault.Is(err, fault.Precondition) || fault.Is(err, fault.NotFound):
		last, ended := waitEnded(ctx, c, cl, m, 0)
		if ended != nil {
			return ended
		}
		out := NewOutput(c)
		p := out.Printer()
		p.Whole = true
		err = cl.Logs(ctx, m.App, m.ID, machine.LogQuery{}, p.Print)
		if fault.Is(err, fault.NotFound) {
			err = nil
		}
		err = cmp.Or(err, out.Close(), p.Err())
		if known := exitOf(last); known != nil {
			code = *known
		} else if err == nil {
			err = codeError(last, nil)
		}
	}
	if err == nil && o.rm {
		if _, gone := cl.Destroy(ctx, m.App, m.ID, "", true); gone != nil && !fault.Is(gone, fault.NotFound) {
			err = gone
		}
	}
	return execEnd(ctx, code, err)
}

func addDetachKeys(f *pflag.FlagSet, keys *string) {
	f.StringVar(keys, "detach-keys", "ctrl-p,ctrl-q",
		"what is typed to leave a terminal and let its machine go on; \"\" is nothing")
}

// detachKeys reads a list of keys, each a character or ctrl- and a letter or one of @[\]^_.
func detachKeys(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	var seq []byte
	for key := range strings.SplitSeq(text, ",") {
		name, ctrl := strings.CutPrefix(strings.ToLower(key), "ctrl-")
		switch {
		case ctrl && len(name) == 1 && (name[0] >= 'a' && name[0] <= 'z' || strings.ContainsAny(name, "@[\\]^_")):
			seq = append(seq, name[0]&0x1f)
		case !ctrl && len(key) == 1 && key[0] > ' ' && key[0] < 0x7f:
			seq = append(seq, key[0])
		default:
			return nil, cli.Usagef("--detach-keys is a list such as ctrl-p,ctrl-q or ctrl-a,d, and %q is no key", key)
		}
	}
	return seq, nil
}

// leaver passes input on, and detaches when the detach keys are typed. It holds back a partial match.
type leaver struct {
	from  io.Reader
	keys  []byte // nil: no detach keys
	leave func()
	held  int    // how many of keys match so far
	ready []byte // bytes to be read
	left  atomic.Bool
}

// Read returns the input without the detach keys.
func (l *leaver) Read(p []byte) (int, error) {
	for len(l.ready) == 0 {
		if l.left.Load() {
			return 0, io.EOF
		}
		n, err := l.from.Read(p)
		if len(l.keys) == 0 {
			return n, err
		}
		for _, b := range p[:n] {
			if l.ready = l.next(l.ready, b); l.left.Load() {
				l.leave() // drop input after the detach keys
				break
			}
		}
		if err != nil && len(l.ready) == 0 {
			return 0, err
		}
	}
	n := copy(p, l.ready)
	l.ready = l.ready[n:]
	return n, nil
}

// next handles one byte of input.
func (l *leaver) next(out []byte, b byte) []byte {
	typed := append(slices.Clone(l.keys[:l.held]), b)
	for !bytes.HasPrefix(l.keys, typed) {
		out, typed = append(out, typed[0]), typed[1:]
	}
	if l.held = len(typed); l.held == len(l.keys) {
		l.left.Store(true)
	}
	return out
}
