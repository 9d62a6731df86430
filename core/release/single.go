package release

import "github.com/soukhq/souk/machine"

// checkSingle refuses settings that contradict Single.
func (g *Group) checkSingle() error {
	if g.Single && g.OnLost != "" && g.OnLost != Never {
		return invalid("group %s is single, so nothing takes the place of a machine that may still run: say on_lost = "+
			"never instead of %s, or leave it out", g.Name, g.OnLost)
	}
	return nil
}

// checkCount refuses a number of machines that the group cannot have.
func (g *Group) checkCount(n int) error {
	switch most := g.most(); {
	case n >= 0 && n <= most:
		return nil
	case most == 1 && g.Single:
		return invalid("group %s is single, so it has 0 or 1 replicas, and %d are asked for: leave single out, or "+
			"make a group for each", g.Name, n)
	case g.Cron != nil:
		return invalid("group %s runs at times (cron), and %d replicas are asked for: 1 has it run, and 0 turns it off",
			g.Name, n)
	case most == 1:
		return invalid("group %s has a volume, which one machine can have, and %d replicas are asked for: ask for 1, "+
			"or make a group for each volume", g.Name, n)
	}
	return checkCount(g.Name, n)
}

// most returns how many machines the group can have.
func (g *Group) most() int {
	if g.Single || g.Cron != nil || g.Config != nil && len(g.Config.Mounts) > 0 {
		return 1
	}
	return machine.MaxReplicas
}
