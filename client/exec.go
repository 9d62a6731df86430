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
	User   string // USER[:GROUP] of the container, names or numbers; "": the container's default
	Dir    string // working directory, absolute; "": that of the machine's program
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer

	// Terminal gives the command a terminal; all of its output then goes to Stdout. nil: no terminal. Resize sends new
	// window sizes; nil: the size does not change.
	Terminal *machine.Terminal
	Resize   <-chan machine.WindowSize

	// Attach, instead of Argv, attaches to the terminal of the machine's own program; Exec then returns that program's
	// exit code. Ending ctx leaves the program running. Backlog first shows its latest output.
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
		defer lines.Close() // ends the goroutine that writes to it
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

// sendTerminal sends a terminal's input and window sizes, until ctx ends or the reader is gone. It goes on after the
// end of the input.
func sendTerminal(ctx context.Context, feed *io.PipeWriter, r *Command) {
	if r.Stdin != nil {
		go func() {
			lines := json.NewEncoder(feed) // each event is one write
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
