package lifecycle_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// TestUnstartedConfigBytesAreBounded: an app that has as many bytes of configs in machines that are not started as a worker
// keeps, older versions included, gets no other machine there and no other version of those, until some are started
// or over; the same after a restart. Another app is not touched.
func TestUnstartedConfigBytesAreBounded(t *testing.T) {
	large := func(g *lifecycle.Grant) {
		g.Launch.SkipLaunch, g.Request.Resources, g.Request.Namespace = true, cluster.Resources{CPU: 1}, "team"
		g.Launch.Config.Env = map[string]string{"LARGE": strings.Repeat("x", 8<<20)}
	}
	w := newWorld()
	d := newDriver(w)
	ask := func(ticket uint64) error {
		for d.step() {
		}
		return d.replies[ticket].Err
	}
	create := func(id, app string) error {
		return ask(d.grant(grantOf(id, large, func(g *lifecycle.Grant) { g.Request.App = app })))
	}
	update := func(id string, skip bool) error {
		l := grantOf(id, large).Launch
		l.SkipLaunch = skip
		return ask(d.do(lifecycle.Command{Verb: lifecycle.Update, App: "app", Machine: id, Launch: l,
			Resources: &cluster.Resources{CPU: 1}}))
	}
	full := func(what string, err error) {
		t.Helper()
		if !fault.Is(err, fault.Exhausted) ||
			!strings.Contains(err.Error(), "machines: wanted 1 machine more of app app") {
			t.Errorf("%s: %v", what, err)
		}
	}
	const first = "00000000000001"
	n := 0
	for bytes := 0; bytes < market.MaxAppUnstartedBytes; bytes += 8 << 20 {
		var err error
		if n++; n%2 == 0 {
			err = update(fmt.Sprintf("%014x", n-1), true) // what it had is kept as well
		} else {
			err = create(fmt.Sprintf("%014x", n), "app")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	full("a create", create("aaaaaaaaaaaaaa", "app"))
	d.boot()
	full("a create after a restart", create("aaaaaaaaaaaaaa", "app"))
	full("an update", update(first, true))
	if err := create("bbbbbbbbbbbbbb", "other"); err != nil {
		t.Error(err)
	}
	if err := update(first, false); err != nil {
		t.Errorf("an update that starts it: %v", err)
	}
	if m := d.sup.Machine("app", first); m == nil || m.State != machine.Started {
		t.Fatalf("%+v", m)
	}
	if err := create("aaaaaaaaaaaaaa", "app"); err != nil {
		t.Errorf("when one is started: %v", err)
	}
}
