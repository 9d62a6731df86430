package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/bench/live"
)

// An agent that a service manager starts says when it is ready and when it ends, and ends as one that did not fail.
func TestAgentNotifiesSystemdOfReadyAndStop(t *testing.T) {
	exe, dir := soukExe(t), filepath.Join(t.TempDir(), "a")
	manager, err := net.ListenUnixgram("unixgram",
		&net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	hears := func() string {
		buf := make([]byte, 1024)
		if err := manager.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, err := manager.Read(buf)
		if err != nil {
			t.Fatalf("the manager hears nothing: %v", err)
		}
		return string(buf[:n])
	}
	if out, err := exec.Command(exe, "init", "--dir", dir, "--id", "a").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(exe, "agent", "--json", "--dir", dir, "--addr", "127.0.0.1:0", "--wire", "127.0.0.1:0",
		"--gossip", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+manager.LocalAddr().String())
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended already
		_ = cmd.Wait()
		live.EndReapers(filepath.Dir(dir))
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var said struct{ Addr string }
	if err == nil {
		err = json.Unmarshal(line, &said)
	}
	if err != nil {
		t.Fatalf("the agent did not become ready: %v\n%s", err, errs.String())
	}
	if got, want := hears(), "READY=1\nSTATUS=member a is ready, its API at "+said.Addr+"\n"; got != want {
		t.Errorf("it heard %q, want %q", got, want)
	}
	if err := cmd.Process.Signal(syscall.SIGUSR2); err != nil { // a reload: the same process, at the same address
		t.Fatal(err)
	}
	if got, want := hears(), "READY=1\nSTATUS=member a is ready, its API at "+said.Addr+"\n"; got != want {
		t.Errorf("after a reload it heard %q, want %q", got, want)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := hears(); !strings.HasPrefix(got, "STOPPING=1\n") {
		t.Errorf("it heard %q, want STOPPING=1", got)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("systemd would take that for a failure: %v\n%s", err, errs.String())
	}
}
