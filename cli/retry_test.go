package cli

import (
	"testing"
	"time"

	"github.com/soukhq/souk/machine"
)

func TestRetryTextSaysWhyAndWhenNext(t *testing.T) {
	now := time.Date(2026, 11, 26, 10, 0, 0, 0, time.UTC)
	in := func(d time.Duration) string { return now.Add(d).Format(time.RFC3339Nano) }
	const ended = "its program ended with exit code 3"
	for want, r := range map[string]machine.Retry{
		"create failed 4 times; next try in 3 s: no route": {Operation: "create", Tries: 4, Reason: "no route",
			Next: in(3 * time.Second)},
		"start failed once; it is tried again now: x": {Operation: "start", Tries: 1, Reason: "x"},
		ended + "; next try in 28 s": {Operation: "restart", Tries: 9, Reason: ended,
			Next: in(28 * time.Second)},
		ended + "; next try in 1 s": {Operation: "restart", Tries: 1, Reason: ended, Next: in(-time.Second)},
	} {
		if got := RetryText(&r, now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
