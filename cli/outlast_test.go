package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
)

// TestRetryOfLostConnectionEndsWithExitCode69: after half a minute without a connection the command exits with 69,
// says that the operation goes on, and prints the command that follows it.
func TestRetryOfLostConnectionEndsWithExitCode69(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs bytes.Buffer
		c := &Env{Err: &errs}
		tries := 0
		begin := time.Now()
		err := c.Outlast(t.Context(), client.New("127.0.0.1:1", "t"), "web", "souk wait web",
			func(context.Context) error {
				tries++
				return fault.Wrap(errors.New("EOF"), fault.Unavailable, "unreachable", "no souk answers")
			})
		if took := time.Since(begin); took < outlasts || took > outlasts+2*time.Second {
			t.Errorf("it gave up after %s", took)
		}
		if ExitCode(err) != 69 || tries != 1 || !strings.Contains(err.Error(), `"souk wait web" follows it`) {
			t.Errorf("after %d tries: %v", tries, err)
		}
		if strings.Count(errs.String(), "souk has been lost") != 1 {
			t.Errorf("it says %q", errs.String())
		}
	})
}

// TestUnreachableMemberOfAJobIsAskedForAgain: souk answers, but the member that keeps the job does not. The command tries
// for half a minute at a slow pace. It goes on when that member is back; otherwise it ends with souk's own sentence.
func TestUnreachableMemberOfAJobIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := fault.New(fault.Unavailable, fault.CodeJobMember, "job x is kept by m3, which does not answer")
		for _, x := range []struct {
			back time.Duration // when the member is back
			code int
		}{{10 * time.Second, 0}, {time.Hour, 69}} {
			var errs bytes.Buffer
			c := &Env{Err: &errs}
			tries, begin := 0, time.Now()
			err := c.Outlast(t.Context(), client.New("127.0.0.1:1", "t"), "x", "souk job wait x",
				func(context.Context) error {
					if tries++; time.Since(begin) >= x.back {
						return nil
					}
					return silent
				})
			if ExitCode(err) != x.code || tries > 40 || strings.Contains(errs.String(), "souk has been lost") ||
				strings.Count(errs.String(), "is kept by m3") != 1 {
				t.Errorf("after %d tries and %s: %v, and it says %q", tries, time.Since(begin), err, errs.String())
			}
			if took := time.Since(begin); took > outlasts+2*time.Second {
				t.Errorf("it took %s", took)
			}
		}
	})
}
