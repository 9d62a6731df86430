package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/bench/live"
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
	s.cmd, s.end = onTerminal(t, own.Ready.Addr, unix.Winsize{Row: 33, Col: 99}, argv...)
	s.was = s.modes()
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

func (s *sitter) until(what string, is func() bool) {
	s.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !is(); <-tick.C {
		if time.Now().After(deadline) {
			s.t.Fatalf("not reached: %s; shown was %q", what, s.text())
		}
	}
}

func (s *sitter) sees(text string) {
	s.t.Helper()
	s.until(text, func() bool { return strings.Contains(s.text(), text) })
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

func (s *sitter) raw() { s.until("the terminal is lent", func() bool { return s.modes() != s.was }) }

// TestExecOnATerminal is a person at a shell in a machine; however that ends, the terminal is as it was.
func TestExecOnATerminal(t *testing.T) {
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
		s.until("the shell's pid", func() bool {
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
		s.until("the shell has ended", func() bool {
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
