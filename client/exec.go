package client

import (
	"bytes"
	"context"
	"encoding/json"
	"io"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Command is what Exec runs. Stdin may be nil; Stdout and Stderr may be nil to discard.
type Command struct {
	Argv   []string
	User   string // USER[:GROUP] of the container, names or numbers; "": its own
	Dir    string // where it begins, absolute; "": where the machine's program does
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer

	// Terminal gives the command one; all that it writes goes to Stdout then. nil: none. Resize gives the new sizes of
	// its window; nil: it does not change.
	Terminal *machine.Terminal
	Resize   <-chan machine.WindowSize

	// Attach, in the place of Argv, shows the terminal of the machine's own program, whose exit code it then is. Ending
	// ctx leaves that running. With Backlog what was written last is shown first.
	Attach  bool
	Backlog bool
}

// Exec runs a command beside a machine's main process and returns its exit code. Output is written as it
// comes. Ending ctx ends the command. ref is an id or a name.
func (c *Client) Exec(ctx context.Context, app, ref string, r Command) (int, error) {
	head, err := encodeJSON(api.ExecCommand{Command: r.Argv, User: r.User, Workdir: r.Dir, Terminal: r.Terminal,
		Attach: r.Attach, Backlog: r.Backlog})
	if err != nil {
		return 0, err
	}
	var body io.Reader = bytes.NewReader(append(head, '\n'))
	if r.Terminal != nil {
		lines, feed := io.Pipe()
		defer lines.Close() // ends who feeds it
		sitting, leave := context.WithCancel(ctx)
		defer leave()
		go sendTerminal(sitting, feed, &r)
		body = io.MultiReader(body, lines)
	} else if r.Stdin != nil {
		// No length: the transport sends chunks, each as soon as it is read, while the answer comes.
		body = io.MultiReader(body, r.Stdin)
	}
	resp, err := c.sendCall(ctx, newCall(api.StreamExec, app, ref).withBody(body))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	code := -1
	err = eachLine(ctx, resp.Body, func(l api.ExecFrame) error {
		switch {
		case l.ExitCode != nil:
			code = *l.ExitCode
		case l.Stream == "stderr":
			return writeTo(r.Stderr, l.Data)
		default:
			return writeTo(r.Stdout, l.Data)
		}
		return nil
	})
	if err == nil && code < 0 {
		err = fault.New(fault.Unavailable, CodeBrokenOff,
			"the connection ended before the command did, so its exit code is not known")
	}
	return code, err
}

// sendTerminal sends what happens at a terminal, until ctx ends or nobody reads it. The end of what is typed is not the
// end of it.
func sendTerminal(ctx context.Context, feed *io.PipeWriter, r *Command) {
	if r.Stdin != nil {
		go func() {
			lines := json.NewEncoder(feed) // each is one write
			buf := make([]byte, 4096)
			for {
				n, err := r.Stdin.Read(buf)
				if n > 0 && lines.Encode(api.ExecInput{Data: buf[:n]}) != nil || err != nil {
					return
				}
			}
		}()
	}
	lines := json.NewEncoder(feed)
	for {
		select {
		case size, more := <-r.Resize:
			if !more || lines.Encode(api.ExecInput{Size: &size}) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func writeTo(w io.Writer, p []byte) error {
	if w == nil {
		return nil
	}
	_, err := w.Write(p)
	return err
}
