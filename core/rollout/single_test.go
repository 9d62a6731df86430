package rollout

import (
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
)

// TestSingletonIsRemovedBeforeItsReplacement: the machine of the release before goes first, and the next one is made when it is gone.
func TestSingletonIsRemovedBeforeItsReplacement(t *testing.T) {
	e := newEstate(release.Group{Single: true})
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
	e.deploy("two", release.Group{Single: true})
	run()
	if got := strings.Join(did, " "); got != "make remove make" {
		t.Errorf("%s; want make remove make", got)
	}
}
