package releases

import (
	"strings"
	"testing"

	"github.com/soukhq/souk/core/rollout"
	"github.com/soukhq/souk/machine"
)

// TestStays: what keeps a replica's machine where it is, is said.
func TestStays(t *testing.T) {
	release := &rollout.Release{Groups: []rollout.Group{
		{Name: "web", Config: &machine.Config{}},
		{Name: "db", Config: &machine.Config{Mounts: []machine.Mount{{Name: "data", Path: "/data"}}}},
	}}
	for _, tt := range []struct {
		replica machine.Replica
		in      *rollout.Release
		want    string
	}{
		{machine.Replica{Group: "web"}, release, ""},
		{machine.Replica{Group: "web", Run: machine.RunCommand}, release, "it runs once"},
		{machine.Replica{Group: "db"}, release, "its volume is there"},
		{machine.Replica{Group: "old"}, release, "does not want it any more"},
		{machine.Replica{Group: "web"}, nil, "does not want it any more"},
	} {
		got := staysText(&machine.Machine{Replica: &tt.replica}, tt.in)
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%+v: %q, want %q", tt.replica, got, tt.want)
		}
	}
}
