package process_test

import (
	"bufio"
	"encoding/json"
	"net"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/process"
	"github.com/soukhq/souk/runtime/reaper/frame"
)

// follow follows a machine's log over a connection of its own, which stays open, and returns the reaper's first answer.
func follow(t *testing.T, r *process.Runtime, id string) (frame.Kind, error) {
	t.Helper()
	c, err := process.Dial(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	hello := &frame.Hello{Version: frame.Version, Oldest: frame.Oldest}
	if err := frame.Write(c, 1, frame.KindRequest,
		frame.Request{Op: frame.OpWatch, Machine: id, Hello: hello}); err != nil {
		return 0, err
	}
	f, err := frame.Read(bufio.NewReaderSize(net.Conn(c), 256))
	if err != nil || f.Kind != frame.KindReply {
		return f.Kind, err
	}
	var a frame.Reply
	if err := json.Unmarshal(f.Head, &a); err != nil {
		t.Fatal(err)
	}
	return f.Kind, a.Error.Err()
}

// TestLogFollowersLeaveRoomForCommands: as many followed logs as there may be leave commands, a stop, and a souk that comes back
// their places; one more is told so.
func TestLogFollowersLeaveRoomForCommands(t *testing.T) {
	o := options(filepath.Join(t.TempDir(), "process"))
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	start(t, r, script("m1", 1, "exec sleep 60"))
	const places = 2048
	for n := range places {
		if kind, err := follow(t, r, "m1"); err != nil || kind != frame.KindGrown {
			t.Fatalf("follower %d was told %q, %v", n+1, kind, err)
		}
	}
	if _, err := follow(t, r, "m1"); !fault.Is(err, fault.Exhausted) {
		t.Errorf("one follower more was told %v", err)
	}
	if code, err := r.Exec(t.Context(), "m1", runtime.ExecRequest{Argv: []string{"true"}}); err != nil || code != 0 {
		t.Errorf("a command beside %d followers: exit code %d, %v", places, code, err)
	}
	r = reopen(t, o)
	if err := r.Signal(t.Context(), "m1", syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	next(t, r, "m1")
}
