package releases

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
)

// Pause makes the command "souk pause".
func Pause(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "pause APP", Short: "Pause the rollout of an app: no further machine is replaced",
		Long: `Pause the rollout of an app: machines that are being replaced are replaced, and no further one. Machines that die are
started again meanwhile, and "souk scale" works. "souk resume" has it go on. (A machine is frozen by "souk suspend".)`,
		Example: "  souk pause shop\n  souk pause shop --json | jq .paused",
		Args:    cli.Args(1, 1, "an app")}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return change(cmd.Context(), c, args[0], release.Change{Why: release.WhyPause})
	}
	return cmd
}

// Resume makes the command "souk resume".
func Resume(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "resume APP", Short: "Resume a paused rollout, or retry one that was undone",
		Long: `Resume the rollout of an app that is paused, by "souk pause" or because it failed. One that failed and was undone is tried
again. ("souk start" resumes a machine that is suspended.)`,
		Example: "  souk resume shop\n  souk resume shop --json | jq .number",
		Args:    cli.Args(1, 1, "an app")}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return change(cmd.Context(), c, args[0], release.Change{Why: release.WhyResume})
	}
	return cmd
}

// Promote makes the command "souk promote".
func Promote(c *cli.Env) *cobra.Command {
	want := release.Change{Why: release.WhyPromote}
	cmd := &cobra.Command{Use: "promote APP", Short: "Have the canary of an app go on to its next step",
		Long: `Have the canary of an app go on to its next step, whether or not the one that it is at would end by itself; after the
last step all machines are replaced. "souk status --app APP" tells at which step it is.`,
		Example: "  souk promote shop\n  souk promote shop --all",
		Args:    cli.Args(1, 1, "an app")}
	cmd.Flags().BoolVar(&want.All, "all", false, "skip all steps: replace all machines")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return change(cmd.Context(), c, args[0], want)
	}
	return cmd
}

// Rollback makes an earlier release of an app the wanted one; to "": the one before the newest rollout.
func Rollback(ctx context.Context, c *cli.Env, app, to string) error {
	return change(ctx, c, app, release.Change{Why: release.WhyBack, Release: to})
}

// change changes the rollout of an app, and prints its new state.
func change(ctx context.Context, c *cli.Env, app string, want release.Change) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	h, err := cl.Change(ctx, app, want)
	if err != nil {
		return known(app, err)
	}
	if len(h.RenewedSecrets) > 0 {
		c.Note("the values of %s that the release had are erased: its machines begin with the newest ones",
			strings.Join(h.RenewedSecrets, ", "))
	}
	if c.JSON {
		c.JSONLine(c.Out, h.Head)
		return nil
	}
	s, err := cl.Service(ctx, app)
	if err != nil {
		return err
	}
	c.Printf("%s wants %s of release %s, number %d\n", app, cmp.Or(wantedText(&s), "machines"),
		release.Short(inForce(&s)), h.Number)
	printRollout(c, &s, time.Now())
	c.Field("next", "souk status --app %s", app)
	return nil
}

// printRollout prints the rollout of a service.
func printRollout(c *cli.Env, s *api.ServiceStatus, now time.Time) {
	r := s.Rollout
	if r == nil {
		return
	}
	c.Field("rollout", "%s", rolloutText(s.App, r, now))
	if r.Command != "" {
		c.Field("command", "%s", commandText(r))
	}
	if r.Why != "" {
		c.Field("why", "%s", r.Why)
		c.Field("output", "%s", outputText(s.App, r))
	}
	if len(r.Failed) == 1 && r.Failed[0].Why == r.Why {
		return
	}
	for _, f := range r.Failed {
		c.Field("failed", "%s: %s", failedText(&f), f.Why)
	}
}

// commandText describes the state of the release's command.
func commandText(r *api.Rollout) string {
	text := map[string]string{"waiting": "the release command is to run first", "running": "the release command runs",
		"done": "the release command has ended with 0", "failed": "the release command failed"}[r.Command]
	if r.CommandMachine != "" {
		text += "; souk logs " + r.CommandMachine
	}
	return text
}

// failedText names a replica that failed, and its machine.
func failedText(f *api.RolloutFailure) string {
	slot := release.Slot{Group: f.Group, Index: f.Index}.String()
	if f.Machine == "" {
		return slot
	}
	return slot + " (" + f.Machine + ")"
}

// rolloutText describes a rollout's state, since when, and what the user can do.
func rolloutText(app string, r *api.Rollout, now time.Time) string {
	id := release.Short(r.Release)
	since := ", for " + age(r.Since, now)
	switch r.State {
	case release.RolledDone:
		return fmt.Sprintf("release %s is rolled out, since %s ago", id, age(r.Since, now))
	case release.RolledUndone:
		return fmt.Sprintf("release %s failed and was undone %s ago; release %s is wanted again", id,
			age(r.Since, now), release.Short(r.Before))
	case release.RolledUndoing:
		return fmt.Sprintf("release %s failed and is being undone%s: release %s is wanted again", id, since,
			release.Short(r.Before))
	case release.RolledPaused:
		who := "as it failed"
		if r.Asked {
			who = "by " + cmp.Or(r.By, "somebody")
		}
		return fmt.Sprintf("release %s is paused %s%s%s; \"souk resume %s\" has it go on", id, who, stepText(r),
			since, app)
	case release.RolledWaiting:
		return fmt.Sprintf("release %s waits%s%s; \"souk promote %s\" has it go on", id, stepText(r), since, app)
	}
	return fmt.Sprintf("release %s is being rolled out%s%s", id, stepText(r), since)
}

// stepText says at which step a canary is, counted from 1; "": no canary.
func stepText(r *api.Rollout) string {
	switch {
	case r.Steps == 0:
		return ""
	case r.Step >= r.Steps:
		return fmt.Sprintf(" after its %d steps", r.Steps)
	}
	text := fmt.Sprintf(" at step %d of %d", r.Step+1, r.Steps)
	for i, at := range r.Canary {
		text += fmt.Sprintf("%s%d of %d of %s new", [...]string{" with ", ", "}[min(i, 1)], at.New, at.Wanted, at.Group)
	}
	return text
}

// outcome returns the error of a failed rollout; nil while it runs and when it is done.
func outcome(app string, r *api.Rollout) error {
	why := cmp.Or(r.Why, "no reason was told")
	switch {
	case r.State == release.RolledUndone:
		return fault.New(fault.Precondition, codeUndone, "release %s of %s failed and was undone, so the app is "+
			"back at release %s: %s", release.Short(r.Release), app, release.Short(r.Before), why)
	case r.State == release.RolledPaused && r.Asked:
		return fault.New(fault.Precondition, fault.CodePaused,
			"the rollout of release %s of %s was paused by %s; \"souk resume %s\" continues it",
			release.Short(r.Release), app, cmp.Or(r.By, "somebody"), app)
	case r.State == release.RolledPaused:
		return fault.New(fault.Precondition, fault.CodePaused,
			"release %s of %s failed and is paused: %s; deploy another, or "+
				"\"souk resume %s\" tries this one again", release.Short(r.Release), app, why, app)
	}
	return nil
}
