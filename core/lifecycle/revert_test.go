package lifecycle_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// TestFailedUpdateRestoresTheFormerVersion: a version that does not start leaves the machine at its former one, by config, image, digest,
// scheduling and instance; the answer, which comes when that runs again, says both.
func TestFailedUpdateRestoresTheFormerVersion(t *testing.T) {
	for _, tc := range []struct {
		name, ending string
		before       []act
		state        machine.State
		starts       int
	}{
		{name: "started", state: machine.Started, starts: 2, ending: " runs again"},
		{name: "stopped", before: []act{verb(lifecycle.Stop)}, state: machine.Stopped, starts: 1,
			ending: "; it is at version 01"},
		{name: "broken", before: []act{breaks}, state: machine.Stopped, starts: 1,
			ending: ", which ran before, does not start again: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			w.bad = true
			d := newDriver(w)
			for _, a := range append([]act{create(ofImage, func(g *lifecycle.Grant) {
				g.Launch.Scheduling = &machine.Scheduling{Band: machine.BandBatch}
				g.Request.Scheduling = *g.Launch.Scheduling
			})}, tc.before...) {
				attempt(d, a)
			}
			was := d.sup.Machine("app", m1)
			ticket := verb(lifecycle.Update, newConfig(false), func(c *lifecycle.Command) {
				c.Launch.Scheduling = &machine.Scheduling{Band: machine.BandService}
			})(d)
			d.settle(0)
			rep := d.replies[ticket]
			if fault.CodeOf(rep.Err) != "no_program" {
				t.Fatalf("the answer is %v", rep.Err)
			}
			text := rep.Err.Error()
			if !strings.HasPrefix(text, "there is no such program") || !strings.Contains(text, tc.ending) {
				t.Errorf("the answer is %q, want one with %q", text, tc.ending)
			}
			is := d.sup.Machine("app", m1)
			if is.State != tc.state || is.InstanceID != was.InstanceID || is.Version != was.Version ||
				is.ImageRef.Digest != digest || is.PrivateIP != was.PrivateIP {
				t.Errorf("it is %+v, was %+v", is, was)
			}
			if diff := cmp.Diff([]any{was.Config, was.Scheduling}, []any{is.Config, is.Scheduling}); diff != "" {
				t.Error(diff)
			}
			if v := d.sup.Versions(m1); len(v) != 0 {
				t.Errorf("it has the earlier versions %v", v)
			}
			if w.starts[m1] != tc.starts {
				t.Errorf("%d starts, want %d", w.starts[m1], tc.starts)
			}
			told := false
			for _, e := range is.Events {
				told = told || e.Type == machine.EventRevert && strings.Contains(e.Message, was.InstanceID)
			}
			if !told {
				t.Errorf("no event tells of it: %v", is.Events)
			}
			d.crashAt = 0
			d.boot() // what is on disk says the same
			if again := d.sup.Machine("app", m1); again.InstanceID != was.InstanceID || len(d.sup.Versions(m1)) != 0 {
				t.Errorf("after a restart it is %+v, with versions %v", again, d.sup.Versions(m1))
			}
			if len(w.violations) > 0 {
				t.Error(w.violations)
			}
		})
	}
}

// TestUpdateKeepsPortsUntilItStarted: no other machine gets the ports of the former version while an update is under
// way.
func TestUpdateKeepsPortsUntilItStarted(t *testing.T) {
	w := newWorld()
	w.bad = true
	d := newDriver(w)
	publish := func(g *lifecycle.Grant) {
		g.Launch.Config.Network = &machine.Network{Publish: []machine.Publish{{HostPort: 9000, Port: 80}}}
	}
	attempt(d, create(publish))
	verb(lifecycle.Update, newConfig(false))(d)
	ticket := d.grant(grantOf(v1, publish))
	if err := d.replies[ticket].Err; err == nil || !strings.Contains(err.Error(), "9000") {
		t.Errorf("another machine gets its port: %v", err)
	}
	d.settle(0)
	if m := d.sup.Machine("app", m1); m.State != machine.Started || m.Config.Network == nil {
		t.Errorf("it is %+v", m)
	}
}
