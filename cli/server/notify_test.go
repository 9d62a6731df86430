package server

import (
	"crypto/rand"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
)

// TestReadinessIsSentToTheServiceManager: readiness and stop are sent to the service manager's socket, with a path or
// an abstract name; a child process does not inherit the socket.
func TestReadinessIsSentToTheServiceManager(t *testing.T) {
	for _, name := range []string{
		filepath.Join(t.TempDir(), "notify"),
		"@souk-test-" + rand.Text(),
	} {
		ln, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		t.Setenv(notifySocket, name)
		m, err := managerOf(os.Getenv)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := managerOf(os.Getenv); again != nil || err != nil {
			t.Errorf("what this process starts finds the manager too: %v, %v", again, err)
		}
		if err := m.tell("READY=1", "member a is\nready"); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 1024)
		if err := ln.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, err := ln.Read(buf)
		if want := "READY=1\nSTATUS=member a is ready\n"; err != nil || string(buf[:n]) != want {
			t.Errorf("it heard %q, %v; want %q", buf[:n], err, want)
		}
	}
}

func TestNotifyWithoutServiceManagerIsHarmless(t *testing.T) {
	t.Setenv(notifySocket, "")
	m, err := managerOf(os.Getenv)
	if m != nil || err != nil {
		t.Fatalf("%v, %v", m, err)
	}
	if err := m.tell("READY=1", ""); err != nil {
		t.Errorf("where there is nobody to tell: %v", err)
	}
	t.Setenv(notifySocket, filepath.Join(t.TempDir(), "nobody"))
	if m, err = managerOf(os.Getenv); err != nil {
		t.Fatal(err)
	}
	if err := m.tell("READY=1", ""); !fault.Is(err, fault.Unavailable) {
		t.Errorf("where nobody listens: %v", err)
	}
	t.Setenv(notifySocket, "vsock:2:1234")
	if _, err := managerOf(os.Getenv); !fault.Is(err, fault.Invalid) {
		t.Errorf("what is no socket of this host: %v", err)
	}
}
