package strangers

import (
	"bytes"
	"context"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestLogLinesOfAFloodAreLimitedAndCounted: of a flood of lines few are written, and the sum of what was left out is right.
func TestLogLinesOfAFloodAreLimitedAndCounted(t *testing.T) {
	var out bytes.Buffer
	h := Few(slog.New(slog.NewTextHandler(&out, nil)), 5, time.Second).Handler()
	begin, said := time.Now(), 0
	say := func(at time.Duration) {
		t.Helper()
		said++
		if err := h.Handle(context.Background(), slog.NewRecord(begin.Add(at), slog.LevelInfo, "odd", 0)); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 {
		say(0)
	}
	say(1500 * time.Millisecond) // one more may be written
	say(1600 * time.Millisecond)
	say(2100 * time.Millisecond)
	for range 10 { // after a while as many as in the beginning
		say(time.Hour)
	}
	h.(few).tell(slog.Record{})
	h.(few).tell(slog.Record{}) // what was told is not told again
	lines, omitted := strings.Count(out.String(), "\n"), 0
	for _, m := range regexp.MustCompile(`left_out=(\d+)`).FindAllStringSubmatch(out.String(), -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		omitted += n
	}
	const own = 1 // the line that tells
	if lines != 5+1+1+5+own || lines-own+omitted != said {
		t.Errorf("of %d lines %d are written, and %d are told to be left out:\n%s", said, lines, omitted, out.String())
	}
}
