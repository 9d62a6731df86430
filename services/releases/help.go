package releases

import (
	"slices"
	"strconv"
	"strings"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/core/rollout"
	"github.com/soukhq/souk/machine"
)

// An edit changes a group whose first step has no room, and returns the setting it made; "": no change.
type edit func(g *release.Group, u *release.Update, x *groupTrial, p *rollout.GroupPlan) (set string)

// edits returns the edits to try, the smallest first.
func edits() [][]edit {
	return [][]edit{{lessSurge}, {stopFirst}, {higherBand}, {fewer}, {stopFirst, fewer}}
}

// higherBand lets a group that names no band evict machines of lower rank.
func higherBand(g *release.Group, _ *release.Update, _ *groupTrial, _ *rollout.GroupPlan) string {
	var s machine.Scheduling
	if g.Scheduling != nil {
		s = *g.Scheduling
	}
	if s.Band != "" || s.Lent {
		return ""
	}
	s.Band = machine.BandService
	g.Scheduling = &s
	return "scheduling.band = " + strconv.Quote(string(s.Band))
}

// lessSurge lowers the surge to the number of extra machines that have room.
func lessSurge(_ *release.Group, u *release.Update, x *groupTrial, p *rollout.GroupPlan) string {
	gradual := p.Strategy == release.Rolling || p.Strategy == release.Canary
	if x.besidePlaced == 0 || x.besidePlaced == x.beside || !gradual {
		return ""
	}
	u.MaxSurge = strconv.Itoa(x.besidePlaced)
	return "update.max_surge = " + strconv.Quote(u.MaxSurge)
}

// stopFirst stops old machines before their successors are made.
func stopFirst(_ *release.Group, u *release.Update, x *groupTrial, p *rollout.GroupPlan) string {
	if x.beside == 0 || p.Order == release.StopFirst {
		return ""
	}
	text := "update.order = \"stop-first\""
	if p.Strategy == release.BlueGreen {
		text, u.Strategy = "update.strategy = \"rolling\", "+text, release.Rolling
	}
	if u.Order, u.MaxSurge = release.StopFirst, ""; p.Group.Update != nil && p.Group.Update.MaxSurge != "" {
		text += " without max_surge"
	}
	return text
}

// fewer lowers the replicas to the number that has room.
func fewer(g *release.Group, _ *release.Update, x *groupTrial, p *rollout.GroupPlan) string {
	n := p.Wanted - x.news + x.newsPlaced
	if x.news == x.newsPlaced || n < 1 {
		return ""
	}
	g.Replicas = n
	return "replicas = " + strconv.Itoa(n)
}

// help returns the smallest edits of groups without room that would make the release fit now; nil: no known edit does.
func help(of *release.Release, t *trial, foresee func(*release.Release) (*trial, error)) (out []api.PlanHelp) {
	for _, list := range edits() {
		next := *of
		next.Groups = slices.Clone(of.Groups)
		out = nil
		for i := range next.Groups {
			g := &next.Groups[i]
			x := t.groups[g.Name]
			if x.fits == api.FitsNow {
				continue
			}
			var u release.Update
			if g.Update != nil {
				u = *g.Update
			}
			at := slices.IndexFunc(t.plan.Groups, func(p rollout.GroupPlan) bool { return p.Name == g.Name })
			var sets []string
			for _, e := range list {
				if set := e(g, &u, x, &t.plan.Groups[at]); set != "" {
					sets = append(sets, set)
				}
			}
			if len(sets) > 0 {
				g.Update = &u
				out = append(out, api.PlanHelp{Group: g.Name, Set: strings.Join(sets, ", ")})
			}
		}
		if len(out) == 0 {
			continue
		}
		if after, err := foresee(&next); err == nil && after.fits() == api.FitsNow {
			return out
		}
	}
	return nil
}
