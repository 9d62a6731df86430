package releases

import (
	"testing"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
)

// TestLostPolicyComesFromGroupThenApp: the group's policy decides about machines of a silent worker, else the app's; a
// machine with a volume is waited for.
func TestLostPolicyComesFromGroupThenApp(t *testing.T) {
	mounts := []machine.Mount{{Volume: "vol_1", Path: "/data"}}
	for _, x := range []struct {
		app    string
		group  release.OnLost
		mounts []machine.Mount
		want   release.OnLost
	}{
		{"", "", nil, ""}, {"fast", "", nil, release.Replace}, {"fenced", "", nil, release.Fenced},
		{"never", "", nil, release.Never}, {"fast", "never", nil, release.Never}, {"fast", "", mounts, ""},
	} {
		app := catalog.App{Disconnect: x.app}
		g := release.Group{OnLost: x.group, Config: &machine.Config{Mounts: x.mounts}}
		if got := onLost(&app, &g); got != x.want {
			t.Errorf("app %q, group %q: %q", x.app, x.group, got)
		}
	}
}
