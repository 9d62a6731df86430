package release

import (
	"strings"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// TestSingletonGroupRefusesMoreThanOne: more than one is refused, with a sentence, and a number that was set before does not stay.
func TestSingletonGroupRefusesMoreThanOne(t *testing.T) {
	of := func(g Group) *Release {
		g.Name, g.Replicas = "web", 1
		if g.Config == nil {
			g.Config = &machine.Config{Image: "i"}
		}
		return &Release{Schema: Schema, Groups: []Group{g}}
	}
	plain := of(Group{})
	scaled := next(t, nil, Change{Release: plain.ID(), Counts: map[string]int{"web": 5}}, plain, nil)
	for name, x := range map[string]struct {
		r    *Release
		says string
	}{
		"single": {of(Group{Single: true}), "is single, so it has 0 or 1 replicas, and 2 are asked for"},
		"a volume": {of(Group{Config: &machine.Config{Image: "i", Mounts: []machine.Mount{{Name: "d", Path: "/d"}}}}),
			"has a volume, which one machine can have, and 2 replicas are asked for"},
	} {
		h := next(t, scaled, Change{Release: x.r.ID()}, x.r, plain)
		if n := h.Count(&x.r.Groups[0]); n != 1 {
			t.Errorf("%s: %d are wanted", name, n)
		}
		_, err := h.Next(Change{Counts: map[string]int{"web": 2}}, x.r, x.r, Progress{})
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
