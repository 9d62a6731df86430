package rollout

import (
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// TestASingleIsReplacedAlone: the machine of the release before goes first, and the next one is made when it is gone.
func TestASingleIsReplacedAlone(t *testing.T) {
	e := newEstate(Group{Single: true})
	e.stewards["m1"] = NewSteward(cluster.Term{})
	var did []string
	run := func() {
		for range 10 {
			e.look("m1", func() cluster.WorkerID { return "w1" })
			for _, x := range e.wires {
				if x.order != nil {
					did = append(did, string(x.order.Verb))
				}
				e.arrive(x)
				e.answer(x)
			}
			e.tell("w1")
			e.wires, e.now = nil, e.now.Add(time.Second)
		}
	}
	run()
	e.deploy("two", Group{Single: true})
	run()
	if got := strings.Join(did, " "); got != "make remove make" {
		t.Errorf("%s; want make remove make", got)
	}
}

// TestCountsOfASingle: more than one is refused, with a sentence, and a number that was set before does not stay.
func TestCountsOfASingle(t *testing.T) {
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
