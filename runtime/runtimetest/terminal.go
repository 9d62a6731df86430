package runtimetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// testTerminal: a terminal shows both streams as one, with lines that end in \r\n.
func testTerminal(h *harness) {
	h.start(spec("m", 1, "sleep", "1000"))
	var out, errs bytes.Buffer
	code, err := h.rt.Exec(h.ctx(), "m", runtime.ExecRequest{
		Argv: []string{"sh", "-c", "echo one; echo two >&2; exit 5"}, Stdout: &out, Stderr: &errs,
		Terminal: new(runtime.Terminal),
	})
	h.ok(err)
	if code != 5 || out.String() != "one\r\ntwo\r\n" || errs.Len() > 0 {
		h.Errorf("code %d, shown %q and %q", code, &out, &errs)
	}
	_, err = h.rt.Exec(h.ctx(), "m", runtime.ExecRequest{Argv: []string{"/no/such/program"},
		Terminal: new(runtime.Terminal)})
	h.want(err, fault.Precondition, fault.Invalid)
	// output is discarded, and nobody types
	code, err = h.rt.Exec(h.ctx(), "m", runtime.ExecRequest{Argv: []string{"true"}, Terminal: new(runtime.Terminal)})
	h.ok(err)
	if code != 0 {
		h.Errorf("code %d", code)
	}
	if st, _ := h.status("m"); !st.Running {
		h.Errorf("status %+v", st)
	}
}

// screen is what a terminal has shown so far.
type screen struct {
	mu    sync.Mutex
	shown strings.Builder
}

// Write adds to what is shown.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown.Write(p)
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown.String()
}

// session is a person at a terminal.
type session struct {
	h      *harness
	screen screen
	keys   *io.PipeWriter
	sizes  chan machine.WindowSize
	ended  chan error
	code   int
}

// sit starts a command with a terminal.
func (h *harness) sit(ctx context.Context, t machine.Terminal, argv ...string) *session {
	return h.sitAt(ctx, runtime.ExecRequest{Argv: argv, Terminal: &runtime.Terminal{Terminal: t}})
}

// sitAt starts the request, in machine m unless another is named.
func (h *harness) sitAt(ctx context.Context, q runtime.ExecRequest, of ...string) *session {
	r, w := io.Pipe()
	h.Cleanup(func() { _ = w.Close() })
	s := &session{h: h, keys: w, sizes: make(chan machine.WindowSize), ended: make(chan error, 1)}
	q.Stdin, q.Stdout, q.Terminal.Resize = r, &s.screen, s.sizes
	id := append(of, "m")[0]
	rt := h.rt
	go func() {
		var err error
		s.code, err = rt.Exec(ctx, id, q)
		_ = r.Close()
		s.ended <- err
	}()
	return s
}

// key types text.
func (s *session) key(text string) {
	s.h.Helper()
	if _, err := io.WriteString(s.keys, text); err != nil {
		s.h.Fatalf("typing %q: %v; shown was %q", text, err, s.screen.text())
	}
}

// sees waits until the screen shows a text.
func (s *session) sees(text string) {
	s.h.Helper()
	deadline := time.Now().Add(waittest.Patience)
	t := time.NewTicker(2 * time.Millisecond)
	defer t.Stop()
	for !strings.Contains(s.screen.text(), text) {
		if time.Now().After(deadline) {
			s.h.Fatalf("%q is never shown, but %q", text, s.screen.text())
		}
		<-t.C
	}
}

// end waits until the command itself ends, and checks its exit code.
func (s *session) end(code int) {
	s.h.Helper()
	select {
	case err := <-s.ended:
		if err != nil || s.code != code {
			s.h.Errorf("it ended with %d, %v, want %d; shown was %q", s.code, err, code, s.screen.text())
		}
	case <-time.After(waittest.Patience):
		s.h.Fatalf("it did not end; shown was %q", s.screen.text())
	}
}

