package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

func serve(t testing.TB, h http.HandlerFunc) *client.Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return client.New(s.Listener.Addr().String(), "secret-token")
}

func TestErrorsDecodeWithKindAndCode(t *testing.T) {
	tests := []struct {
		name string
		code int
		body string
		want fault.Error
	}{
		{"souk's own reason", 422,
			`{"error":"no room","status":"insufficient_capacity","souk":{"kind":"exhausted","code":"no_capacity","scope":"region","resource":"cpu","retry_after":5}}`,
			fault.Error{Kind: fault.Exhausted, Code: "no_capacity", Text: "no room", Scope: fault.ScopeRegion,
				Resource: "cpu", RetryAfter: 5 * time.Second}},
		{"a server that is not souk", 404, `{"error":"machine not found"}`,
			fault.Error{Kind: fault.NotFound, Text: "machine not found"}},
		{"no JSON", 502, `<html>`,
			fault.Error{Kind: fault.Unavailable, Text: "the server answered 502 Bad Gateway without saying why"}},
		{"401", 401, `{"error":"x"}`, fault.Error{Kind: fault.Denied, Text: "x"}},
		{"408", 408, `{"error":"x"}`, fault.Error{Kind: fault.Timeout, Text: "x"}},
		{"409", 409, `{"error":"x"}`, fault.Error{Kind: fault.Conflict, Text: "x"}},
		{"412", 412, `{"error":"x"}`, fault.Error{Kind: fault.Precondition, Text: "x"}},
		{"429", 429, `{"error":"x"}`, fault.Error{Kind: fault.Exhausted, Text: "x"}},
		{"501", 501, `{"error":"x"}`, fault.Error{Kind: fault.Unimplemented, Text: "x"}},
		{"400", 400, `{"error":"x"}`, fault.Error{Kind: fault.Invalid, Text: "x"}},
		{"500", 500, `{"error":"x"}`, fault.Error{Kind: fault.Internal, Text: "x"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.code)
				_, _ = io.WriteString(w, tt.body)
			})
			_, err := c.Machine(t.Context(), "a", "m")
			got := fault.As(err)
			if got == nil || got.Kind != tt.want.Kind || got.Code != tt.want.Code || got.Text != tt.want.Text ||
				got.Scope != tt.want.Scope ||
				got.Resource != tt.want.Resource || got.RetryAfter != tt.want.RetryAfter {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestRequestIsEscapedAndAuthorized(t *testing.T) {
	var got *http.Request
	var body []byte
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		_, _ = io.WriteString(w, `{"id":"m1"}`)
	})
	m, err := c.Launch(t.Context(), "app/../x", &machine.Launch{Name: "n"}, client.LaunchOptions{Key: "k"})
	if err != nil || m.ID != "m1" {
		t.Fatalf("got %v, %v", m, err)
	}
	if got.URL.EscapedPath() != "/v1/apps/app%2F..%2Fx/machines" {
		t.Errorf("an app's name leaves its segment: %s", got.URL.EscapedPath())
	}
	if a := got.Header.Get("Authorization"); a != "Bearer secret-token" {
		t.Errorf("Authorization is %q", a)
	}
	if got.Header.Get("Idempotency-Key") != "k" || got.Header.Get(api.NonceHeader) != "" {
		t.Errorf("headers are %v", got.Header)
	}
	if string(body) != `{"name":"n"}` {
		t.Errorf("body is %s", body)
	}
}

func TestUnreachableServerIsUnavailable(t *testing.T) {
	_, err := client.New("127.0.0.1:1", "t").Apps(t.Context())
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "cannot be reached at http://127.0.0.1:1") {
		t.Errorf("got %v", err)
	}
}

// TestSocketOfAnotherUserNamesItsOwner: the error for a socket that may not be opened names its owner, and does not
// say that no server is there.
func TestSocketOfAnotherUserNamesItsOwner(t *testing.T) {
	_, err := client.WithHTTP("unix:/s", "t", &http.Client{Transport: closed{}}).Apps(t.Context())
	if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "the souk at unix:/s is another user's") {
		t.Errorf("got %v", err)
	}
}

type closed struct{}

func (closed) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.EACCES)}
}

func TestContextDeadlineIsATimeout(t *testing.T) {
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Apps(ctx); !fault.Is(err, fault.Timeout) {
		t.Errorf("got %v", err)
	}
}

func TestLogsStreamLinesUntilTheEnd(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "follow=true&tail=2" {
			t.Errorf("query is %q", r.URL.RawQuery)
		}
		_, _ = io.WriteString(w,
			"{\"cursor\":\"1\",\"stream\":\"stdout\",\"text\":\"a\"}\n\n{\"cursor\":\"2\",\"stream\":\"stderr\",\"text\":\"b\"}\n{\"error\":\"it broke\",\"souk\":{\"kind\":\"notfound\"}}\n")
	})
	var texts []string
	err := c.Logs(t.Context(), "a", "m", machine.LogQuery{Tail: new(2), Follow: true}, func(l machine.LogLine) error {
		texts = append(texts, l.Stream+":"+l.Text)
		return nil
	})
	if strings.Join(texts, " ") != "stdout:a stderr:b" {
		t.Errorf("lines are %v", texts)
	}
	if !fault.Is(err, fault.NotFound) || err.Error() != "it broke" {
		t.Errorf("the error at the stream's end is %v", err)
	}
	stop := errors.New("enough")
	if err := c.Logs(t.Context(), "a", "m", machine.LogQuery{Tail: new(2), Follow: true},
		func(machine.LogLine) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}

