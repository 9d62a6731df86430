package machines

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// ended is the last line of an attached run, and a line of wait, in --json.
type ended struct {
	ID       string        `json:"id"`
	Name     string        `json:"name"`
	App      string        `json:"app"`
	State    machine.State `json:"state"`
	ExitCode *int          `json:"exit_code"` // null when it was never started or its end was not seen
}

// attach follows a machine's output until it ends and returns the task's own code.
func attach(ctx context.Context, c *cli.Env, cl *client.Client, m *machine.Machine, took time.Duration, rm bool) error {
	if c.JSON {
		c.JSONLine(c.Out, launched{m, float64(took) / 1e6})
	} else {
		fmt.Fprintf(c.Err, "%s (%s) is %s on %s after %s\n", cli.Label(m), m.ID, m.State, m.Worker, cli.Millis(took))
	}
	// ctx ends with the user's ^C, which must stop the machine: calls to the server need a context that outlives it.
	talk, letGo := context.WithCancelCause(context.WithoutCancel(ctx))
	defer letGo(nil)
	f := follow(talk, c, cl, m)
	stopOnce := context.AfterFunc(ctx, func() { stopAttached(talk, letGo, c, cl, m) })
	defer stopOnce()
	last, err := waitEnded(talk, c, cl, m, 0)
	f.stop()
	if talk.Err() != nil {
		leave(ctx, c, cl, m, rm)
		return context.Cause(ctx)
	}
	if err != nil {
		close(f.lines)
		if printed := f.end(); printed != nil {
			c.PrintError(printed)
		}
		return err
	}
	missing := f.rest(talk)
	if rm && last.State != machine.Destroyed {
		if _, err := cl.Destroy(talk, m.App, m.ID, "", true); err != nil && !fault.Is(err, fault.NotFound) {
			missing = cmp.Or(missing, err)
		}
	}
	missing = cmp.Or(missing, f.end())
	code := exitOf(last)
	if outOfMemory(last) {
		c.Note("%s used more memory than it has, and was killed; give it more with --memory", cli.Label(last))
	}
	if c.JSON {
		c.JSONLine(c.Out, ended{last.ID, last.Name, last.App, last.State, code})
	}
	if err := codeError(last, code); err != nil {
		if missing != nil {
			c.PrintError(missing)
		}
		return err
	}
	return missing
}

// follower prints a machine's output. A slow printer slows the machine down; once the machine has ended, the rest is
// read at once, since it is then kept only for a moment.
type follower struct {
	cl      *client.Client
	m       *machine.Machine
	lines   chan machine.LogLine // to be printed
	cursor  string               // of the last line; owned by the follower until it stops
	stop    func()
	printed chan error // receives the printer's result, once
}

