package container

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/runtime/image"
)

func TestBenchRowsNameTheMissedTarget(t *testing.T) {
	ms := func(n ...int) (out []time.Duration) {
		for _, d := range n {
			out = append(out, time.Duration(d)*time.Millisecond)
		}
		return out
	}
	within := func(p50, floor float64) bool { return p50 <= floor+5 }
	for _, c := range []struct {
		row  Row
		want string
	}{
		{timedRow("start", ms(9, 12, 30), ms(8, 10, 10), "<= 15 ms", within),
			"start                      3     12.00     30.00     10.00    1.20  <= 15 ms"},
		{timedRow("start", ms(9, 16, 30), ms(8, 10, 10), "<= 15 ms", within),
			"start                      3     16.00     30.00     10.00    1.60  <= 15 ms  MISSED"},
		{timedRow("floor", ms(1), nil, "", nil), "floor                      1      1.00      1.00         -       -"},
		{Row{Name: "memory", N: 2, Value: new(151.0), Unit: "KB", Want: "< 150 KB", Met: new(false)},
			"memory                     2         -         -         -       -  151.00 KB, < 150 KB  MISSED"},
	} {
		if got := c.row.Text(); got != c.want {
			t.Errorf("\n%s, want\n%s", got, c.want)
		}
	}
}

// TestBuiltImageIsAcceptedByAStore: what the benchmark builds and serves is one for a store.
func TestBuiltImageIsAcceptedByAStore(t *testing.T) {
	raw, err := filesLayer(rand.Reader, 3, 10)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := compressLayer(raw)
	if err != nil {
		t.Fatal(err)
	}
	reg, err := serveImage(name, raw, packed)
	if err != nil {
		t.Fatal(err)
	}
	defer reg.close()
	s, err := image.Open(image.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	pulled, err := s.Pull(t.Context(), reg.name, image.PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Unpack(t.Context(), pulled.Digest); err != nil {
		t.Error(err)
	}
	archive, err := dockerArchive(name, raw)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := s.Load(t.Context(), archive, "the archive")
	if err != nil || len(loaded) != 1 || strings.Join(loaded[0].Config.Cmd, " ") != "sleep 100000" {
		t.Errorf("%v, %v", loaded, err)
	}
}
