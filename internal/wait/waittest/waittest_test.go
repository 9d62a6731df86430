package waittest_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/internal/wait/waittest"
)

// failing keeps what a test that fails says.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// said returns what a test says that waits in vain.
func said(t *testing.T, wait func(t testing.TB)) string {
	f := &failing{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		wait(f)
	}()
	<-ended
	return f.said
}

func TestUntilSeesTheConditionSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		waittest.Until(t, "it is so", func() bool { return true })
		if took := time.Since(begun); took != 0 {
			t.Errorf("what is so took %v", took)
		}
		seconds := func() int { return int(time.Since(begun) / time.Second) }
		if got := waittest.See(t, "a minute has passed", seconds, func(n int) bool { return n >= 60 }); got != 60 {
			t.Errorf("it was seen after %d seconds", got)
		}
		tries := 0
		waittest.Succeed(t, "the third try", func() error {
			if tries++; tries < 3 {
				return errors.New("no")
			}
			return nil
		})
	})
}

func TestGivingUpReportsTheLastValueSeen(t *testing.T) {
	for want, wait := range map[string]func(t testing.TB){
		"until it is so": func(t testing.TB) {
			waittest.Until(t, "it is so", func() bool { return false })
		},
		"until there are seven; last seen: 6": func(t testing.TB) {
			waittest.See(t, "there are seven", func() int { return 6 }, func(n int) bool { return n == 7 })
		},
		"until it works; last seen: no room": func(t testing.TB) {
			waittest.Succeed(t, "it works", func() error { return errors.New("no room") })
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			if got := said(t, wait); !strings.HasSuffix(got, want) || time.Since(begun) != waittest.Patience {
				t.Errorf("it says %q after %v, want %q", got, time.Since(begun), want)
			}
		})
	}
}
