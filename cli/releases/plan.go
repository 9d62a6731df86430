package releases

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/core/rollout"
	"github.com/soukhq/souk/fault"
)

// planChanges is the exit code of a plan that has something to do, and room for it.
const planChanges = 1

// ShowPlan prints what a deploy would do, and returns what the command ends with.
func ShowPlan(c *cli.Env, p *api.ReleasePlan) error {
	if c.JSON {
		c.JSONLine(c.Out, p)
	} else {
		printPlan(c, p)
		hereNote(c, p.ImagesHere)
	}
	switch err := Unfit(p); {
	case err != nil:
		return err
	case p.Changes:
		return cli.TaskCode(planChanges)
	}
	return nil
}

// Unfit is the error of a release that has no room for its first step; nil where it has.
func Unfit(p *api.ReleasePlan) error {
	code, advice := "no_capacity", ""
	switch {
	case p.Fits == api.FitsNow:
		return nil
	case p.Fits == api.FitsNever:
		code, advice = "never_fits", "; ask for less, or add a larger worker"
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

func printPlan(c *cli.Env, p *api.ReleasePlan) {
	head := []cli.Column{cli.Keep("REPLICA"), cli.Keep("DOES"), cli.Keep("MACHINE"), cli.Keep("WORKER"),
		cli.Drop("WHY", 1).Cut(12)}
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
	c.Table(head, rows)
	for i := range p.Groups {
		if g := &p.Groups[i]; g.Strategy != "" {
			c.Field("group", "%s", groupPlanText(g))
		}
	}
}

func doesCell(d rollout.Does) cli.Cell {
	colours := map[rollout.Does]string{rollout.Create: "32", rollout.Destroy: "31", rollout.Keep: ""}
	colour, known := colours[d]
	if !known {
		colour = "33"
	}
	return cli.Cell{Text: string(d), Colour: colour}
}

// groupPlanText is one line of how a group is changed, and whether that has room.
func groupPlanText(g *api.PlannedGroup) string {
	text := fmt.Sprintf("%s: %s, %s, at most %s for %d wanted", g.Name, g.Strategy, g.Order,
		cli.NumberOf(max(g.There, g.Wanted+g.Surge), "machine", "machines"), g.Wanted)
	switch {
	case g.First == 0:
		return text
	case g.Fits == api.FitsNow:
		return text + "; fits now"
	case g.Fits == api.FitsNever:
		return text + "; never fits"
	}
	return text + fmt.Sprintf("; no room now: %d of the first %d fit", g.Placed, g.First)
}
