package runtimetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

func testExec(h *harness) {
	h.ok(h.rt.Prepare(h.ctx(), spec("m", 0)))
	_, err := h.rt.Exec(h.ctx(), "m", runtime.ExecRequest{Argv: []string{"true"}})
	h.want(err, fault.Precondition)
	h.start(spec("m", 1, "sleep", "1000"))
	var out, errs bytes.Buffer
	code, err := h.rt.Exec(h.ctx(), "m", runtime.ExecRequest{
		Argv: []string{"sh", "-c", "echo one; echo two >&2; exit 5"}, Stdout: &out, Stderr: &errs,
	})
	h.ok(err)
	if code != 5 || out.String() != "one\n" || errs.String() != "two\n" {
		h.Errorf("code %d, stdout %q, stderr %q", code, &out, &errs)
	}
	out.Reset()
	code, err = h.rt.Exec(h.ctx(), "m",
		runtime.ExecRequest{Argv: []string{"cat"}, Stdin: strings.NewReader("from stdin"), Stdout: &out})
	h.ok(err)
	if code != 0 || out.String() != "from stdin" {
		h.Errorf("code %d, stdout %q", code, &out)
	}
	// stdin is at its end, output is discarded
	code, err = h.rt.Exec(h.ctx(), "m", runtime.ExecRequest{Argv: []string{"cat"}})
	h.ok(err)
	if code != 0 {
		h.Errorf("code %d", code)
	}
	_, err = h.rt.Exec(h.ctx(), "m", runtime.ExecRequest{Argv: []string{"/no/such/program"}})
	h.want(err, fault.Precondition, fault.Invalid)
	_, err = h.rt.Exec(h.ctx(), "m", runtime.ExecRequest{})
	h.want(err, fault.Invalid)
	h.noExit()
	h.reopen()
	code, err = h.rt.Exec(h.ctx(), "m", runtime.ExecRequest{Argv: []string{"false"}})
	h.ok(err)
	if code != 1 {
		h.Errorf("after a restart: code %d", code)
	}
}

func testExecTimeout(h *harness) {
	h.start(spec("m", 1, "sleep", "1000"))
	ctx, cancel := context.WithTimeout(h.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := h.rt.Exec(ctx, "m", runtime.ExecRequest{Argv: []string{"sleep", "1000"}, Stdout: &bytes.Buffer{}})
	h.want(err, fault.Timeout)
	if st, _ := h.status("m"); !st.Running {
		h.Errorf("status %+v", st)
	}
}

func testProcesses(h *harness) {
	h.ok(h.rt.Prepare(h.ctx(), spec("m", 0)))
	ps, err := h.rt.Processes(h.ctx(), "m")
	h.ok(err)
	if len(ps) != 0 {
		h.Errorf("nothing runs, but there are %+v", ps)
	}
	st := h.start(spec("m", 1, "sleep", "1000"))
	ps = h.begun("m")
	if h.Sandbox {
		if len(ps) != h.processes(1) || ps[0].PID != 1 || !strings.Contains(ps[len(ps)-1].Command, "sleep") {
			h.Errorf("processes %+v, want sleep", ps)
		}
		return // a sandbox is counted as a whole
	}
	if len(ps) != h.processes(1) || int(ps[0].PID) != st.PID || !strings.Contains(ps[0].Command, "sleep") ||
		ps[0].Directory == "" {
		h.Errorf("processes %+v, want sleep as %d", ps, st.PID)
	}
	if m, ok := h.rt.(runtime.Meter); ok {
		u, err := m.Usage(h.ctx(), "m")
		h.ok(err)
		if u.Processes != h.processes(1) {
			h.Errorf("usage %+v, want 1 process", u)
		}
	}
}

func testLogs(h *harness) {
	h.ok(h.rt.Prepare(h.ctx(), spec("m", 0)))
	if got := h.texts("m", machine.LogQuery{}); len(got) != 0 {
		h.Errorf("log %q before the start", got)
	}
	h.start(sh("m", 1, "echo one; echo two; echo three; exit 0"))
	h.exitOf("m", 1) // all output is in the log when the exit is reported
	h.start(sh("m", 2, "echo oops >&2; exit 1"))
	h.exitOf("m", 2)
	all := h.lines("m", machine.LogQuery{})
	var got []string
	for i, l := range all {
		got = append(got, l.Stream+" "+l.Text)
		if l.At.IsZero() || l.Cursor == "" || i > 0 && l.At.Before(all[i-1].At) {
			h.Errorf("line %+v", l)
		}
	}
	if d := cmp.Diff([]string{"stdout one", "stdout two", "stdout three", "stderr oops"}, got); d != "" {
		h.Fatalf("log (-want +got):\n%s", d)
	}
	if got := h.texts("m", machine.LogQuery{Tail: new(2)}); !slices.Equal(got, []string{"three", "oops"}) {
		h.Errorf("tail 2 gives %q", got)
	}
	if got := h.texts("m", machine.LogQuery{Tail: new(0)}); len(got) != 0 {
		h.Errorf("the last 0 lines are %q, want none", got)
	}
	if got := h.texts("m", machine.LogQuery{Tail: new(99)}); len(got) != 4 {
		h.Errorf("tail 99 gives %q", got)
	}
	h.reopen()
	for i, l := range all {
		rest := h.lines("m", machine.LogQuery{Cursor: l.Cursor})
		if d := cmp.Diff(all[i+1:], rest); len(all[i+1:])+len(rest) > 0 && d != "" {
			h.Errorf("behind line %d (-want +got):\n%s", i, d)
		}
	}
	for _, c := range []string{"x", "1", "1:x", ":", "0:0:0", "1:-5"} {
		h.want(h.rt.Logs(h.ctx(), "m", machine.LogQuery{Cursor: c}, nil), fault.Invalid)
	}
	stop := errors.New("enough")
	if err := h.rt.Logs(h.ctx(), "m", machine.LogQuery{}, func(machine.LogLine) error { return stop }); !errors.Is(err,
		stop) {
		h.Errorf("the error of emit came back as %v", err)
	}
}

func testLogsFollow(h *harness) {
	h.start(sh("m", 1, "echo first; exit 0"))
	h.exitOf("m", 1)
	lines := make(chan string, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- h.rt.Logs(h.Context(), "m", machine.LogQuery{Follow: true}, func(l machine.LogLine) error {
			lines <- l.Text
			return nil
		})
	}()
	next := func(want string) {
		h.Helper()
		select {
		case got := <-lines:
			if got != want {
				h.Errorf("line %q, want %q", got, want)
			}
		case <-time.After(waittest.Patience):
			h.Fatalf("line %q did not come", want)
		}
	}
	next("first")
	for i := range 3 {
		h.start(sh("m", uint64(2+i), fmt.Sprintf("echo line%d; exit 0", i)))
		next(fmt.Sprintf("line%d", i))
		h.exitOf("m", uint64(2+i))
	}
	h.ok(h.rt.Remove(h.ctx(), "m"))
	select {
	case err := <-ended:
		h.ok(err)
	case <-time.After(waittest.Patience):
		h.Fatal("following did not end with the machine")
	}
	ctx, cancel := context.WithTimeout(h.Context(), waittest.Patience)
	defer cancel()
	h.start(sh("m", 1, "echo again; exit 0"))
	n := 0
	h.ok(h.rt.Logs(ctx, "m", machine.LogQuery{Follow: true}, func(machine.LogLine) error {
		n++
		cancel() // following does not end by itself
		return nil
	}))
	if n != 1 {
		h.Errorf("%d lines, want 1", n)
	}
}
