package cli

import (
	"testing"

	"github.com/soukhq/souk/machine"
)

// TestTwoOfOneName: in one app only an id tells them apart, in several an app does.
func TestTwoOfOneName(t *testing.T) {
	a := &machine.Line{ID: "d891275c2e5118", App: "web", Worker: "a"}
	b := &machine.Line{ID: "e784079b449483", App: "web", Worker: "b"}
	c := &machine.Line{ID: "148ed193a32789", App: "shop", Worker: "b"}
	for want, named := range map[string][]*machine.Line{
		`2 machines of app web are named "rb1": d891275c2e5118 on a, e784079b449483 on b; give the id`: {a, b},
		`3 machines are named "rb1", in the apps shop, web; give --app, or the id`:                     {a, b, c},
	} {
		if got := ambiguous(named, "rb1").Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
