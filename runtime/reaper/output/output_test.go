package output_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/reaper/output"
)

func read(t rapid.TB, dir string, q machine.LogQuery) []machine.LogLine {
	r, err := output.NewReader(dir, q)
	if err != nil {
		t.Fatal(err)
	}
	var out []machine.LogLine
	if err := r.Read(context.Background(),
		func(l machine.LogLine) error { out = append(out, l); return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestLinesReadBackFromAnyCursor: whatever pieces output comes in, the same lines are read, long ones in parts; every cursor and
// every tail gives exactly the rest.
func TestLinesReadBackFromAnyCursor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "output")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		l := output.Open(dir, 64<<10, 100, func() {})
		s := l.Sink("stdout")
		var all []byte
		for range rapid.IntRange(0, 30).Draw(t, "pieces") {
			b := rapid.OneOf(
				rapid.SliceOfN(rapid.SampledFrom([]byte("ab\n\r\x00 ")), 0, 50),
				rapid.Map(rapid.IntRange(0, 40000), func(n int) []byte { return bytes.Repeat([]byte("x"), n) }),
			).Draw(t, "piece")
			all = append(all, b...)
			s.Write(bytes.Clone(b), time.Now())
		}
		s.Cut(time.Now())
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		var want []string
		for line := range bytes.SplitSeq(all, []byte("\n")) {
			for len(line) > output.MaxPart {
				want = append(want, string(line[:output.MaxPart]))
				line = line[output.MaxPart:]
			}
			want = append(want, string(line))
		}
		if want[len(want)-1] == "" { // nothing behind the last newline
			want = want[:len(want)-1]
		}
		got := read(t, dir, machine.LogQuery{})
		texts := func(ls []machine.LogLine) (out []string) {
			for _, l := range ls {
				out = append(out, l.Text)
			}
			return out
		}
		if !slices.Equal(texts(got), want) {
			t.Fatalf("got %.300q, want %.300q", texts(got), want)
		}
		if len(got) > 0 {
			i := rapid.IntRange(0, len(got)-1).Draw(t, "line")
			if rest := read(t, dir, machine.LogQuery{Cursor: got[i].Cursor}); !slices.Equal(texts(rest), want[i+1:]) {
				t.Fatalf("behind line %d of %d: %d lines", i, len(got), len(rest))
			}
			tail := read(t, dir, machine.LogQuery{Tail: new(i + 1)})
			if !slices.Equal(texts(tail), want[len(want)-i-1:]) {
				t.Fatalf("the last %d: %.300q", i+1, texts(tail))
			}
		}
	})
}

// TestLogFilesAreBounded: files on disk never exceed their number and size, and what is read is the end of what was written.
func TestLogFilesAreBounded(t *testing.T) {
	dir := t.TempDir()
	l := output.Open(dir, 64<<10, 3, func() {})
	s := l.Sink("stderr")
	for i := range 20000 {
		s.Write(fmt.Appendf(nil, "line %d\n", i), time.Now())
		if i%1000 == 0 {
			bounded(t, dir, 3, 64<<10)
		}
	}
	got := read(t, dir, machine.LogQuery{})
	if got[len(got)-1].Text != "line 19999" || len(got) < 1000 {
		t.Errorf("%d lines, the last %q", len(got), got[len(got)-1].Text)
	}
	for i, l := range got {
		if want := fmt.Sprintf("line %d", 20000-len(got)+i); l.Text != want {
			t.Fatalf("line %d is %q, want %q", i, l.Text, want)
		}
	}
}

func bounded(t *testing.T, dir string, files int, size int64) {
	t.Helper()
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(es) > files {
		t.Fatalf("%d files, want at most %d", len(es), files)
	}
	for _, e := range es {
		if st, err := e.Info(); err != nil || st.Size() > size {
			t.Fatalf("%s has %d bytes, %v", e.Name(), st.Size(), err)
		}
	}
}

// TestDamagedLinesAreSkipped: what is not a line is skipped, half a line at the end is left for later.
func TestDamagedLinesAreSkipped(t *testing.T) {
	dir := t.TempDir()
	text := "garbage\n2026-11-21T10:00:00Z stdout F good\n\n2026-11-21T10:00:00Z stdout\nnot a time stdout F " +
		"x\n2026-11-21T10:00:01Z stderr P part\n2026-11-21T10:00:02Z stdout F half"
	if err := os.WriteFile(filepath.Join(dir, "00000001.log"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "other.txt"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := read(t, dir, machine.LogQuery{})
	if len(got) != 2 || got[0].Text != "good" || got[1].Text != "part" || got[1].Stream != "stderr" {
		t.Errorf("%+v", got)
	}
}

func TestCursorsResumeOrAreRefused(t *testing.T) {
	for _, c := range []string{"x", ":", "1:", ":1", "0:5", "-1:5", "1:-5", "1:2:-3", "1:2:3:4", "1:2:",
		"99999999999999999999:1"} {
		if _, err := output.NewReader(t.TempDir(), machine.LogQuery{Cursor: c}); !fault.Is(err, fault.Invalid) ||
			!strings.Contains(err.Error(), c) {
			t.Errorf("%q: %v", c, err)
		}
	}
	// Of a log that is gone or was never there.
	if got := read(t, t.TempDir(), machine.LogQuery{Cursor: "7:1000:900"}); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	stop := errors.New("stop")
	dir := t.TempDir()
	l := output.Open(dir, 0, 0, func() {})
	l.Note("one")
	l.Note("two")
	r, err := output.NewReader(dir, machine.LogQuery{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := r.Read(t.Context(), func(machine.LogLine) error { n++; return stop }); !errors.Is(err, stop) || n != 1 {
		t.Errorf("%v after %d lines", err, n)
	}
}

func BenchmarkSinkWrite(b *testing.B) {
	l := output.Open(b.TempDir(), 1<<20, 4, func() {})
	s := l.Sink("stdout")
	chunk := bytes.Repeat([]byte("a line of the usual length, as programs print them\n"), 600)
	b.SetBytes(int64(len(chunk)))
	for b.Loop() {
		s.Write(chunk, time.Now())
	}
}

// TestInvalidCursorIsRefused: what was never given with a line is refused, however it looks.
func TestInvalidCursorIsRefused(t *testing.T) {
	for _, cursor := range []string{"1", ":", "1:50", "0:0:0", "1:-1:0", "1:0:-1", "1:9223372036854775807:0",
		"18446744073709551616:0:0", "a:b:c"} {
		if _, err := output.NewReader(t.TempDir(), machine.LogQuery{Cursor: cursor}); fault.CodeOf(err) != "cursor" {
			t.Errorf("%q: %v", cursor, err)
		}
	}
}
