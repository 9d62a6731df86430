package releases

import (
	"strings"
	"testing"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// TestStaysReportsWhyAReplicaCannotMove: what keeps a replica's machine where it is, is said.
func TestStaysReportsWhyAReplicaCannotMove(t *testing.T) {
	wanted := &release.Release{Groups: []release.Group{
		{Name: "web", Config: &machine.Config{}},
		{Name: "db", Config: &machine.Config{Mounts: []machine.Mount{{Name: "data", Path: "/data"}}}},
	}}
	for _, tt := range []struct {
		replica machine.Replica
		in      *release.Release
		want    string
	}{
		{machine.Replica{Group: "web"}, wanted, ""},
		{machine.Replica{Group: "web", Run: machine.RunCommand}, wanted, "it runs once"},
		{machine.Replica{Group: "db"}, wanted, "its volume is there"},
		{machine.Replica{Group: "old"}, wanted, "does not want it any more"},
		{machine.Replica{Group: "web"}, nil, "does not want it any more"},
	} {
		got := staysText(&machine.Machine{Replica: &tt.replica}, tt.in)
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%+v: %q, want %q", tt.replica, got, tt.want)
		}
	}
}