// follow follows a machine's output until it is stopped.
func follow(talk context.Context, c *cli.Env, cl *client.Client, m *machine.Machine) *follower {
	f := &follower{cl: cl, m: m, lines: make(chan machine.LogLine, 256), printed: make(chan error, 1)}
	ctx, cancel := context.WithCancel(talk)
	followed := make(chan struct{})
	f.stop = func() { cancel(); <-followed }
	go func() {
		defer close(followed)
		// However this ends, rest reads the remaining output. waitEnded reports a lost souk.
		for ctx.Err() == nil {
			before := f.cursor
			err := cl.Logs(ctx, m.App, m.ID, machine.LogQuery{Follow: true, Hold: true, Cursor: f.cursor},
				func(l machine.LogLine) error {
					select {
					case f.lines <- l:
						f.cursor = l.Cursor
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				})
			if err != nil && !fault.Is(err, fault.Unavailable) {
				return
			}
			if err != nil || f.cursor == before {
				_ = cli.Pause(ctx, 200*time.Millisecond) // the loop checks ctx
			}
		}
	}()
	go func() {
		out := NewOutput(c)
		p := out.Printer()
		p.Whole = true
		var err error
		for l := range f.lines {
			if err == nil { // after a print error read on, so that the machine does not block
				err = p.Print(l)
			}
		}
		f.printed <- cmp.Or(err, out.Close(), p.Err())
	}()
	return f
}

// rest reads what the ended machine wrote after the last line.
func (f *follower) rest(ctx context.Context) error {
	var left []machine.LogLine
	err := f.cl.Logs(ctx, f.m.App, f.m.ID, machine.LogQuery{Cursor: f.cursor}, func(l machine.LogLine) error {
		left = append(left, l)
		return nil
	})
	go func() {
		defer close(f.lines)
		for _, l := range left {
			f.lines <- l
		}
	}()
	if fault.Is(err, fault.NotFound) {
		return fault.New(fault.Internal, codeOutputLost, "the last output of %s may be missing: the machine was "+
			"destroyed before it was read", cli.Label(f.m))
	}
	return err
}

// end waits until all is printed.
func (f *follower) end() error { return <-f.printed }

// errLetGo is the cause of an attached run that ends without waiting for its machine.
var errLetGo = errors.New("nobody waits for its end")

// stopAttached stops the machine of an attached run after the user's ^C. The next ^C ends the run without waiting.
func stopAttached(talk context.Context, letGo context.CancelCauseFunc, c *cli.Env, cl *client.Client,
	m *machine.Machine) {
	next := make(chan os.Signal, 1)
	signal.Notify(next, os.Interrupt, syscall.SIGTERM)
	go func() {
		defer signal.Stop(next)
		select {
		case <-next:
			letGo(errLetGo)
		case <-talk.Done():
		}
	}()
	c.Note("%s is being stopped; ^C again does not wait for its end", cli.Label(m))
	err := c.Outlast(talk, cl, cli.Label(m), "souk stop "+m.ID, func(ctx context.Context) error {
		_, err := cl.Stop(ctx, m.App, m.ID, "", client.StopOptions{})
		return err
	})
	if err != nil && talk.Err() == nil && !fault.Is(err, fault.NotFound) { // print only: the wait for the end goes on
		c.Note("%s was not stopped: %v", cli.Label(m), err)
	}
}

// leave ends an attached run whose machine still runs: it prints the machine's state, or with --rm destroys it.
func leave(ctx context.Context, c *cli.Env, cl *client.Client, m *machine.Machine, rm bool) {
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaves)
	defer cancel()
	name := cli.Label(m)
	if rm {
		_, err := cl.Destroy(brief, m.App, m.ID, "", true)
		if err != nil && !fault.Is(err, fault.NotFound) {
			c.Note("%s was not destroyed (%v); \"souk destroy --force %s\" does it", name, err, m.ID)
			return
		}
		c.Note("%s is destroyed", name)
		return
	}
	now, err := cl.Machine(brief, m.App, m.ID)
	if err != nil {
		c.Note("what %s does is not known (%v); \"souk stop %s\" stops it", name, err, m.ID)
		return
	}
	c.Note("%s is %s; \"souk wait %s\" waits for its end", name, now.State, m.ID)
}

// leaves bounds the calls of leave.
const leaves = 5 * time.Second

// codeError returns the task's code as an error, nil for 0.
func codeError(m *machine.Machine, code *int) error {
	switch {
	case code == nil:
		return fault.New(fault.Internal, codeNoExitCode, "%s is %s, and no exit code is known of it%s", cli.Label(m),
			m.State,
			m.Because())
	case *code == 0:
		return nil
	}
	return cli.TaskCode(*code)
}

// outOfMemory reports whether a machine's newest end was an out-of-memory kill.
func outOfMemory(m *machine.Machine) bool {
	for _, e := range m.Events { // newest first
		if e.Type == "exit" && e.Request != nil && e.Request.ExitEvent != nil {
			return e.Request.ExitEvent.OOMKilled
		}
	}
	return false
}

// exitOf returns the exit code of a machine's newest end, or nil.
func exitOf(m *machine.Machine) *int {
	for _, e := range m.Events { // newest first
		if e.Type == "exit" && e.Request != nil && e.Request.ExitEvent != nil {
			if e.Request.ExitEvent.Lost {
				return nil
			}
			code := e.Request.ExitEvent.ExitCode
			return &code
		}
	}
	return nil
}
