package cli

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/backoff"
)

// outlasts is how long a waiting command tries to reach a lost souk: an upgrade takes a second, a restart with many
// machines a few.
const outlasts = 30 * time.Second

// settles is how long a restarted souk may answer "not found" for existing things: in a cluster it learns what others
// have a moment later.
const settles = 5 * time.Second

// outlastPauses are the pauses between tries.
var outlastPauses = backoff.Doubling{Base: 50 * time.Millisecond, Most: time.Second} //nolint:gochecknoglobals // a constant

// Outlast runs f, which waits for or follows something, and runs it again if souk ends meanwhile and comes back: souk's
// state is on disk, so f can continue. f must make only repeatable requests. If souk does not come back in time the
// error is Unavailable: it tells the user that "what" goes on without souk, and to run the command "next". If souk
// answers, but the member that keeps a job does not, f is tried for the same time, and the error is souk's own.
func (c *Env) Outlast(ctx context.Context, cl *client.Client, what, next string,
	f func(context.Context) error) error {
	var lost time.Time // when souk was lost; zero before that
	for tries := 0; ; tries++ {
		begun := time.Now()
		err := f(ctx)
		again := !lost.IsZero() && time.Since(begun) < settles // souk has not come back for good yet
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case fault.Is(err, fault.Unavailable):
		case again && fault.Is(err, fault.NotFound):
		default:
			return err
		}
		answered := fault.CodeOf(err) == fault.CodeJobMember
		if !again {
			lost, tries = time.Now(), 0
			if answered {
				c.Note("%v; trying for %s", err, outlasts)
			} else {
				c.Note("souk has been lost (%v); trying for %s to reach it again", err, outlasts)
			}
		}
		if answered {
			if time.Since(lost) > outlasts {
				return err
			}
			if err := Pause(ctx, outlastPauses.After(tries)); err != nil {
				return err
			}
			continue
		}
		if err := c.awaitSouk(ctx, cl, lost.Add(outlasts), again, err); err != nil {
			if ctx.Err() != nil || !fault.Is(err, fault.Unavailable) {
				return err
			}
			return fault.Wrap(err, fault.Unavailable, fault.CodeLost,
				"souk could not be reached for %s; %s continues without it, and \"%s\" follows it again",
				outlasts, what, next)
		}
	}
}

// awaitSouk waits until souk answers again, and says so, unless it answers at once after an earlier wait.
func (c *Env) awaitSouk(ctx context.Context, cl *client.Client, end time.Time, again bool, lost error) error {
	quiet := again
	for try := 0; ; try++ {
		pause := outlastPauses.After(try)
		if err := Pause(ctx, pause/2+rand.N(pause/2)); err != nil {
			return err
		}
		if time.Now().After(end) {
			return lost
		}
		limited, cancel := context.WithDeadline(ctx, end)
		_, err := cl.Version(limited)
		cancel()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			if !quiet {
				c.Note("souk is back")
			}
			return nil
		case !fault.Is(err, fault.Unavailable) && !fault.Is(err, fault.Timeout):
			return err
		case quiet:
			quiet = false
			c.Note("souk has been lost again (%v)", err)
		}
	}
}

// Pause waits, and ends early with the cause when ctx ends.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Note prints a remark on stderr, besides a command's answer.
func (c *Env) Note(format string, args ...any) { c.note(fmt.Sprintf(format, args...), nil) }

// Until reads a time to come: a duration from now, a time, or a time of the day, which is the next one. "": none.
func Until(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(d), nil
	}
	for _, layout := range []string{time.TimeOnly, "15:04"} {
		if t, err := time.Parse(layout, text); err == nil {
			y, m, d := now.Date()
			at := time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), 0, now.Location())
			if at.Before(now) {
				at = time.Date(y, m, d+1, t.Hour(), t.Minute(), t.Second(), 0, now.Location())
			}
			return at, nil
		}
	}
	for _, layout := range append(timeLayouts(), "2006-01-02T15:04", "2006-01-02 15:04") {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, Usagef("%s is a duration such as 90m, a time such as 2026-01-31T08:00, or a time of the day "+
		"such as 08:00, not %q", flag, text)
}

func timeLayouts() []string {
	return []string{time.RFC3339Nano, "2006-01-02T15:04:05", time.DateTime, time.DateOnly}
}

// Since reads how far back a list goes: a duration before now, or a time. "": no limit.
func Since(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range timeLayouts() {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, Usagef("--since is a duration such as 10m or 2h, or a time such as 2026-01-31T12:00:00Z, "+
		"not %q", text)
}
