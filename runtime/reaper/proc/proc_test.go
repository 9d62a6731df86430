package proc_test

import (
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/soukhq/souk/runtime/reaper/proc"
)

func TestParseReadsProcStat(t *testing.T) {
	line := "123 (a (b) c d) S 1 120 110 0 -1 4194560 1 2 3 4 50 60 7 8 20 0 1 0 9999 1000000 250 " +
		"18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 256\n"
	s, err := proc.Parse([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	want := proc.Stat{PID: 123, Name: "a (b) c d", State: 'S', Parent: 1, Group: 120, Session: 110, UTime: 50,
		STime: 60, Threads: 1, Start: 9999, RSS: 250, Exit: 256}
	if s != want {
		t.Errorf("got %+v, want %+v", s, want)
	}
	for _, bad := range []string{"", "1", "1 (x", "1 (x) S 1 2", "x (y) " + strings.Repeat("1 ", 30)} {
		if _, err := proc.Parse([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestOwnProcessIsFoundWithSocketsAndChildren(t *testing.T) {
	s, err := proc.Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !proc.Running(s.PID, s.Start) || proc.Running(s.PID, s.Start+1) {
		t.Error("a process is known by its pid and start time")
	}
	cmd := exec.Command("sleep", "100")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if kids, ok := proc.Children(os.Getpid()); ok && !slices.Contains(kids, cmd.Process.Pid) {
		t.Errorf("children %v, want %d", kids, cmd.Process.Pid)
	}
	if got := proc.Command(os.Getpid()); !slices.Equal(got, os.Args) {
		t.Errorf("command %q, want %q", got, os.Args)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	found := slices.ContainsFunc(proc.SocketsOf(os.Getpid(), proc.Listening()), func(s proc.Socket) bool {
		return s.Address == ln.Addr().String() && s.Proto == "tcp"
	})
	if !found {
		t.Errorf("%s is not among the sockets", ln.Addr())
	}
}

func TestTickMatchesProcessStartTimes(t *testing.T) {
	for range 100 {
		before := proc.Tick()
		c := exec.Command("/bin/true")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		after := proc.Tick()
		st, err := proc.Read(c.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if before == 0 || st.Start < before || st.Start > after {
			t.Errorf("a process started between ticks %d and %d says %d", before, after, st.Start)
		}
		if err := c.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}
