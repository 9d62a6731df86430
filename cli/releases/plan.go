package releases

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
)

// planChanges is the exit code of a plan that has changes, and room for them.
const planChanges = 1

// ShowPlan prints what a deploy would do, and returns the command's error or exit code.
func ShowPlan(c *cli.Env, p *api.ReleasePlan) error {
	if c.JSON {
		c.JSONLine(c.Out, p)
	} else {
		printPlan(c, p)
		hereNote(c, p.ImagesHere)
		Warn(c, p.Warnings)
	}
	switch err := Unfit(p); {
	case err != nil:
		return err
	case p.Changes:
		return cli.TaskCode(planChanges)
	}
	return nil
}

// Unfit returns the error of a release without room for its first step; nil: it has room.
func Unfit(p *api.ReleasePlan) error {
	code, advice := fault.CodeNoCapacity, ""
	switch {
	case p.Fits == api.FitsNow:
		return nil
	case p.Fits == api.FitsNever:
		if code = fault.CodeNeverFits; tooLarge(p) {
			advice = "; ask for less, or add a larger worker"
		}
	case len(p.Help) == 0:
		advice = "; ask for less, or try again when something has stopped"
	default:
		sets := make([]string, len(p.Help))
		for i, h := range p.Help {
			sets[i] = fmt.Sprintf("%s in group %s", h.Set, h.Group)
		}
		advice = "; it would fit with " + strings.Join(sets, " and ")
	}
	return fault.New(fault.Exhausted, code, "%s has no room for the release: %s%s", p.App, p.Why, advice)
}

// tooLarge reports whether a release never fits because no worker takes it. Otherwise its sentence says what is
// missing.
func tooLarge(p *api.ReleasePlan) bool {
	return slices.ContainsFunc(p.Groups, func(g api.PlannedGroup) bool {
		return g.Fits == api.FitsNever && len(g.Failing) > 0
	})
}

func printPlan(c *cli.Env, p *api.ReleasePlan) {
	head := []cli.Column{cli.Keep("REPLICA"), cli.Keep("DOES"), cli.Keep("MACHINE"), cli.Keep("WORKER"),
		cli.Reason("WHY")}
	var rows [][]cli.Cell
	for i := range p.Groups {
		g := &p.Groups[i]
		for _, r := range g.Replicas {
			worker := cmp.Or(string(r.Worker), "-")
			if r.To != "" {
				worker += " to " + string(r.To)
				if r.Worker == "" {
					worker = string(r.To)
				}
			}
			rows = append(rows, []cli.Cell{{Text: fmt.Sprintf("%s/%d", g.Name, r.Index)}, doesCell(r.Does),
				{Text: cmp.Or(r.Machine, "-")}, {Text: worker}, {Text: cmp.Or(r.Why, "-")}})
		}
	}
	if len(rows) > 0 || len(p.Jobs) == 0 && !p.Command {
		c.Table(head, rows)
	}
	if p.Command {
		c.Field("command", "the release command runs first; nothing is changed before it has ended with 0")
	}
	for i := range p.Groups {
		if g := &p.Groups[i]; g.Strategy != "" {
			c.Field("group", "%s", groupPlanText(g))
		}
	}
	if p.Credits > 0 {
		c.Field("quota", "its first step costs %.3g credits an hour more", p.Credits)
	}
	for _, v := range p.Volumes {
		c.Field("volume", "%s of %d GB is made for group %s", v.Name, v.SizeGB, v.Group)
	}
	for _, name := range p.Jobs {
		c.Field("job", "%s: its next run is of the new release, or there is none", name)
	}
}

func doesCell(d release.Does) cli.Cell {
	colours := map[release.Does]string{release.Create: "32", release.Destroy: "31", release.Keep: ""}
	colour, known := colours[d]
	if !known {
		colour = "33"
	}
	return cli.Cell{Text: string(d), Colour: colour}
}

// groupPlanText is one line on how a group changes, and whether it has room.
func groupPlanText(g *api.PlannedGroup) string {
	text := fmt.Sprintf("%s: %s, %s, at most %s for %d wanted", g.Name, g.Strategy, g.Order,
		cli.NumberOf(max(g.There, g.Wanted+g.Surge), "machine", "machines"), g.Wanted)
	for i, n := range g.Canary {
		text += fmt.Sprintf("%s%d", [...]string{", at its steps ", ", "}[min(i, 1)], n)
	}
	if len(g.Canary) > 0 {
		text += " of them new"
	}
	switch {
	case g.First == 0:
		return text
	case g.Fits == api.FitsNow && g.Evicts > 0:
		return text + "; fits now, and evicts " + cli.NumberOf(g.Evicts, "machine", "machines") + " of lower rank"
	case g.Fits == api.FitsNow:
		return text + "; fits now"
	case g.Fits == api.FitsNever:
		return text + "; never fits"
	}
	return text + fmt.Sprintf("; no room now: %d of the first %d fit", g.Placed, g.First)
}
