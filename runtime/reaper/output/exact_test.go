package output_test

import (
	"bytes"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/reaper/output"
)

// TestEveryByteIsReadOrCountedAsMissed: a reader gets every byte that a program wrote, or the exact number of those that were
// deleted before it came to them. That holds from a cursor on, too, and when the log is closed and opened in between.
func TestEveryByteIsReadOrCountedAsMissed(t *testing.T) {
	piece := rapid.OneOf(
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 200), func(b []byte) []byte { return b }),
		rapid.SampledFrom([][]byte{[]byte("\n"), []byte("a line\n"), []byte("no end"),
			bytes.Repeat([]byte("x"), 20<<10), bytes.Repeat([]byte("many lines\n"), 4000),
			{0xff, 0xfe, '\n'}, []byte("\xe2\x82")}))
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "log")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		open := func() (*output.Log, *output.Sink) {
			l := output.Open(dir, 32<<10, 3, func() {})
			return l, l.Sink("stdout")
		}
		l, sink := open()
		var written, got []byte // got has a zero for each byte that is missing
		missed := int64(0)
		cursor := ""
		read := func() {
			r, err := output.NewReader(dir, machine.LogQuery{Cursor: cursor})
			if err != nil {
				t.Fatal(err)
			}
			err = r.Read(t.Context(), func(line machine.LogLine) error {
				missed += line.Lost
				got = append(got, make([]byte, line.Lost)...)
				got = append(got, line.Raw()...)
				cursor = line.Cursor
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0, 1:
				read()
			case 2:
				sink.Cut(time.Now())
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				l, sink = open()
			default:
				p := piece.Draw(t, "piece")
				written = append(written, p...)
				sink.Write(p, time.Now())
			}
		}
		sink.Cut(time.Now())
		read()
		if len(got) != len(written) {
			t.Fatalf("%d bytes were written, and %d read or missed (%d)", len(written), len(got), missed)
		}
		for i := range got {
			if got[i] != written[i] && got[i] != 0 {
				t.Fatalf("byte %d is %q, not %q", i, got[i], written[i])
			}
		}
		if missed == 0 && !bytes.Equal(got, written) {
			t.Fatal("what was read is not what was written")
		}
	})
}
