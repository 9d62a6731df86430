package release

import (
	"testing"
	"time"

	"github.com/soukhq/souk/machine"
)

// TestOverlapOfTwoReplicasIsDescribed: each kind of group says for how long two of its machines may run.
func TestOverlapOfTwoReplicasIsDescribed(t *testing.T) {
	stop := &machine.Duration{Duration: 2 * time.Second}
	for name, x := range map[string]struct {
		group Group
		want  string
	}{
		"replace": {Group{}, "others take the place of its machines once their worker is not heard for 10s; where it " +
			"is only cut off two run until it is heard again"},
		"fenced": {Group{OnLost: Fenced, LostAfter: stop}, "others take the place of its machines once their worker " +
			"is not heard for 2s; where it is only cut off two run until it is heard again, and the smaller " +
			"SOUK_FENCE is to be refused"},
		"stops": {Group{StopAfter: stop}, "a worker that hears no other member for 2s kills them, and others take " +
			"their place after 10s: two run only where it hears a member that is cut off with it, until it is " +
			"heard again"},
		"never": {Group{OnLost: Never}, "its machines are waited for while their worker is not heard, and two run " +
			"only while a release replaces one"},
		"single that stops": {Group{Single: true, StopAfter: stop}, "its machine is waited for while its worker is " +
			"not heard, and two never run; a worker that hears no other member for 2s kills them"},
	} {
		x.group.Config = &machine.Config{Image: "i"}
		if got := x.group.Tells(10 * time.Second); got != x.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
