package client

import (
	"bytes"
	"context"
	"encoding/json"
	"io"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
)

// Command is what Exec runs. Stdin may be nil; Stdout and Stderr may be nil to discard.
type Command struct {
	Argv   []string
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// Exec runs a command beside a machine's main process and returns its exit code. Output is written as it
// comes. Ending ctx ends the command. ref is an id or a name.
func (c *Client) Exec(ctx context.Context, app, ref string, r Command) (int, error) {
	head, err := json.Marshal(api.ExecCommand{Command: r.Argv})
	if err != nil {
		return 0, fault.Wrap(err, fault.Invalid, "request", "the command cannot be written as JSON")
	}
	var body io.Reader = bytes.NewReader(append(head, '\n'))
	if r.Stdin != nil {
		// No length: the transport sends chunks, each as soon as it is read, while the answer comes.
		body = io.MultiReader(body, r.Stdin)
	}
	resp, err := c.send(ctx, newCall(api.StreamExec, app, ref).withBody(body))
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
		err = fault.New(fault.Unavailable, "broken_off",
			"the connection ended before the command did, so its exit code is not known")
	}
	return code, err
}

func writeTo(w io.Writer, p []byte) error {
	if w == nil {
		return nil
	}
	_, err := w.Write(p)
	return err
}
