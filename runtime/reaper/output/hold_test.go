package output_test

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/reaper/output"
)

// heldLog is a log of three files of 32 KiB with a reader who is waited for.
type heldLog struct {
	*output.Log
	dir   string
	sink  *output.Sink
	read  *output.Reader
	lines []machine.LogLine // that were read
	asked int               // how many there were when read began
}

func newHeldLog(t interface{ Fatal(...any) }, dir string) *heldLog {
	if err := output.Expect(dir); err != nil {
		t.Fatal(err)
	}
	h := &heldLog{dir: dir, Log: output.Open(dir, 32<<10, 3, func() {})}
	h.sink = h.Sink("stdout")
	h.come(t)
	return h
}

// come has the reader begin, or begin again behind what it has.
func (h *heldLog) come(t interface{ Fatal(...any) }) {
	q := machine.LogQuery{Hold: true}
	if h.asked = len(h.lines); h.asked > 0 {
		q.Cursor = h.lines[h.asked-1].Cursor
	}
	r, err := output.NewReader(h.dir, q)
	if err != nil {
		t.Fatal(err)
	}
	h.read = r
}

// piece is what is written at once.
var piece = bytes.Repeat([]byte("a line of output\n"), 64) //nolint:gochecknoglobals // a constant

// fill writes pieces until the writer is told to wait, or the end.
func (h *heldLog) fill(end int) (n int) {
	for n < end && !h.Full() {
		h.sink.Write(piece, time.Now())
		n++
	}
	return n
}

// take reads, all or what comes first.
func (h *heldLog) take(t *testing.T, most int) {
	t.Helper()
	enough := errors.New("enough")
	for {
		err := h.read.Read(t.Context(), func(l machine.LogLine) error {
			h.lines = append(h.lines, l)
			if most--; most == 0 {
				return enough
			}
			return nil
		})
		switch {
		case errors.Is(err, output.ErrAgain):
			h.read.Close()
			h.come(t)
			continue
		case err != nil && !errors.Is(err, enough):
			t.Fatal(err)
		}
		return
	}
}

// has fails unless all pieces were read, and nothing was missed.
func (h *heldLog) has(t interface{ Fatalf(string, ...any) }, pieces int) {
	n, lost := 0, int64(0)
	for _, l := range h.lines {
		n, lost = n+len(l.Raw()), lost+l.Lost
	}
	if want := pieces * len(piece); n != want || lost != 0 {
		t.Fatalf("%d bytes were read and %d missed of %d", n, lost, want)
	}
}

// TestWriterWaitsForASlowReader: the writer of a log with a reader waits before it deletes unread output, and
// continues once that is read; a reader that leaves is waited for once, for half a minute.
func TestWriterWaitsForASlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := newHeldLog(t, dir)
		const all = 1000
		h.fill(1)
		h.take(t, 1)
		wrote := 1 + h.fill(all)
		if wrote == all || !h.Full() {
			t.Fatalf("%d pieces were written", wrote)
		}
		<-time.After(time.Hour) // he is there, and slow
		if !h.Full() {
			t.Error("the writer goes on without its reader")
		}
		h.take(t, 2000)
		h.take(t, 0)
		if wrote += h.fill(3); h.Full() {
			t.Error("the writer waits for nothing")
		}
		h.read.Close()
		for !h.Full() {
			wrote += h.fill(all)
		}
		<-time.After(20 * time.Second)
		if !h.Full() {
			t.Error("a reader who may come back is not waited for")
		}
		h.come(t)
		h.take(t, 0)
		h.has(t, wrote)
		h.read.Close()
		if h.fill(all); !h.Full() {
			t.Error("the writer does not wait once more")
		}
		<-time.After(time.Minute)
		if n := h.fill(all); n != all || h.Full() {
			t.Errorf("%d pieces are written without a reader", n)
		}
		l := output.Open(dir, 32<<10, 3, func() {}) // as the next life does
		again := &heldLog{Log: l, sink: l.Sink("stdout")}
		if n := again.fill(all); n != all {
			t.Errorf("%d pieces are written by the next life", n)
		}
	})
}

// TestWriterWithoutReaderNeverWaits: a log opened without a reader never makes its writer wait.
func TestWriterWithoutReaderNeverWaits(t *testing.T) {
	dir := t.TempDir()
	h := &heldLog{dir: dir, Log: output.Open(dir, 32<<10, 3, func() {})}
	h.sink = h.Sink("stdout")
	h.come(t)
	h.fill(1)
	h.take(t, 1)
	if n := h.fill(1000); n != 1000 {
		t.Errorf("%d pieces were written", n)
	}
}

// TestAwaitedReaderLosesNothing: a reader of a log that waits for him gets every byte, at whatever pace he reads, also when
// he breaks off and comes back.
func TestAwaitedReaderLosesNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp("", "log")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir)
		h := newHeldLog(rt, dir)
		defer func() { h.read.Close(); h.Close() }()
		wrote := h.fill(rapid.IntRange(0, 10).Draw(rt, "before"))
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			switch rapid.IntRange(0, 5).Draw(rt, "step") {
			case 0: // what was on its way to him is lost
				h.lines = h.lines[:max(h.asked, len(h.lines)-rapid.IntRange(0, 5000).Draw(rt, "forgotten"))]
				h.read.Close()
				h.come(rt)
			case 1, 2:
				h.take(t, rapid.IntRange(0, 5000).Draw(rt, "lines"))
			case 3: // a life that ends waits for nobody
				h.sink.Write(piece, time.Now())
				wrote++
			default:
				wrote += h.fill(rapid.IntRange(1, 300).Draw(rt, "pieces"))
			}
		}
		h.take(t, 0)
		h.has(rt, wrote)
	})
}
