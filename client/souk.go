package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/url"
	"strconv"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Version asks the server for its version.
func (c *Client) Version(ctx context.Context) (api.ServerInfo, error) {
	var v api.ServerInfo
	err := c.doCall(ctx, newCall(api.GetVersion), &v)
	return v, err
}

// Workers asks every worker for its record.
func (c *Client) Workers(ctx context.Context) (api.WorkerList, error) {
	var w api.WorkerList
	err := c.doCall(ctx, newCall(api.ListWorkers), &w)
	return w, err
}

// Doctor asks every worker to examine its host.
func (c *Client) Doctor(ctx context.Context) ([]api.Examination, error) {
	var a api.Examinations
	err := c.doCall(ctx, newCall(api.ExamineWorkers), &a)
	return a.Workers, err
}

// Events calls f with every event of an app ("" is all) from now on, until ctx ends or f returns an error. ready, if
// not nil, is called once the stream has begun, so that no later event is missed.
func (c *Client) Events(ctx context.Context, app string, ready func(), f func(machine.EventOf) error) error {
	q := url.Values{}
	if app != "" {
		q.Set("app", app)
	}
	resp, err := c.sendCall(ctx, newCall(api.StreamEvents).withQuery(q))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if ready != nil {
		ready()
	}
	return eachLine(ctx, resp.Body, f)
}

// Logs calls f with each line of a machine's output, in order. ref is an id or a name.
func (c *Client) Logs(ctx context.Context, app, ref string, q machine.LogQuery, f func(machine.LogLine) error) error {
	v := url.Values{}
	if q.Tail != nil {
		v.Set("tail", strconv.Itoa(*q.Tail))
	}
	if q.Follow {
		v.Set("follow", "true")
	}
	if q.Hold {
		v.Set("hold", "true")
	}
	if q.Cursor != "" {
		v.Set("cursor", q.Cursor)
	}
	resp, err := c.sendCall(ctx, newCall(api.StreamLogs, app, ref).withQuery(v))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return eachLine(ctx, resp.Body, f)
}

// maxLine bounds one line of a stream: a log line is at most 16 KiB before JSON's escapes, data of exec the same.
const maxLine = 1 << 20

// wholeLines is bufio.ScanLines, except that an unterminated last line is an error.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	advance, token, err = bufio.ScanLines(data, atEOF)
	if atEOF && advance > 0 && data[advance-1] != '\n' {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return advance, token, err
}

// eachLine decodes NDJSON. A line that is an error ends the stream with it.
func eachLine[T any](ctx context.Context, r io.Reader, f func(T) error) error {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 64<<10), maxLine)
	sc.Split(wholeLines)
	for sc.Scan() {
		if len(sc.Bytes()) == 0 {
			continue // a server may send empty lines to keep a quiet stream alive
		}
		if bytes.HasPrefix(sc.Bytes(), []byte(`{"error":`)) {
			var a ErrorAnswer
			if err := json.Unmarshal(sc.Bytes(), &a); err == nil && a.Error != "" {
				return a.asFault()
			}
		}
		var v T
		if err := json.Unmarshal(sc.Bytes(), &v); err != nil {
			return fault.Wrap(err, fault.Internal, codeAnswer, "a line of the stream is not the JSON that was expected")
		}
		if err := f(v); err != nil {
			return err
		}
	}
	if err := sc.Err(); err != nil {
		return brokenError(ctx, err)
	}
	return nil
}

// CopyOut writes a tar stream of path in the machine to w.
func (c *Client) CopyOut(ctx context.Context, app, ref, path string, w io.Writer) error {
	k := newCall(api.CopyOut, app, ref).withQuery(url.Values{"path": {path}})
	resp, err := c.sendCall(ctx, k)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return brokenError(ctx, err)
	}
	return nil
}

// CopyIn unpacks the tar stream r at path in the machine.
func (c *Client) CopyIn(ctx context.Context, app, ref, path string, r io.Reader) error {
	k := newCall(api.CopyIn, app, ref).withQuery(url.Values{"path": {path}}).withBody(r).
		withHeader("Content-Type", "application/x-tar")
	return c.doCall(ctx, k, nil)
}
