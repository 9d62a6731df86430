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
	// The end of ctx is the user's ^C, which is to stop the machine: what talks to the server must outlive it.
	talk, letGo := context.WithCancelCause(context.WithoutCancel(ctx))
	defer letGo(nil)
	follow, stopFollowing := context.WithCancel(talk)
	defer stopFollowing()
	var cursor string
	p := NewPrinter(c)
	p.Whole = true
	emit := func(l machine.LogLine) error {
		cursor = l.Cursor
		return p.Print(l)
	}
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		// Whatever ended it, the rest is read below. Who waits for the end says that souk is lost.
		for follow.Err() == nil {
			err := cl.Logs(follow, m.App, m.ID, machine.LogQuery{Follow: true, Cursor: cursor}, emit)
			if err == nil || !fault.Is(err, fault.Unavailable) {
				return
			}
			_ = cli.Pause(follow, 200*time.Millisecond) // its end is the loop's
		}
	}()

	stopOnce := context.AfterFunc(ctx, func() { stopAttached(talk, letGo, c, cl, m) })
	defer stopOnce()
	last, err := waitEnded(talk, c, cl, m, 0)
	stopFollowing()
	<-followed // emit is done: cursor is ours
	if talk.Err() != nil {
		leave(ctx, c, cl, m, rm)
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	// The follower may have been stopped a line short: read on from where it was, to the end.
	if err := cl.Logs(talk, m.App, m.ID, machine.LogQuery{Cursor: cursor}, emit); err != nil &&
		!fault.Is(err, fault.NotFound) {
		c.PrintError(err)
	}
	if rm && last.State != machine.Destroyed {
		if _, err := cl.Destroy(talk, m.App, m.ID, "", true); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	code := exitOf(last)
	if outOfMemory(last) {
		c.Note("%s used more memory than it has, and was killed; give it more with --memory", cli.Label(last))
	}
	if c.JSON {
		c.JSONLine(c.Out, ended{last.ID, last.Name, last.App, last.State, code})
	}
	return cmp.Or(codeError(last, code), p.Err())
}

// errLetGo is the cause with which an attached run ends that no longer waits for its machine.
var errLetGo = errors.New("nobody waits for its end")

// stopAttached stops the machine of an attached run, whose user typed ^C. The next ^C lets go of it.
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
	if err != nil && talk.Err() == nil && !fault.Is(err, fault.NotFound) { // the wait for its end goes on
		c.Note("%s was not stopped: %v", cli.Label(m), err)
	}
}

// leave ends an attached run whose machine has not ended: it says what the machine does, which with --rm is
// destroyed now.
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

// leaves is how long a run that no longer waits tries to do that.
const leaves = 5 * time.Second

// codeError returns the task's code as an error, nil for 0.
func codeError(m *machine.Machine, code *int) error {
	switch {
	case code == nil:
		return fault.New(fault.Internal, "no_exit_code", "%s is %s, and no exit code is known of it%s", cli.Label(m),
			m.State,
			m.Because())
	case *code == 0:
		return nil
	}
	return cli.TaskCode(*code)
}

// outOfMemory reports whether a machine's newest end was that its memory ran out.
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
