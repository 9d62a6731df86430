package releases

import (
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/release"
)

func TestReleaseFailingAtTwoWorkersIsBlamed(t *testing.T) {
	if !blamed(&api.GroupStatus{Slots: []api.SlotStatus{{Machine: "a", Worker: "w1"}, {Machine: "b", Worker: "w2"}}},
		[]release.Held{{Machine: "a"}, {Machine: "b"}}) {
		t.Error("a release whose machines die at two workers is not blamed")
	}
}
