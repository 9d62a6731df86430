package output_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/reaper/output"
)

// TestKilledWriterLosesAndDoublesNoLine: what a process that is killed leaves behind each write to the log, and in the middle of one, is
// taken up by the next without a line lost or doubled, an unfinished one too.
func TestKilledWriterLosesAndDoublesNoLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "spool")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		src := output.Source{Machine: "m", Attempt: 7, Stream: "stdout"}
		pieces := rapid.SliceOfN(rapid.OneOf(
			rapid.SliceOfN(rapid.SampledFrom([]byte("ab\n\n ")), 1, 50),
			rapid.Map(rapid.IntRange(1, 40000), func(n int) []byte { return bytes.Repeat([]byte("x"), n) }),
			rapid.Map(rapid.IntRange(1, 700), func(n int) []byte { return bytes.Repeat([]byte("ab\n"), n) }),
		), 1, 12).Draw(t, "pieces")
		kill := rapid.IntRange(0, 20).Draw(t, "killed behind write")
		torn := rapid.SampledFrom([]int{0, 1, 7, 60, 1000}).Draw(t, "bytes of it that were not written")
		p := newPipe(t)
		defer p.close()
		writes, moved, killedAt, size := 0, 0, -1, int64(0)
		grown := func() {
			was := size
			size = logSize(t, dir)
			if writes++; writes-1 == kill {
				killedAt = moved
				left := filepath.Join(dir, "left")
				if err := os.CopyFS(left, os.DirFS(filepath.Join(dir, "at"))); err != nil {
					t.Fatal(err)
				}
				cutLast(t, filepath.Join(left, "log"), min(int64(torn), size-was))
			}
		}
		for _, d := range []string{"at/log", "at/spool"} {
			if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		s, l := newSink(t, filepath.Join(dir, "at"), src, grown)
		var all []byte
		for _, b := range pieces {
			all = append(all, b...)
			for len(b) > 0 {
				n := p.write(t, b[:min(len(b), 30000)])
				b, moved = b[n:], moved+n
				if err := s.Take(p[0], make([]byte, 32<<10)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if killedAt < 0 { // behind all: an unfinished line may be in the spool
			killedAt = len(all)
			if err := os.CopyFS(filepath.Join(dir, "left"), os.DirFS(filepath.Join(dir, "at"))); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		s, l = newSink(t, filepath.Join(dir, "left"), src, func() {})
		for rest := all[killedAt:]; len(rest) > 0; {
			n := p.write(t, rest[:min(len(rest), 30000)])
			rest = rest[n:]
			if err := s.Take(p[0], make([]byte, 32<<10)); err != nil {
				t.Fatal(err)
			}
		}
		s.Cut(time.Now())
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, line := range read(t, filepath.Join(dir, "left", "log"), machine.LogQuery{}) {
			got = append(got, line.Text)
		}
		if want := linesOf(all); !slices.Equal(got, want) {
			t.Fatalf("%d lines, want %d: %.200q, want %.200q", len(got), len(want), got, want)
		}
	})
}

// TestMissingSpoolFallsBackToMemory: on a full disk, and where the spool is gone, output is carried in memory, and no file is left by
// each piece.
func TestMissingSpoolFallsBackToMemory(t *testing.T) {
	dir := t.TempDir()
	full := filepath.Join(dir, "full")
	if err := os.Mkdir(full, 0o700); err != nil {
		t.Fatal(err)
	}
	gone := filepath.Join(dir, "gone")
	spools := []string{gone}
	if err := unix.Mount("none", full, "tmpfs", 0, "size=4096"); err == nil {
		defer func() { _ = unix.Unmount(full, 0) }()
		if err := os.WriteFile(filepath.Join(full, "all"), make([]byte, 4096), 0o600); err != nil {
			t.Fatal(err)
		}
		spools = append(spools, filepath.Join(full, "spool"))
	}
	for i, at := range spools {
		spool, err := output.OpenSpool(at)
		if err != nil {
			t.Fatal(err)
		}
		if at == gone {
			if err := os.Remove(gone); err != nil {
				t.Fatal(err)
			}
		}
		log := filepath.Join(dir, "log"+strconv.Itoa(i))
		l := output.Open(log, 1<<20, 4, func() {})
		s, err := spool.Sink(l, output.Source{Machine: "m", Attempt: 1, Stream: "stdout"})
		if err != nil {
			t.Fatal(err)
		}
		p := newPipe(t)
		for range 50 {
			p.write(t, []byte("line\n"))
			if err := s.Take(p[0], make([]byte, 1<<10)); err != nil {
				t.Fatal(err)
			}
		}
		p.close()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if got := read(t, log, machine.LogQuery{}); len(got) != 50 {
			t.Errorf("%d lines in the log", len(got))
		}
		if es, _ := os.ReadDir(at); len(es) > 0 {
			t.Errorf("%d files are left in %s", len(es), at)
		}
		spool.Close()
	}
}

func newSink(t *rapid.T, dir string, src output.Source, grown func()) (*output.Sink, *output.Log) {
	spool, err := output.OpenSpool(filepath.Join(dir, "spool"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(spool.Close)
	l := output.Open(filepath.Join(dir, "log"), 64<<10, 1000, grown)
	s, err := spool.Sink(l, src)
	if err != nil {
		t.Fatal(err)
	}
	return s, l
}

// linesOf gives the lines of a text as the log has them: long ones in parts.
func linesOf(all []byte) (out []string) {
	for line := range bytes.SplitSeq(all, []byte("\n")) {
		for len(line) > output.MaxPart {
			out = append(out, string(line[:output.MaxPart]))
			line = line[output.MaxPart:]
		}
		out = append(out, string(line))
	}
	if len(out) > 0 && out[len(out)-1] == "" {
		out = out[:len(out)-1]
	}
	return out
}

func logFiles(t *rapid.T, dir string) []string {
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return files
}

func logSize(t *rapid.T, dir string) (n int64) {
	for _, f := range logFiles(t, filepath.Join(dir, "at", "log")) {
		st, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		n += st.Size()
	}
	return n
}

// cutLast takes the last n bytes off the newest file of a log.
func cutLast(t *rapid.T, dir string, n int64) {
	files := logFiles(t, dir)
	last := files[len(files)-1]
	st, err := os.Stat(last)
	if err == nil {
		err = os.Truncate(last, max(0, st.Size()-n))
	}
	if err != nil {
		t.Fatal(err)
	}
}

type pipe [2]int

func newPipe(t rapid.TB) (p pipe) {
	if err := unix.Pipe2(p[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p pipe) write(t rapid.TB, b []byte) int {
	n, err := syscall.Write(p[1], b)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (p pipe) close() { _, _ = unix.Close(p[0]), unix.Close(p[1]) }

// BenchmarkTakeFromPipe takes pieces out of a pipe and into a log: carried in memory, and through the spool.
func BenchmarkTakeFromPipe(b *testing.B) {
	line := []byte("a line of the usual length, as programs print them\n")
	for name, piece := range map[string][]byte{
		"none":  nil, // as for a machine that is silent
		"line":  line,
		"lines": bytes.Repeat(line, 600),            // all of them whole
		"cut":   bytes.Repeat(line, 700)[:32<<10-7], // the last is not
	} {
		for _, mode := range []string{"memory", "spool"} {
			b.Run(name+"/"+mode, func(b *testing.B) {
				var spool *output.Spool
				if mode == "spool" {
					var err error
					if spool, err = output.OpenSpool(filepath.Join(b.TempDir(), "spool")); err != nil {
						b.Fatal(err)
					}
					defer spool.Close()
				}
				l := output.Open(filepath.Join(b.TempDir(), "log"), 1<<20, 4, func() {})
				s, err := spool.Sink(l, output.Source{Machine: "m", Attempt: 1, Stream: "stdout"})
				if err != nil {
					b.Fatal(err)
				}
				p := newPipe(b)
				defer p.close()
				buf := make([]byte, 32<<10)
				b.SetBytes(int64(len(piece)))
				before := cpu()
				for b.Loop() {
					if len(piece) > 0 {
						p.write(b, piece)
					}
					if err := s.Take(p[0], buf); err != nil && !errors.Is(err, syscall.EAGAIN) {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64((cpu()-before).Nanoseconds())/float64(b.N)/1e3, "cpu-us/op")
			})
		}
	}
}

func cpu() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
