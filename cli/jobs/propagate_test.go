package jobs

import (
	"maps"
	"testing"

	"github.com/soukhq/souk/core/jobs"
)

// TestLimitsOfTheShellAreRead: those that travel, and no others; in a value that is none there is no limit.
func TestLimitsOfTheShellAreRead(t *testing.T) {
	const text = `Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max open files            333                  20000                files     
Max nice priority         0                    0                    
Max stack size            8388608              unlimited            bytes     
torn
`
	want := map[string]int64{"cpu": jobs.Unlimited, "nofile": 333, "stack": 8388608}
	if got := parseLimits([]byte(text)); !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
	for _, torn := range []string{"", "\n", "Max open files", "Max open files "} {
		if got := parseLimits([]byte(torn)); len(got) != 0 {
			t.Errorf("%q: %v", torn, got)
		}
	}
	if here := propagatedHere(); here.Umask == nil || len(here.Limits) != len(jobs.LimitNames()) {
		t.Errorf("of this process: %+v", here)
	}
}
