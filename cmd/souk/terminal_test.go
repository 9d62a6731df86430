package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/internal/wait/waittest"
)

// sitter is a person at a terminal at which souk runs.
type sitter struct {
	t   *testing.T
	cmd *exec.Cmd
	end *os.File
	was unix.Termios

	mu    sync.Mutex
	shown bytes.Buffer
}

// sit starts souk on a terminal, and remembers how that was.
func sit(t *testing.T, own *live.Souk, argv ...string) *sitter {
	t.Helper()
	t.Setenv("SOUK_TOKEN", own.Token)
	t.Setenv("TERM", "vt220")
	s := &sitter{t: t}
	s.cmd, s.end, s.was = onTerminal(t, own.Ready.Addr, unix.Winsize{Row: 33, Col: 99}, argv...)
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := s.end.Read(buf)
			s.mu.Lock()
			s.shown.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return // EIO: nobody has it any more
			}
		}
	}()
	return s
}

func (s *sitter) modes() unix.Termios {
	s.t.Helper()
	m, err := unix.IoctlGetTermios(int(s.end.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	return *m
}

func (s *sitter) key(text string) {
	s.t.Helper()
	if _, err := s.end.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

func (s *sitter) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown.String()
}

func (s *sitter) sees(text string) {
	s.t.Helper()
	waittest.See(s.t, "the screen shows "+text, s.text,
		func(shown string) bool { return strings.Contains(shown, text) })
}

// leaves waits for the end of souk, and holds the terminal against how it was.
func (s *sitter) leaves(code int) {
	s.t.Helper()
	_ = s.cmd.Wait() // its code says it
	if got := s.cmd.ProcessState.ExitCode(); got != code {
		s.t.Errorf("it ended with %d, want %d; shown was %q", got, code, s.text())
	}
	if now := s.modes(); now != s.was {
		s.t.Errorf("the terminal is left as %+v, and was %+v", now, s.was)
	}
}

func terminalSouk(t *testing.T) *live.Souk {
	t.Helper()
	own := &live.Souk{Exe: soukExe(t), State: filepath.Join(t.TempDir(), "d")}
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.End)
	return own
}

func (s *sitter) raw() {
	waittest.Until(s.t, "the terminal is lent", func() bool { return s.modes() != s.was })
}

// TestExecRestoresTheTerminal: however an interactive shell in a machine ends, the user's terminal is as it was
// before.
func TestExecRestoresTheTerminal(t *testing.T) {
	own := terminalSouk(t)
	run := exec.Command(soukExe(t), "run", "--name", "box", "--", "/bin/sleep", "1000")
	run.Env = append(os.Environ(), "SOUK_ADDR="+own.Ready.Addr, "SOUK_TOKEN="+own.Token)
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	argv := []string{"exec", "-it", "box", "--", "/bin/sh"}
	t.Run("a session", func(t *testing.T) {
		s := sit(t, own, argv...)
		s.key("stty size; echo kind=$TERM\n")
		s.sees("33 99")
		s.sees("kind=vt220")
		s.key("sh -c 'trap \"stty size; exit 8\" WINCH; echo wat''ches; while :; do sleep 0.01; done'; echo code=$?\n")
		s.sees("watches")
		size := unix.Winsize{Row: 12, Col: 40}
		if err := unix.IoctlSetWinsize(int(s.end.Fd()), unix.TIOCSWINSZ, &size); err != nil {
			t.Fatal(err)
		}
		s.sees("12 40")
		s.sees("code=8")
		s.key("sh -c 'trap \"exit 9\" INT; echo rea''dy; while :; do sleep 0.01; done'; echo code=$?\n")
		s.sees("ready")
		s.key("\x03") // the program's, not souk's
		s.sees("code=9")
		s.key("exit 7\n")
		s.leaves(7)
	})
	for name, c := range map[string]struct {
		do   func(s *sitter) error
		code int
	}{
		"SIGTERM": {func(s *sitter) error { return s.cmd.Process.Signal(syscall.SIGTERM) }, 130},
		"SIGHUP":  {func(s *sitter) error { return s.cmd.Process.Signal(syscall.SIGHUP) }, -1},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "SIGHUP" && signal.Ignored(syscall.SIGHUP) {
				t.Skip("SIGHUP is ignored where this test was started (nohup)")
			}
			s := sit(t, own, argv...)
			s.raw()
			s.key("echo be''gun\n")
			s.sees("begun")
			if err := c.do(s); err != nil {
				t.Fatal(err)
			}
			s.leaves(c.code)
		})
	}
	t.Run("its souk is killed", func(t *testing.T) {
		s := sit(t, own, argv...)
		s.raw()
		s.key("echo be''gun\n")
		s.sees("begun")
		own.Kill()
		s.leaves(69)
		if err := own.Start(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("it is killed itself", func(t *testing.T) { // then what it ran ends, though nobody can restore the terminal
		s := sit(t, own, argv...)
		s.raw()
		s.key("echo 'pid='$$.\n")
		var pid string
		waittest.Until(s.t, "the shell's pid", func() bool {
			said := regexp.MustCompile(`pid=(\d+)\.`).FindStringSubmatch(s.text())
			if said != nil {
				pid = said[1]
			}
			return said != nil
		})
		if err := s.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = s.cmd.Wait() // killed
		waittest.Until(s.t, "the shell has ended", func() bool {
			_, err := os.Stat("/proc/" + pid)
			return os.IsNotExist(err)
		})
	})
	t.Run("nobody types", func(t *testing.T) {
		s := sit(t, own, "exec", "-tn", "box", "--", "/bin/sh", "-c", "stty size; exit 3")
		s.sees("33 99")
		s.leaves(3)
	})
	for name, argv := range map[string][]string{
		"no terminal":          {"exec", "-it", "box", "--", "/bin/sh"},
		"none at all":          {"exec", "-t", "-n", "box", "--", "/bin/sh"},
		"frames of a terminal": {"exec", "-t", "--json", "box", "--", "/bin/sh"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(soukExe(t), argv...)
			cmd.Env = append(os.Environ(), "SOUK_ADDR="+own.Ready.Addr, "SOUK_TOKEN="+own.Token)
			out, _ := cmd.CombinedOutput() // its code says it
			if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(string(out), "leave") {
				t.Errorf("it ended with %d: %s", code, out)
			}
		})
	}
}

// TestRunDetachesAndReattachesOnATerminal: a user detaches from a machine and attaches again, whatever is killed
// meanwhile.
func TestRunDetachesAndReattachesOnATerminal(t *testing.T) {
	own := terminalSouk(t)
	say := func(argv ...string) string {
		t.Helper()
		out, err := own.Command(t.Context(), argv...).CombinedOutput()
		if err != nil {
			t.Fatalf("souk %q: %v: %s", argv, err, out)
		}
		return string(out)
	}
	s := sit(t, own, "run", "-it", "--rm", "--name", "one", "--", "/bin/sh", "-c",
		"echo begun; read x; echo got $x; stty size; exit 6")
	s.sees("begun")
	s.key("word\n")
	s.sees("got word")
	s.sees("33 99")
	s.leaves(6)
	if list := say("ps", "--json"); strings.Contains(list, `"one"`) {
		t.Errorf("--rm left it: %s", list)
	}
	// What ends before anybody could sit down is shown all the same.
	s = sit(t, own, "run", "-it", "--", "/bin/sh", "-c", "echo quick; exit 3")
	s.leaves(3)
	s.sees("quick")

	s = sit(t, own, "run", "-it", "--name", "box", "--", "/bin/sh")
	s.raw()
	s.key("here=kept; echo is' 'there\n")
	s.sees("is there")
	s.key("\x10\x11")
	s.leaves(0)
	s.sees("souk attach") // it says how to come back
	killReapers(t, own)   // the terminal outlives its reaper
	back := sit(t, own, "attach", "--detach-keys", "ctrl-a,d", "box")
	back.raw()
	back.key("echo still' '$here\n")
	back.sees("still kept")
	killReapers(t, own) // who is attached goes on
	back.key("echo again' '$here\n")
	back.sees("again kept")
	own.Kill()
	back.leaves(69)
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	back = sit(t, own, "attach", "--detach-keys", "ctrl-a,d", "box")
	back.raw()
	back.key("echo after' 'souk $here\n")
	back.sees("after souk kept")
	back.key("\x01d")
	back.leaves(0)
	if text := say("logs", "box"); !strings.Contains(text, "after souk kept") {
		t.Errorf("its log has %q", text)
	}
	back = sit(t, own, "attach", "box")
	back.raw()
	back.key("exit 9\n")
	back.leaves(9)
	for want, argv := range map[string][]string{
		"terminal":     {"run", "-it", "--", "/bin/sh"}, // stdin is none
		"say -it":      {"run", "-i", "--", "/bin/sh"},
		"is no key":    {"attach", "--detach-keys", "ctrl-", "box"},
		"leave it out": {"attach", "--json", "box"},
	} {
		cmd := own.Command(t.Context(), argv...)
		out, _ := cmd.CombinedOutput() // its code says it
		if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(string(out), want) {
			t.Errorf("souk %q ended with %d: %s", argv, code, out)
		}
	}
}

// killReapers kills the reaper, and nothing else of it, and waits until it is no more.
func killReapers(t *testing.T, own *live.Souk) {
	t.Helper()
	for _, pid := range live.ReapersBelow(own.State) {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || bytes.Contains(env, []byte("SOUK_REAPER_TERMINALS=")) {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
}
