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
