package wire

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/pace"
	"github.com/soukhq/souk/mesh/pki"
)

// line is one line of a stream (NDJSON): an item, or the end, with or without a problem. A stream without an end line
// was cut off.
type line[T any] struct {
	Item    *T       `json:"item,omitempty"`
	End     bool     `json:"end,omitempty"`
	Problem *problem `json:"problem,omitempty"`
}

// maxLine bounds one item, in bytes.
const maxLine = MaxBody

// maxItems bounds a list collected from a stream.
const maxItems = 1 << 18

// streamVerb is a verb of the worker that answers with a stream. The headers are sent before the worker is called, so
// that the caller knows that the stream is open; items are sent as pace.Writer decides. A caller that reads slowly
// delays only its own stream.
func streamVerb[In, T any](f func(ctx context.Context, k Served, in In, emit func(T) error) error) route {
	return streamOf(func(ctx context.Context, s *Server, in In, emit func(T) error) error {
		return f(ctx, s.o.Worker, in, emit)
	})
}

// streamOf is streamVerb for a verb that is not the worker's.
func streamOf[In, T any](f func(ctx context.Context, s *Server, in In, emit func(T) error) error) route {
	return route{role: pki.Gateway, class: stream, serve: func(s *Server, w http.ResponseWriter, r *http.Request,
		_ Peer) error {
		var in In
		if err := s.readArgs(w, r, &in); err != nil {
			return err
		}
		o := &out{w: w, control: http.NewResponseController(w)}
		writeLines(o, func(emit func(T) error) error { return f(r.Context(), s, in, emit) })
		return nil
	}}
}

// listVerb is a verb of the worker that answers with a list of any length.
func listVerb[In, T any](f func(ctx context.Context, k Served, in In) ([]T, error)) route {
	return streamVerb(func(ctx context.Context, k Served, in In, emit func(T) error) error {
		list, err := f(ctx, k, in)
		for _, v := range list {
			if err == nil {
				err = emit(v)
			}
		}
		return err
	})
}

// writeLines answers with the lines that f emits, and an end line.
func writeLines[T any](o *out, f func(emit func(T) error) error) {
	if o.beginStream("application/x-ndjson") != nil {
		return // the caller is gone
	}
	soon := pace.New(o.w, o.control.Flush)
	defer soon.Close() // a Write has returned the error already
	err := f(func(v T) error {
		raw, err := marshal(line[T]{Item: &v})
		if err == nil {
			_, err = soon.Write(append(raw, '\n'))
			err = writeError(err)
		}
		return err
	})
	end := line[T]{End: true}
	if err != nil {
		p := problemOf(err)
		end.Problem = &p
	}
	if raw, merr := marshal(end); merr == nil {
		_, _ = soon.Write(append(raw, '\n')) // the caller may be gone
	}
}

// out is an answer that is written piece by piece.
type out struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (o *out) beginStream(kind string) error {
	o.w.Header().Set("Content-Type", kind)
	o.w.WriteHeader(http.StatusOK)
	return o.control.Flush()
}

// writeNow writes and flushes.
func (o *out) writeNow(raw []byte) error {
	_, err := o.w.Write(raw)
	if err == nil {
		err = o.control.Flush()
	}
	return writeError(err)
}

func writeError(err error) error {
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, fault.CodeCancelled, "the caller went away before the answer")
	}
	return nil
}

// followStream opens a stream and calls f with each item, until it ends, f returns an error, or ctx ends.
func followStream[T any](ctx context.Context, l *Link, path string, in any, f func(T) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, err := l.openStream(ctx, path, in)
	if err != nil {
		return err
	}
	defer body.Close()
	return readLines(ctx, l, body, f)
}

// readLines calls f with each item of a stream of lines.
func readLines[T any](ctx context.Context, l *Link, body io.Reader, f func(T) error) error {
	limited := &io.LimitedReader{R: body}
	d := json.NewDecoder(limited)
	for {
		limited.N = maxLine
		var got line[T]
		if err := d.Decode(&got); err != nil {
			return l.lostError(ctx, err)
		}
		switch {
		case got.Problem != nil:
			return got.Problem.asError()
		case got.End:
			return nil
		case got.Item != nil:
			if err := f(*got.Item); err != nil {
				return err
			}
		}
	}
}

// gatherStream collects the items of a stream in a list.
func gatherStream[T any](ctx context.Context, l *Link, path string, in any) ([]T, error) {
	list := []T{}
	err := followStream(ctx, l, path, in, func(v T) error {
		if list = append(list, v); len(list) > maxItems {
			return fault.New(fault.Unavailable, fault.CodeTooLarge, "%s lists more than %d items", l.memberName(),
				maxItems)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}
