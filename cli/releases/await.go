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
	"github.com/soukhq/souk/core/rollout"
	"github.com/soukhq/souk/fault"
)

// Await waits until the rollout of the release of h is done, and returns what there is then. It says on stderr how far
// that is, of one group or where group is "" of all. A rollout that is undone or paused ends it, with an error; so does
// a release that is made meanwhile, and ctx. The service goes on. Of a head of an older souk, which knows of no
// rollouts, it waits until the machines are ready.
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
		case s.Head != nil && s.Head.Number < h.Number: // the member that is asked has not heard of it yet
		case s.Head != nil && s.Head.Release != h.Release:
			return s, fault.New(fault.Conflict, "overtaken",
				"another release of %s is wanted meanwhile, %s by %s; \"souk releases %s\" lists them", app,
				rollout.Short(s.Head.Release), cmp.Or(s.Head.By, "somebody"), app)
		default:
			over, err := arrived(&s, group)
			if over && done.IsZero() {
				done = time.Now()
			}
			if err != nil || over && (allHeard(&s, group) || time.Since(done) > hearWithin) {
				return s, err
			}
			if text := progressText(&s, group); text != told && !over {
				told = text
				c.Note("%s", text)
			}
		}
		if err := cli.Pause(ctx, pause); err != nil {
			return s, err
		}
	}
}

// hearWithin is how long the member that is asked may take to hear of machines that the steward knows of.
const hearWithin = 2 * time.Second

// allHeard reports whether the member that was asked knows of as many machines as are wanted, of a group or of all.
func allHeard(s *api.ServiceStatus, group string) bool {
	return !slices.ContainsFunc(s.Groups, func(g api.GroupStatus) bool {
		return (group == "" || g.Name == group) && g.There < g.Wanted
	})
}

// arrived reports whether what is waited for is so, or why it is not to be.
func arrived(s *api.ServiceStatus, group string) (bool, error) {
	if r := s.Rollout; r != nil {
		return r.State == rollout.RolledDone, outcome(s.App, r)
	}
	over := s.Why == ""
	for i := range s.Groups {
		g := &s.Groups[i]
		if group != "" && g.Name != group {
			continue
		}
		if g.Ready >= g.Wanted && !replacing(g) {
			continue
		}
		if err := given(s.App, g); err != nil {
			return false, err
		}
		over = false
	}
	return over, nil
}

// progressText says how far it is.
func progressText(s *api.ServiceStatus, group string) string {
	if r := s.Rollout; r != nil && r.State == rollout.RolledUndoing {
		return fmt.Sprintf("%s: %s; release %s is made again", s.App, cmp.Or(r.Why, "the rollout failed"),
			rollout.Short(r.InForce))
	}
	if r := s.Rollout; r != nil && r.State == rollout.RolledRunning &&
		(r.Command == "waiting" || r.Command == "running") {
		return s.App + ": " + commandText(r)
	}
	var parts []string
	for i := range s.Groups {
		g := &s.Groups[i]
		if group != "" && g.Name != group || g.Image == "" {
			continue
		}
		parts = append(parts, fmt.Sprintf("%s of %s: %d of %d ready, %d there", g.Name, s.App, g.Ready, g.Wanted,
			g.There))
	}
	text := strings.Join(parts, "; ")
	if r := s.Rollout; r != nil && r.State == rollout.RolledWaiting {
		text += fmt.Sprintf("; it waits%s: \"souk promote %s\" has it go on", stepText(r), s.App)
	}
	return text
}
