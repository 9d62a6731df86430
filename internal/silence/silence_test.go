package silence_test

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/silence"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/test/netns"
)

func TestMain(m *testing.M) { os.Exit(netns.Main(m.Run)) }

// TestConnectionsOfASilentHostEnd: a connection ends when its other host is cut off, and not while that host is
// reachable, even if it sends or reads nothing.
func TestConnectionsOfASilentHostEnd(t *testing.T) {
	if !netns.Inside() {
		if os.Getenv("CI") == "true" {
			t.Fatalf("hosts cannot be made here; lacking: %s", netns.Lacks())
		}
		t.Skipf("lacking: %s", netns.Lacks())
	}
	hs, err := netns.New(2)
	if err != nil {
		t.Fatal(err)
	}
	var ln net.Listener
	if err := hs[1].Do(func() (err error) { ln, err = net.Listen("tcp", hs[1].Addr+":9"); return err }); err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	const after = 2500 * time.Millisecond // the kernel asks each second at most
	lines := silence.New(1500*time.Millisecond, after)
	dial := func() (c net.Conn) {
		waittest.Succeed(t, "it is connected", func() error {
			return hs[0].Do(func() (err error) {
				c, err = lines.Dial(t.Context(), "tcp", ln.Addr().String())
				return err
			})
		})
		t.Cleanup(func() { c.Close() })
		return c
	}
	reads := func(c net.Conn) chan error {
		ended := make(chan error, 1)
		go func() { _, err := c.Read(make([]byte, 1)); ended <- err }()
		return ended
	}
	writes := func(c net.Conn) chan error {
		ended := make(chan error, 1)
		go func() { _, err := io.Copy(c, forEver{}); ended <- err }()
		return ended
	}
	waiting, full, unheard := dial(), dial(), dial()
	all := map[string]chan error{"awaits something": reads(waiting), "is full": writes(full)}
	timer := time.NewTimer(2 * after)
	<-timer.C
	for name, c := range all {
		select {
		case err := <-c:
			t.Fatalf("one that %s ends though its host is there: %v", name, err)
		default:
		}
	}
	if err := hs.Part(func(i int) bool { return i == 0 }); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := unheard.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	all["was written to"] = reads(unheard)
	for name, c := range all {
		select {
		case err := <-c:
			if took := time.Since(began); !errors.Is(err, silence.Err) || took > 2*after {
				t.Errorf("one that %s ends after %v: %v", name, took, err)
			}
		case <-time.After(waittest.Patience):
			t.Errorf("one that %s does not end", name)
		}
	}
	err = hs[0].Do(func() error { _, err := lines.Dial(t.Context(), "tcp", ln.Addr().String()); return err })
	if err == nil || !strings.Contains(err.Error(), "timeout") {
		t.Errorf("a dial: %v", err)
	}
}

// forEver never ends.
type forEver struct{}

func (forEver) Read(b []byte) (int, error) { return len(b), nil }
