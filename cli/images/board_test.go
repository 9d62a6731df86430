package images

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cluster"
)

// TestProgressLineFollowsPullFromStartToEnd: nothing is known, then how much there is, then what has come, then how it ended.
func TestProgressLineFollowsPullFromStartToEnd(t *testing.T) {
	l := &line{name: "w1", of: map[string]cluster.ImageProgress{}}
	says := func(want string) {
		t.Helper()
		if got := l.text(); got != want {
			t.Errorf("it says %q, not %q", got, want)
		}
	}
	says("w1  asking the registry")
	l.tell(cluster.ImageProgress{Blob: "a", Size: 30 << 20})
	l.tell(cluster.ImageProgress{Blob: "b", Size: 10 << 20})
	says("w1  [....................] 0 KB of 40 MB, 0 of 2 parts")
	l.tell(cluster.ImageProgress{Blob: "b", Size: 10 << 20, Done: 10 << 20, Here: true})
	l.tell(cluster.ImageProgress{Blob: "a", Size: 30 << 20, Done: 15 << 20})
	says("w1  [############........] 25 MB of 40 MB, 1 of 2 parts")
	l.tell(cluster.ImageProgress{Blob: "a", Size: 30 << 20, Done: 30 << 20})
	if _, _, sent, ready := l.sums(); sent != 30<<20 || ready != 2 {
		t.Errorf("%d bytes were sent of %d parts", sent, ready)
	}
	l.end("failed")
	says("w1  failed")
	stdin := &line{of: map[string]cluster.ImageProgress{}}
	stdin.tell(cluster.ImageProgress{Blob: "-", Done: 3 << 20})
	if got := stdin.text(); got != "3.0 MB" {
		t.Errorf("of a load from stdin it says %q", got)
	}
}

// TestProgressBoardErasesItself: it writes over what it wrote, cuts what is too wide, and leaves nothing.
func TestProgressBoardErasesItself(t *testing.T) {
	var out bytes.Buffer
	b := newBoard(&cli.Env{Err: &bytes.Buffer{}, Getenv: func(string) string { return "" }, Width: 30}, "w1",
		"a-worker-with-a-very-long-name\x1b[2J")
	b.w, b.on = &out, true
	b.show()
	b.show()
	b.close()
	text := out.String()
	if strings.Count(text, "\x1b[2A\r\x1b[J") != 2 || !strings.HasSuffix(text, "\r\x1b[J") ||
		strings.Contains(text, "2J") {
		t.Errorf("%q", text)
	}
	for _, l := range strings.Split(regexp.MustCompile(`\x1b\[[0-9]*[A-Z]|\r`).ReplaceAllString(text, ""), "\n") {
		if cli.TextWidth(l) > 29 {
			t.Errorf("%q is wider than the terminal", l)
		}
	}
}

func TestSizesArePrintedInBinaryUnits(t *testing.T) {
	for n, want := range map[int64]string{0: "0 KB", 1: "1 KB", 1<<20 - 1: "1024 KB", 1 << 20: "1.0 MB",
		54 << 20: "54 MB", 3 << 30: "3.0 GB"} {
		if got := cli.Bytes(n); got != want {
			t.Errorf("%d bytes are %q, not %q", n, got, want)
		}
	}
}