func TestExecStreamsInputOutputAndExitCode(t *testing.T) {
	// The server answers while stdin is still open: both directions flow at once.
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		ctl := http.NewResponseController(w)
		if err := ctl.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		buf := make([]byte, 64)
		n, _ := r.Body.Read(buf)
		if string(buf[:n]) != "{\"command\":[\"cat\"]}\n" {
			t.Errorf("the first line is %q", buf[:n])
		}
		_, _ = io.WriteString(w, "{\"stream\":\"stderr\",\"data\":\"ZQ==\"}\n")
		_ = ctl.Flush()
		rest, _ := io.ReadAll(r.Body)
		if string(rest) != "input" {
			t.Errorf("stdin is %q", rest)
		}
		_, _ = io.WriteString(w, "{\"stream\":\"stdout\",\"data\":\"b3V0\"}\n{\"exit_code\":7}\n")
	})
	pr, pw := io.Pipe()
	var out bytes.Buffer
	errw := writerFunc(func(p []byte) (int, error) { // stdin comes only after the first answer
		go func() {
			_, _ = io.WriteString(pw, "input")
			pw.Close()
		}()
		return len(p), nil
	})
	code, err := c.Exec(t.Context(), "a", "m", client.Command{Argv: []string{"cat"}, Stdin: pr, Stdout: &out,
		Stderr: errw})
	if err != nil || code != 7 || out.String() != "out" {
		t.Errorf("got code %d, out %q, err %v", code, out.String(), err)
	}
}

func TestExecWithoutExitCodeIsAnError(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "{\"stream\":\"stdout\",\"data\":\"b3V0\"}\n")
	})
	if _, err := c.Exec(t.Context(), "a", "m", client.Command{Argv: []string{"x"}}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("an answer without an exit code gave %v", err)
	}
}

func TestAllMachinesFollowsEveryPage(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/apps":
			_, _ = io.WriteString(w,
				`{"apps":[{"name":"x","organization":{"slug":"o1"}},{"name":"y","organization":{"slug":"o1"}},{"name":"z","organization":{"slug":"o2"}}]}`)
		case r.URL.Path == "/v1/orgs/o1/machines" && r.URL.Query().Get("cursor") == "":
			_, _ = io.WriteString(w, `{"machines":[{"id":"b","created_at":"2026-01-02T00:00:00Z"}],"next_cursor":"b"}`)
		case r.URL.Path == "/v1/orgs/o1/machines":
			_, _ = io.WriteString(w, `{"machines":[{"id":"c","created_at":"2026-01-01T00:00:00Z"}]}`)
		default:
			_, _ = io.WriteString(w, `{"machines":[]}`)
		}
	})
	ms, err := c.AllMachines(t.Context(), client.ListOptions{})
	if err != nil || len(ms) != 2 || ms[0].ID != "c" || ms[1].ID != "b" {
		t.Errorf("got %v, %v", ms, err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestAppMachinesFollowsEveryPage: an app's list is asked for in pages, and followed to the last; what was asked for is asked
// of every page.
func TestAppMachinesFollowsEveryPage(t *testing.T) {
	pages := map[string]struct{ body, next string }{
		"":    {`[{"id":"c","created_at":"2026-01-03T00:00:00Z"},{"id":"a","created_at":"2026-01-01T00:00:00Z"}]`, "c/1"},
		"c/1": {`[]`, "c 2"}, // none of this page is there any more, and the list goes on
		"c 2": {`[{"id":"b","created_at":"2026-01-02T00:00:00Z"}]`, ""},
	}
	var asked []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.URL.Path != "/v1/apps/x/machines" || q.Get("limit") != "1000" || q.Get("region") != "fra" ||
			q.Get("include_deleted") != "true" {
			t.Errorf("asked for %s", r.URL)
		}
		asked = append(asked, q.Get("cursor"))
		page, known := pages[q.Get("cursor")]
		if !known {
			t.Errorf("a cursor that was not given: %q", q.Get("cursor"))
		}
		if page.next != "" {
			w.Header().Set("Souk-Next-Cursor", page.next)
		}
		_, _ = io.WriteString(w, page.body)
	})
	ms, err := c.Machines(t.Context(), "x", client.ListOptions{Destroyed: true, Region: "fra"})
	if err != nil || len(ms) != 3 || ms[0].ID != "a" || ms[1].ID != "b" || ms[2].ID != "c" {
		t.Errorf("got %v, %v", ms, err)
	}
	if !slices.Equal(asked, []string{"", "c/1", "c 2"}) {
		t.Errorf("asked for %q", asked)
	}
}

// TestFailedPageFailsTheWholeList: where a later page fails, what came before is not taken for all.
func TestFailedPageFailsTheWholeList(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("cursor") != "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Souk-Next-Cursor", "a")
		_, _ = io.WriteString(w, `[{"id":"a"}]`)
	})
	if ms, err := c.Machines(t.Context(), "x", client.ListOptions{}); !fault.Is(err, fault.Unavailable) || ms != nil {
		t.Errorf("got %v, %v", ms, err)
	}
}

// TestCutStreamIsRetryable: a stream that ends in the middle of a line has broken off, and may be asked for again.
func TestCutStreamIsRetryable(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "{\"cursor\":\"1\",\"stream\":\"stdout\",\"text\":\"a\"}\n{\"cursor\":\"2\",\"str")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	n := 0
	err := c.Logs(t.Context(), "a", "m", machine.LogQuery{}, func(machine.LogLine) error { n++; return nil })
	if !fault.Is(err, fault.Unavailable) || n != 1 {
		t.Errorf("%d lines, %v", n, err)
	}
}
