package release

import (
	"fmt"
	"time"
)

// Tells says in one sentence what happens to the group's machines at a worker that cannot be reached, and for how long
// two may run for one replica. usual is as in LostWithin.
func (g *Group) Tells(usual time.Duration) string {
	after, stop := g.LostWithin(usual), g.StopsAfter()
	kills := fmt.Sprintf("a worker that hears no other member for %v kills them", stop)
	switch lost := g.Lost(); {
	case lost == Never:
		text := "its machines are waited for while their worker is not heard, and two run only while a release " +
			"replaces one"
		if g.Single {
			text = "its machine is waited for while its worker is not heard, and two never run"
		}
		if stop > 0 {
			text += "; " + kills
		}
		return text
	case stop > 0:
		return fmt.Sprintf("%s, and others take their place after %v: two run only where it hears a member that is "+
			"cut off with it, until it is heard again", kills, after)
	case lost == Fenced:
		return fmt.Sprintf("others take the place of its machines once their worker is not heard for %v; where it is "+
			"only cut off two run until it is heard again, and the smaller SOUK_FENCE is to be refused", after)
	}
	return fmt.Sprintf("others take the place of its machines once their worker is not heard for %v; where it is only "+
		"cut off two run until it is heard again", after)
}
