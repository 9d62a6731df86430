package releases

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
)

// Await waits until the rollout of head h is done and its machines are ready, and returns the status then. It prints
// progress on stderr, of one group, or of all with group "". It also returns when a canary waits for a promotion. It
// returns an error if the rollout is undone or paused, another release is made meanwhile, a replica does not become
// ready, or ctx ends. The service goes on in any case.
func Await(ctx context.Context, c *cli.Env, cl *client.Client, app, group string,
	h *api.Head) (last api.ServiceStatus, err error) {
	next := "souk status --app " + app
	err = c.Outlast(ctx, cl, app, next, func(ctx context.Context) error {
		last, err = await(ctx, c, cl, app, group, h)
		return err
	})
	if ctx.Err() != nil {
		c.Note("the machines of %s are seen to all the same; \"%s\" tells how far that is", app, next)
	}
	return last, err
}

func await(ctx context.Context, c *cli.Env, cl *client.Client, app, group string,
	h *api.Head) (api.ServiceStatus, error) {
	told, done := "", time.Time{}
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		s, err := cl.Service(ctx, app)
		switch {
		case ctx.Err() != nil:
			return s, context.Cause(ctx)
		case err != nil:
			return s, err
		case s.Head != nil && s.Head.Number < h.Number: // the answering member does not know the head yet
		case s.Head != nil && s.Head.Release != h.Release:
			return s, fault.New(fault.Conflict, codeOvertaken,
				"app %s was given another release meanwhile, %s by %s; \"souk releases %s\" lists them", app,
				release.Short(s.Head.Release), cmp.Or(s.Head.By, "somebody"), app)
		default:
			over, err := arrived(&s)
			if over && done.IsZero() {
				done = time.Now()
			}
			if err == nil && over {
				over, err = fit(&s, group, time.Since(done))
			}
			if err != nil || over {
				return s, err
			}
			if text := progressText(&s, group); text != told {
				told = text
				c.Note("%s", text)
			}
		}
		if err := cli.Pause(ctx, pause); err != nil {
			return s, err
		}
	}
}

// Bounds of the wait for machines of a rollout that is done.
const (
	hearWithin = 2 * time.Second  // for the answering member to learn of machines that the steward knows
	fitWithin  = 30 * time.Second // for a machine to become ready again, before the wait fails
)

// arrived reports whether the rollout goes no further by itself, or returns an error if it failed.
func arrived(s *api.ServiceStatus) (bool, error) {
	r := s.Rollout
	if r == nil {
		return s.Why == "", nil
	}
	return r.State == release.RolledDone || r.State == release.RolledWaiting, outcome(s.App, r)
}

// fit reports whether the replicas of a group, or of all groups, are as wanted, after time since their rollout was
// done. The error is a Precondition, code not_ready or held: a replica is not ready, and will not be soon.
func fit(s *api.ServiceStatus, group string, after time.Duration) (bool, error) {
	well := true
	whole := s.Rollout == nil || s.Rollout.State == release.RolledDone // rollout over: old machines do not count
	for i := range s.Groups {
		g := &s.Groups[i]
		if group != "" && g.Name != group {
			continue
		}
		if err := given(s.App, g); err != nil {
			return false, err
		}
		if whole && after <= hearWithin && slices.ContainsFunc(g.Slots, leaves) {
			well = false // the member may not know of its end yet
		}
		lacks, why := unfit(g, whole)
		unheard := g.There < g.Wanted && after > hearWithin && g.Autoscale != nil // an autoscaled group may lack room
		switch {
		case lacks == 0, unheard:
		case after > fitWithin:
			return false, fault.New(fault.Precondition, fault.CodeNotReady,
				"%d of %d replicas of group %s of %s are not "+
					"ready%s: \"souk why %s\" says more", lacks, g.Wanted, g.Name, s.App, why, s.App)
		default:
			well = false
		}
	}
	return well, nil
}

// leaves reports whether a machine is on its way out.
func leaves(x api.SlotStatus) bool { return x.Machine != "" && (x.Old || x.Extra) }

// unfit counts the replicas of a group that are neither ready nor asleep, and says why the first of them is not, after
// a comma. fresh says that machines of an older release do not count.
func unfit(g *api.GroupStatus, fresh bool) (n int, why string) {
	well := map[int]bool{}
	for i := range g.Slots {
		x := &g.Slots[i]
		well[x.Index] = well[x.Index] || x.Machine != "" && (x.Ready || x.Asleep) && !(fresh && x.Old)
		if lacks := cmp.Or(x.Unmade, x.Unfit); why == "" && lacks != "" && !x.Extra &&
			(!x.Old || x.Unmade != "") {
			why = ", " + lacks
		}
	}
	n = g.Wanted
	for index := range g.WantedSlots() { // replicas without a machine are not among the slots
		if well[index] {
			n--
		}
	}
	return max(0, n), why
}

// progressText describes a rollout's progress.
func progressText(s *api.ServiceStatus, group string) string {
	if r := s.Rollout; r != nil && r.State == release.RolledUndoing {
		return fmt.Sprintf("%s: %s; release %s is made again", s.App, cmp.Or(r.Why, "the rollout failed"),
			release.Short(r.InForce))
	}
	if r := s.Rollout; r != nil && r.State == release.RolledRunning &&
		(r.Command == "waiting" || r.Command == "running") {
		return s.App + ": " + commandText(r)
	}
	var parts []string
	for i := range s.Groups {
		g := &s.Groups[i]
		if group != "" && g.Name != group || g.Image == "" {
			continue
		}
		parts = append(parts, fmt.Sprintf("%s of %s: %s", g.Name, s.App, readyText(g)))
	}
	text := strings.Join(parts, "; ")
	if r := s.Rollout; r != nil && r.State == release.RolledWaiting {
		text += fmt.Sprintf("; it waits%s: \"souk promote %s\" has it go on", stepText(r), s.App)
	}
	return text
}

// readyText says how many replicas of a group have a machine that is ready, how many still have one of the previous
// release, and why a new one is not ready.
func readyText(g *api.GroupStatus) string {
	fresh, old, why := map[int]bool{}, map[int]bool{}, ""
	wanted := g.WantedSlots()
	for i := range g.Slots {
		x, unfit := &g.Slots[i], ""
		switch {
		case x.Machine == "" || !wanted[x.Index]:
		case x.Old && (x.Ready || x.Asleep):
			old[x.Index] = true
		case !x.Old && (x.Ready || x.Asleep):
			fresh[x.Index] = true
		case !x.Old:
			unfit = x.Unfit
		}
		if lacks := cmp.Or(x.Unmade, unfit); why == "" && lacks != "" {
			why = "; " + release.Slot{Group: g.Name, Index: x.Index}.String() + ": " + lacks
		}
	}
	if len(old) == 0 {
		return fmt.Sprintf("%d of %d ready%s", len(fresh), g.Wanted, why)
	}
	return fmt.Sprintf("%d of %d new ready, %d old up%s", len(fresh), g.Wanted, len(old), why)
}
