package machine_test

import (
	"testing"

	"github.com/soukhq/souk/machine"
)

// TestGangMembershipIsReadFromMetadata: what commands take for a gang, and of which one a machine is.
func TestGangMembershipIsReadFromMetadata(t *testing.T) {
	for s, want := range map[string]bool{"gang/4f1c0a93be62d8517a20c9e4": true, "gang/train": true, "gang/": false,
		"gang/3": false, "gang": false, "web/0": false, "x/gang/1": false} {
		if machine.IsGang(s) != want {
			t.Errorf("%q is a gang: %v", s, !want)
		}
	}
	of := func(gang, rank string) *machine.Config {
		return &machine.Config{Metadata: map[string]string{machine.MetadataGang: gang, machine.MetadataRank: rank}}
	}
	for _, c := range []struct {
		config *machine.Config
		gang   string
		rank   int
	}{{nil, "", 0}, {&machine.Config{}, "", 0}, {of("", "3"), "", 0}, {of("a1", "3"), "gang/a1", 3},
		{of("a1", "no"), "gang/a1", 0}, {of("a1", "-2"), "gang/a1", 0}} {
		if gang, rank := machine.GangOf(c.config); gang != c.gang || rank != c.rank {
			t.Errorf("%+v: %q, %d", c.config, gang, rank)
		}
	}
	m := machine.Machine{Config: of("a1", "3")}
	if l := m.Line(); l.Gang != "gang/a1" || l.Rank != 3 {
		t.Errorf("%+v", l)
	}
}
