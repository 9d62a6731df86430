package wire

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"

	"github.com/soukhq/souk/runtime"
)

// dialOrder is the first frame of the body. The rest of the body goes to the port of the machine unchanged, and the
// answer's body is the data from the port: HTTP/2 distinguishes a half-close from a broken connection.
type dialOrder struct {
	ref
	Port int `json:"port"`
}

func (s *Server) dial(w http.ResponseWriter, r *http.Request, _ Peer) error {
	in := bufio.NewReader(r.Body)
	o := &out{w: w, control: http.NewResponseController(w)}
	var order dialOrder
	if err := s.readOrder(o.control, in, &order); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	c, err := s.o.Worker.Dial(ctx, order.App, order.Machine, order.Port)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := o.beginStream("application/octet-stream"); err != nil {
		return nil //nolint:nilerr // the caller is gone
	}
	go func() {
		if _, err := io.Copy(c, in); err != nil {
			c.Close() // the caller or the machine is gone
			return
		}
		_ = c.CloseWrite() // fails if the machine has closed already
	}()
	if _, err := io.Copy(sending{o}, c); err != nil {
		panic(http.ErrAbortHandler) // the caller must not take this for the machine's own close
	}
	return nil
}

// sending is a Writer that sends each piece at once.
type sending struct{ to *out }

// Write sends p.
func (s sending) Write(p []byte) (int, error) {
	if err := s.to.writeNow(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Dial connects to a port of a machine, whether or not it belongs to a service. The connection ends with ctx.
func (w *Worker) Dial(ctx context.Context, app, id string, port int) (runtime.Conn, error) {
	raw, err := marshal(dialOrder{ref{app, id}, port})
	if err != nil {
		return nil, err
	}
	var order bytes.Buffer
	if err := writeFrame(&order, frameOrder, raw); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	body, feed := io.Pipe()
	r := w.newRequest(ctx, pathDial, nil)
	r.Body, r.GetBody, r.ContentLength = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&order, body), body}, nil, -1
	res, err := w.sendRequest(ctx, w.currentWires().streams, r)
	if err != nil {
		cancel()
		body.Close()
		return nil, err
	}
	c := &farConn{PipeWriter: feed, body: res.Body, cancel: cancel}
	// the transport ignores ctx while it reads a body
	context.AfterFunc(ctx, func() { body.Close(); _ = c.body.Close() })
	return c, nil
}

// farConn is a connection to a port of a machine of another member. Writes go to the body of a request, reads come from
// the body of its answer.
type farConn struct {
	*io.PipeWriter
	body   io.ReadCloser
	cancel context.CancelFunc
}

// Read reads data from the machine.
func (c *farConn) Read(p []byte) (int, error) { return c.body.Read(p) }

// CloseWrite signals to the machine that no more data comes.
func (c *farConn) CloseWrite() error { return c.PipeWriter.Close() }

// Close ends the connection.
func (c *farConn) Close() error {
	c.cancel()
	return c.PipeWriter.Close()
}
