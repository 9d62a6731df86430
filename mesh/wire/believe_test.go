package wire

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// TestWorkerBelievesNoUncheckedMemberRequest: what a member with a good certificate asks is held against the rules for clients. Once a
// directory of the host was copied and removed so, and the ledger charged less than was used.
func TestWorkerBelievesNoUncheckedMemberRequest(t *testing.T) {
	base := t.TempDir()
	victim := filepath.Join(base, "victim")
	must(t, os.Mkdir(victim, 0o700))
	k := realWorker(t, filepath.Join(base, "state", "worker"))
	w, ctx := far(t, k), t.Context()
	grant := func(change func(*lifecycle.Grant)) func() error {
		return func() error {
			g := aGrant("00000000000001")
			change(&g)
			_, err := w.Grant(ctx, g)
			return err
		}
	}
	volume := func(c lifecycle.VolumeCommand) func() error {
		return func() error { _, err := w.Volume(ctx, c); return err }
	}
	up := "../../../victim"
	one := machine.Volume{SizeGB: 1}
	for name, ask := range map[string]func() error{
		"a volume beside the worker's": volume(lifecycle.VolumeCommand{Verb: "create", App: "a", Volume: up,
			Spec: one}),
		"one destroyed": volume(lifecycle.VolumeCommand{Verb: "destroy", App: "a", Volume: up}),
		"a copy from outside": volume(lifecycle.VolumeCommand{Verb: "create", App: "a", Volume: "vol_1", Spec: one,
			SourceVol: up}),
		"a snapshot by pattern": volume(lifecycle.VolumeCommand{Verb: "create", App: "a", Volume: "vol_1", Spec: one,
			Snapshot: "*"}),
		"an app that is a path": volume(lifecycle.VolumeCommand{Verb: "create", App: "../a", Volume: "vol_1",
			Spec: one}),
		"less in the ledger than in the config": grant(func(g *lifecycle.Grant) {
			g.Request.Resources = cluster.Resources{CPU: 1, Memory: 1}
		}),
		"another band": grant(func(g *lifecycle.Grant) {
			g.Launch.Scheduling = &machine.Scheduling{Band: machine.BandFree}
			g.Request.Scheduling.Band = machine.BandSystem
		}),
		"more cpus than there may be": grant(func(g *lifecycle.Grant) {
			g.Launch.Config.Guest.CPUs = machine.MaxCPUs + 1
			g.Request.Resources = machine.Resources(g.Launch.Config)
		}),
		"a file outside": grant(func(g *lifecycle.Grant) {
			text := "eA=="
			g.Launch.Config.Files = []machine.File{{GuestPath: "../../x", RawValue: &text}}
		}),
		"an app of the machine that is a path": grant(func(g *lifecycle.Grant) { g.Request.App = "../a" }),
		"a resize to less than nothing": func() error {
			_, err := w.Do(ctx, lifecycle.Command{Verb: lifecycle.Resize, App: "a", Machine: "00000000000001",
				Resize: &machine.Resize{CPUMilli: -300}})
			return err
		},
		"a resize that says nothing": func() error {
			_, err := w.Do(ctx, lifecycle.Command{Verb: lifecycle.Resize, App: "a", Machine: "00000000000001"})
			return err
		},
		"an update that is charged less": func() error {
			c := aGrant("00000000000001").Launch
			_, err := w.Do(ctx, lifecycle.Command{Verb: lifecycle.Update, App: "a", Machine: "00000000000001",
				Launch: c, Resources: &cluster.Resources{CPU: 1}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := ask(); !fault.Is(err, fault.Invalid) {
				t.Errorf("answered %v", err)
			}
		})
	}
	if _, err := os.Stat(victim); err != nil {
		t.Error("a directory outside is gone:", err)
	}
	if rec, err := w.Record(ctx); err != nil || rec.Machines != 0 || !rec.Used.IsZero() {
		t.Errorf("something was made: %+v, %v", rec, err)
	}
}

// TestVolumeCopyStaysWithinItsApp: a volume is not filled from another app's, whoever asks.
func TestVolumeCopyStaysWithinItsApp(t *testing.T) {
	w, ctx := far(t, realWorker(t, t.TempDir())), t.Context()
	_, err := w.Volume(ctx, lifecycle.VolumeCommand{Verb: "create", App: "a", Volume: "vol_1",
		Spec: machine.Volume{SizeGB: 1}})
	must(t, err)
	for app, want := range map[string]fault.Code{"b": "source_not_found", "a": ""} {
		_, err := w.Volume(ctx, lifecycle.VolumeCommand{Verb: "create", App: app, Volume: "vol_2" + app,
			Spec: machine.Volume{SizeGB: 1}, SourceVol: "vol_1"})
		if fault.CodeOf(err) != want {
			t.Errorf("app %s: %v", app, err)
		}
	}
}

// TestHoldsCountAgainstTheCallingMember: what is held counts for the member that asked, as its certificate names it.
func TestHoldsCountAgainstTheCallingMember(t *testing.T) {
	k := realWorker(t, t.TempDir())
	w, ctx := far(t, k), t.Context()
	ask := func(g Granter, token string) error {
		_, err := g.Hold(ctx, lifecycle.HoldCommand{Token: token, TTL: time.Minute,
			Request: placement.Request{App: "a", Machine: "00000000000001"}})
		return err
	}
	for i := range market.MaxHoldsEach {
		must(t, ask(w, string(rune('a'+i))))
	}
	if err := ask(w, "one more"); !fault.Is(err, fault.Exhausted) {
		t.Errorf("one member may have all holds: %v", err)
	}
	if err := ask(k, "near"); err != nil {
		t.Errorf("the worker's own member is refused for what another holds: %v", err)
	}
}
