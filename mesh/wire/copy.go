package wire

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"

	"github.com/soukhq/souk/fault"
)

// copyOut streams a tar.
func (s *Server) copyOut(w http.ResponseWriter, r *http.Request, _ Peer) error {
	var in pathArgs
	if err := s.readArgs(w, r, &in); err != nil {
		return err
	}
	return sendBytes(w, func(to io.Writer) error {
		return s.o.Worker.CopyOut(r.Context(), in.App, in.Machine, in.Path, to)
	})
}

// sendBytes answers with what f writes. The result follows in a trailer: a stream that just stops would look complete.
func sendBytes(w http.ResponseWriter, f func(io.Writer) error) error {
	b := &begun{w: w}
	err := f(b)
	if err != nil && !b.begun {
		return err
	}
	end := "ok"
	if err != nil {
		raw, merr := marshal(problemOf(err))
		if end = string(raw); merr != nil {
			end = ""
		}
	}
	w.Header().Set(http.TrailerPrefix+endTrailer, end)
	return nil
}

// begun records whether anything was written.
type begun struct {
	w     http.ResponseWriter
	begun bool
}

// Write sends the headers before the first byte.
func (b *begun) Write(p []byte) (int, error) {
	if !b.begun {
		b.begun = true
		b.w.Header().Set("Content-Type", "application/x-tar")
	}
	return b.w.Write(p)
}

func (l *Link) copyOut(ctx context.Context, in pathArgs, to io.Writer) error {
	return l.receiveBytes(ctx, pathCopyOut, in, to)
}

// receiveBytes makes a call that is answered by sendBytes, and writes the answer to to.
func (l *Link) receiveBytes(ctx context.Context, path string, in any, to io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	raw, err := marshal(in)
	if err != nil {
		return err
	}
	res, err := l.sendRequest(ctx, l.currentWires().streams, l.newRequest(ctx, path, raw))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	from := &failing{r: res.Body}
	if _, err := io.Copy(to, from); err != nil {
		if from.err != nil {
			return l.lostError(ctx, from.err)
		}
		return err // an error of the caller's writer
	}
	switch end := res.Trailer.Get(endTrailer); end {
	case "ok":
		return nil
	default:
		var p problem
		if err := json.Unmarshal([]byte(end), &p); err != nil {
			return fault.New(fault.Unavailable, fault.CodeLost, "the copy from %s broke off", l.memberName())
		}
		return p.asError()
	}
}

// failing remembers an error of reading, as opposed to writing.
type failing struct {
	r   io.Reader
	err error
}

// Read reads from r.
func (f *failing) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // io.Reader returns it unwrapped
		f.err = err
	}
	return n, err
}

// copyIn reads a tar from the body; the query names its destination.
func (s *Server) copyIn(w http.ResponseWriter, r *http.Request, _ Peer) error {
	q := r.URL.Query()
	in := pathArgs{ref{q.Get("app"), q.Get("machine")}, q.Get("path")}
	if err := in.check(); err != nil {
		return err
	}
	if err := s.o.Worker.CopyIn(r.Context(), in.App, in.Machine, in.Path, r.Body); err != nil {
		return err
	}
	return s.answerJSON(w, none{})
}

// copyIn sends a tar. If from blocks when the worker has answered already, the goroutine reading it stays until from
// returns, as in exec; its data is then discarded.
func (l *Link) copyIn(ctx context.Context, in pathArgs, from io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, feed := io.Pipe() // body.Close ends a blocked Read, which from may not support
	defer body.Close()
	source := &failing{r: from}
	broke := make(chan error, 1)
	go func() {
		_, err := io.Copy(feed, source)
		if source.err != nil {
			broke <- source.err
		}
		feed.CloseWithError(err)
	}()
	r := l.newRequest(ctx, pathCopyIn, nil)
	r.URL.RawQuery = url.Values{"app": {in.App}, "machine": {in.Machine}, "path": {in.Path}}.Encode()
	r.Body, r.GetBody, r.ContentLength = body, nil, -1
	_, err := l.rawAnswer(ctx, l.currentWires().streams, r)
	select {
	case cause := <-broke:
		return cause // the caller's own reader failed, so the tar was incomplete
	default:
		return err
	}
}
