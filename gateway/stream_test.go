package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// listen serves the shop on loopback: streams need a connection.
func (s *shop) listen() string {
	s.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	server := s.gateway.Server()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // it ends with ErrServerClosed
	}()
	s.t.Cleanup(func() { _ = server.Close(); <-done })
	return "http://" + l.Addr().String()
}

func (s *shop) dial(method, url string, body io.Reader) *http.Response {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	s.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+testToken)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func next(t *testing.T, r *bufio.Reader, v any) {
	t.Helper()
	line, err := r.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(line, v); err != nil {
		t.Fatalf("%v in %s", err, line)
	}
}

// TestExecStreamFlowsBothWays talks with a command that answers each line: an answer must come before the next line
// goes.
func TestExecStreamFlowsBothWays(t *testing.T) {
	s := newShop(t).open()
	m := s.launch(hostLaunch)
	s.workers[0].exec = func(r runtime.ExecRequest) (int, error) {
		in := bufio.NewScanner(r.Stdin)
		for in.Scan() {
			fmt.Fprintf(r.Stdout, "heard %s\n", in.Text())
		}
		fmt.Fprint(r.Stderr, "bye")
		return 3, in.Err()
	}
	pr, pw := io.Pipe()
	go func() { _, _ = io.WriteString(pw, `{"command":["cat"]}`+"\none\n") }() // an error shows as a missing answer
	resp := s.dial("POST", s.listen()+"/v1/souk/apps/a/machines/"+m.Name+"/exec", pr)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != api.NDJSON {
		t.Fatal(resp.Status, resp.Header)
	}
	out := bufio.NewReader(resp.Body)
	for _, say := range []string{"two", "three", ""} {
		var f api.ExecFrame
		if next(t, out, &f); f.Stream != "stdout" || !strings.HasPrefix(string(f.Data), "heard ") {
			t.Fatalf("got %+v", f)
		}
		if say != "" {
			if _, err := io.WriteString(pw, say+"\n"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := pw.Close(); err != nil {
		t.Fatal(err)
	}
	var last, end api.ExecFrame
	next(t, out, &last)
	next(t, out, &end)
	if last.Stream != "stderr" || string(last.Data) != "bye" || end.ExitCode == nil || *end.ExitCode != 3 {
		t.Errorf("the end is %+v, %+v", last, end)
	}
}

// TestExecTerminalPassesInputAndResizes: what is typed and the window's sizes come as lines, and a client that goes ends the command.
func TestExecTerminalPassesInputAndResizes(t *testing.T) {
	s := newShop(t).open()
	m := s.launch(hostLaunch)
	at := machine.Terminal{Size: machine.WindowSize{Rows: 24, Cols: 80}, Term: "vt100"}
	gone := make(chan struct{})
	s.workers[0].exec = func(r runtime.ExecRequest) (int, error) {
		if r.Terminal == nil || r.Terminal.Terminal != at {
			return 0, fmt.Errorf("the terminal is %+v", r.Terminal)
		}
		size := make(chan machine.WindowSize, 1) // it may come before what was typed before it
		go func() { size <- <-r.Terminal.Resize }()
		buf := make([]byte, 3)
		if _, err := io.ReadFull(r.Stdin, buf); err != nil {
			return 0, err
		}
		fmt.Fprintf(r.Stdout, "%s %+v", buf, <-size)
		_, err := io.ReadFull(r.Stdin, buf)
		if err == nil {
			return 3, nil
		}
		close(gone)
		return 0, err
	}
	begin := func() (*io.PipeWriter, *http.Response, *bufio.Reader) {
		pr, pw := io.Pipe()
		go func() { // an error shows as a missing answer
			_, _ = io.WriteString(pw, `{"command":["sh"],"terminal":{"size":{"rows":24,"cols":80},"term":"vt100"}}`+"\n"+
				`{"data":"b25l"}`+"\n"+`{"size":{"rows":1,"cols":2}}`+"\n")
		}()
		resp := s.dial("POST", s.listen()+"/v1/souk/apps/a/machines/"+m.ID+"/exec", pr)
		out := bufio.NewReader(resp.Body)
		var f api.ExecFrame
		if next(t, out, &f); string(f.Data) != "one {Rows:1 Cols:2}" || f.Stream != "stdout" {
			t.Fatalf("got %+v", f)
		}
		return pw, resp, out
	}
	pw, _, out := begin()
	defer pw.Close()
	if _, err := io.WriteString(pw, "\n"+`{"data":"dHdv"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	var end api.ExecFrame
	if next(t, out, &end); end.ExitCode == nil || *end.ExitCode != 3 {
		t.Errorf("the end is %+v", end)
	}
	pw2, resp, _ := begin()
	_ = pw2.CloseWithError(errors.New("gone"))
	_ = resp.Body.Close()
	<-gone
}

// TestExecEndsThoughStdinIsOpen: a command that ends does not wait for a terminal that types nothing.
func TestExecEndsThoughStdinIsOpen(t *testing.T) {
	s := newShop(t).open()
	m := s.launch(hostLaunch)
	s.workers[0].exec = func(runtime.ExecRequest) (int, error) { return 0, nil }
	pr, pw := io.Pipe()
	defer pw.Close()
	go func() { _, _ = io.WriteString(pw, `{"command":["true"]}`+"\n") }()
	resp := s.dial("POST", s.listen()+"/v1/souk/apps/a/machines/"+m.ID+"/exec", pr)
	raw, err := io.ReadAll(resp.Body)
	if err != nil || string(raw) != "{\"exit_code\":0}\n" {
		t.Errorf("got %q %v", raw, err)
	}
}

func TestBrokenExecStreamReportsItsError(t *testing.T) {
	s := newShop(t).open()
	m := s.launch(hostLaunch)
	s.workers[0].exec = func(r runtime.ExecRequest) (int, error) {
		fmt.Fprint(r.Stdout, "half")
		return 0, fault.New(fault.Timeout, "deadline", "the command was ended")
	}
	resp := s.dial("POST", s.listen()+"/v1/souk/apps/a/machines/"+m.ID+"/exec", strings.NewReader(`{"command":["x"]}`))
	out := bufio.NewReader(resp.Body)
	var f api.ExecFrame
	var e api.ErrorBody
	next(t, out, &f)
	next(t, out, &e)
	if string(f.Data) != "half" || e.Souk.Kind != fault.Timeout || e.Error == "" {
		t.Errorf("got %+v, %+v", f, e)
	}
}

func TestExecOutputIsBounded(t *testing.T) {
	s := newShop(t).open()
	m := s.launch(hostLaunch)
	s.workers[0].exec = func(r runtime.ExecRequest) (int, error) {
		for range 40 {
			if _, err := r.Stdout.Write(make([]byte, 64<<10)); err != nil {
				return 0, err
			}
		}
		return 0, nil
	}
	var out api.ExecResult
	s.want(200, "POST", "/v1/apps/a/machines/"+m.ID+"/exec", `{"command":["yes"]}`).into(t, &out)
	if len(out.Stdout) != MaxExecOutput || out.Truncated == "" {
		t.Errorf("%d bytes, truncated %q", len(out.Stdout), out.Truncated)
	}
}

func TestLogsStreamTailAndFollow(t *testing.T) {
	s := newShop(t).open()
	m := s.launch(hostLaunch)
	url := "/v1/souk/apps/a/machines/" + m.ID + "/logs"
	if r := s.want(200, "GET", url, nil); r.raw != "" {
		t.Errorf("no output is told as %q", r.raw)
	}
	s.workers[0].lines = []machine.LogLine{{Cursor: "1", Stream: "stdout", Text: "one"},
		{Cursor: "2", Stream: "stderr", Text: "two"}}
	if r := s.want(200, "GET", url+"?tail=5", nil); strings.Count(r.raw, "\n") != 2 ||
		r.header.Get("Content-Type") != api.NDJSON {
		t.Errorf("the logs are %q", r.raw)
	}
	if r := s.want(200, "GET", url+"?tail=0", nil); r.raw != "" {
		t.Errorf("the last 0 lines are %q, want none", r.raw)
	}
	s.want(400, "GET", url+"?tail=-1", nil)
	resp := s.dial("GET", s.listen()+url+"?follow=true", nil)
	out := bufio.NewReader(resp.Body)
	var l machine.LogLine
	next(t, out, &l)
	if next(t, out, &l); l.Text != "two" {
		t.Errorf("got %+v", l)
	}
}

// TestLogsOfADestroyedMachineStayReadable: the kept output of a destroyed machine is read like that of a living one,
// but not through a newer app of the same name.
func TestLogsOfADestroyedMachineStayReadable(t *testing.T) {
	s := newShop(t).open()
	m := s.launch(hostLaunch)
	s.workers[0].lines = []machine.LogLine{{Cursor: "1", Stream: "stdout", Text: "its last words"}}
	url := "/v1/souk/apps/a/machines/" + m.ID + "/logs"
	s.want(200, "DELETE", "/v1/apps/a/machines/"+m.ID+"?force=true", nil)
	if r := s.want(200, "GET", url+"?tail=10", nil); !strings.Contains(r.raw, "its last words") {
		t.Errorf("the logs are %q", r.raw)
	}
	s.want(404, "GET", strings.Replace(url, "/a/", "/none/", 1), nil)
	s.want(202, "DELETE", "/v1/apps/a", nil)
	s.want(404, "GET", url, nil)
	s.open()
	s.want(404, "GET", url, nil)
}

func TestEventStreamMergesAllWorkers(t *testing.T) {
	w1, w2 := newMemWorker("w1", "iad", room), newMemWorker("w2", "fra", room)
	s := newShop(t, w1, w2).open()
	resp := s.dial("GET", s.listen()+"/v1/souk/events?app=a", nil)
	out := bufio.NewReader(resp.Body)
	seen := map[string]bool{}
	for _, region := range []string{"iad", "fra"} {
		m := s.launch(`{"region":"` + region + `","config":{"image":"demo:1"}}`)
		for !seen[m.ID] {
			var e machine.EventOf
			next(t, out, &e)
			seen[e.Machine] = true
			if e.App != "a" || e.Type == "" {
				t.Errorf("the event is %+v", e)
			}
		}
	}
}

func TestShellWordsSplitsQuotedWords(t *testing.T) {
	for line, want := range map[string]string{
		``: `[]`, `  `: `[]`, `ls -l`: `["ls" "-l"]`, `a  b`: `["a" "b"]`, `echo 'a b' "c d"`: `["echo" "a b" "c d"]`,
		`a\ b`: `["a b"]`, `'it'"'"'s'`: `["it's"]`, `"a\"b"`: `["a\"b"]`, `"a\nb"`: `["a\\nb"]`, `''`: `[""]`,
		`a''b`: `["ab"]`,
		`'\'`:  `["\\"]`, `$HOME *`: `["$HOME" "*"]`, "tab\tnew\nline": `["tab" "new" "line"]`,
	} {
		got, err := shellWords(line)
		if err != nil || fmt.Sprintf("%q", got) != want {
			t.Errorf("%q: %q %v, want %s", line, got, err, want)
		}
	}
	for _, line := range []string{`'a`, `"a`, `a\`} {
		if got, err := shellWords(line); err == nil {
			t.Errorf("%q: %q", line, got)
		}
	}
}