// testTerminalSession: what a shell and its programs need from a terminal.
func testTerminalSession(h *harness) {
	h.start(spec("m", 1, "sleep", "1000"))
	s := h.sit(h.ctx(), machine.Terminal{Size: machine.WindowSize{Rows: 31, Cols: 97}, Term: "vt220"}, "sh")
	// What is typed is echoed, so the text that is looked for must not occur in it.
	s.key("stty size; echo kind=$TERM; test -t 0 -a -t 1 -a -t 2 && echo all' 'three\n")
	s.sees("31 97")
	s.sees("kind=vt220")
	s.sees("all three")
	if !h.Sandbox { // gVisor has no name for a terminal from outside, and no /dev/tty before 2023
		s.key("echo it is $(tty)\n") // it has a name where the command runs
		s.sees("it is /dev/pts/")
		s.key("echo opened' 'again > /dev/tty; echo and' 'by name > $(tty)\n") // and belongs to the command's user
		s.sees("opened again")
		s.sees("and by name")
	}
	s.key("sh -c 'trap \"stty size; exit 8\" WINCH; echo wat''ches; while :; do sleep 0.01; done'; echo code=$?\n")
	s.sees("watches")
	s.sizes <- machine.WindowSize{Rows: 12, Cols: 40}
	s.sees("12 40")
	s.sees("code=8")
	s.key("sh -c 'trap \"echo caught; exit 9\" INT; echo rea''dy; while :; do sleep 0.01; done'; echo code=$?\n")
	s.sees("ready")
	s.key("\x03")
	s.sees("caught")
	s.sees("code=9")
	s.key("echo now' 'cat; cat; echo cat is' 'over\n")
	s.sees("now cat")
	s.key("typed\n\x04")
	s.sees("cat is over")
	s.key("exit 7\n")
	s.end(7)
	// A terminal that states no type still gets one.
	s = h.sit(h.ctx(), machine.Terminal{}, "sh", "-c", "echo $TERM")
	s.end(0)
	s.sees(machine.DefaultTerm)
	// A long output is not cut off at the end.
	s = h.sit(h.ctx(), machine.Terminal{}, "sh", "-c", "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done")
	s.end(0)
	if n := strings.Count(s.screen.text(), "\n"); n != 20000 {
		h.Errorf("%d lines, want 20000; the last %q", n, s.screen.text()[max(0, len(s.screen.text())-30):])
	}
}

// testTerminalHangsUp: a command ends when its user leaves the terminal, and the machine continues.
func testTerminalHangsUp(h *harness) {
	h.start(spec("m", 1, "sleep", "1000"))
	ctx, leave := context.WithCancel(h.Context())
	defer leave()
	s := h.sit(ctx, machine.Terminal{}, "sh", "-c", "sleep 1001 & echo begun; sleep 1002")
	s.sees("begun")
	leave()
	select {
	case err := <-s.ended:
		h.want(err, fault.Timeout)
	case <-time.After(waittest.Patience):
		h.Fatal("it did not end")
	}
	h.until("both sleepers are gone", func() bool {
		ps, err := h.rt.Processes(h.ctx(), "m")
		h.ok(err)
		said := fmt.Sprint(ps)
		return !strings.Contains(said, "1001") && !strings.Contains(said, "1002")
	})
	if st, _ := h.status("m"); !st.Running {
		h.Errorf("status %+v", st)
	}
}

// testAttach: several may watch the terminal of a machine, whose output goes to its log too. The program does not
// notice that a viewer leaves, that the reaper is killed or that souk is restarted.
func testAttach(h *harness) {
	s := sh("m", 1, "stty -echo; echo begun; while read line; do echo \"got $line $(stty size)\"; "+
		"test \"$line\" = end && exit 4; done; echo no input; exit 5")
	s.TTY = true
	h.start(s)
	attach := func(ctx context.Context, backlog bool) *session {
		return h.sitAt(ctx, runtime.ExecRequest{Attach: true, Backlog: backlog,
			Terminal: &runtime.Terminal{Terminal: machine.Terminal{Size: machine.WindowSize{Rows: 31, Cols: 97}}}})
	}
	one := attach(h.ctx(), true)
	one.sees("begun")
	one.key("first\n")
	one.sees("got first 31 97")
	ctx, leave := context.WithCancel(h.Context())
	defer leave()
	two := attach(ctx, true)
	two.sees("got first") // as the first has seen
	two.key("second\n")
	one.sees("got second 31 97")
	two.sees("got second")
	leave()
	h.want(<-two.ended, fault.Timeout)
	for range 2 { // the second is accepted when the first has been delivered
		one.sizes <- machine.WindowSize{Rows: 12, Cols: 40}
	}
	one.key("third\n")
	one.sees("got third 12 40")
	if h.Crash != nil { // the viewers stay attached, and the program continues
		h.Crash(h.T)
		one.key("fourth\n")
		one.sees("got fourth 12 40")
	}
	h.until("the log has it", func() bool {
		return strings.Contains(strings.Join(h.texts("m", machine.LogQuery{}), "\n"), "got third 12 40")
	})
	if st, _ := h.status("m"); !st.Running {
		h.Fatalf("status %+v", st)
	}
	h.reopen()
	three := attach(h.ctx(), false)
	three.key("end\n")
	three.end(4)
	if x := h.exitOf("m", 1); x.Code != 4 && !x.Lost {
		h.Errorf("exit %+v", x)
	}
	h.start(spec("n", 1, "sleep", "1000"))
	_, err := h.rt.Exec(h.ctx(), "n", runtime.ExecRequest{Attach: true, Terminal: new(runtime.Terminal)})
	h.want(err, fault.Precondition)
	// A program that ends right after its last output.
	s = sh("o", 1, "read go; echo bye; exit 6")
	s.TTY = true
	h.start(s)
	last := h.sitAt(h.ctx(), runtime.ExecRequest{Attach: true, Terminal: new(runtime.Terminal)}, "o")
	last.key("now\n")
	last.end(6)
	last.sees("bye")
}
