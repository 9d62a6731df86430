package releases

import (
	"cmp"
	"fmt"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Show prints an app's wanted service and its machines.
func Show(c *cli.Env, s *api.ServiceStatus) {
	if c.JSON {
		c.JSONLine(c.Out, s)
		return
	}
	now := time.Now()
	if s.Head == nil {
		c.Printf("%s has a release that this souk cannot use: %s\n", s.App, s.Why)
	} else {
		c.Printf("%s wants %s of release %s\n", s.App, cmp.Or(wantedText(s), "machines"), release.Short(inForce(s)))
		c.Field("since", "%s ago, number %d, %s by %s", age(s.Head.At, now), s.Head.Number, s.Head.Why,
			cmp.Or(s.Head.By, "somebody"))
		if s.Why != "" {
			c.Field("lacks", "%s", s.Why)
		}
		printRollout(c, s, now)
	}
	c.Field("steward", "%s", stewardText(&s.Steward))
	for i := range s.Groups {
		g := &s.Groups[i]
		c.Field("group", "%s: %d wanted, %d there, %d ready%s", g.Name, g.Wanted, g.There, g.Ready, imageText(g))
		for _, line := range scaleLines(g, now) {
			c.Field(line[0], "%s", line[1])
		}
		if g.Lost != "" {
			c.Field("lost", "%s", g.Lost)
		}
		if g.Blamed {
			c.Field("fault", "machines of %s die again and again at several workers, so the release is at fault",
				g.Name)
		}
		for _, x := range g.Slots {
			if x.Waits != "" {
				c.Field("waits", "%s", x.Waits)
				break // the group's other replicas wait for the same reason
			}
		}
	}
	printSlots(c, s)
	if n := missing(s); n > 0 {
		c.Field("why", "\"souk why %s\" says why %s no machine, and what would help", s.App,
			cli.NumberOf(n, "replica has", "replicas have"))
	}
	printJobs(c, s.Jobs, now)
}

// missing counts the replicas without a machine.
func missing(s *api.ServiceStatus) (n int) {
	for i := range s.Groups {
		for _, x := range s.Groups[i].Slots {
			if x.Machine == "" {
				n++
			}
		}
	}
	return n
}

// scaleLines describe an autoscaled group.
func scaleLines(g *api.GroupStatus, now time.Time) (out [][2]string) {
	a := g.Autoscale
	if a == nil {
		return nil
	}
	what := fmt.Sprintf("load %d, %d a machine", a.Load, a.Target)
	if a.Metric == release.CPU {
		what = fmt.Sprintf("load %d%%, %d%% of the CPUs of a machine", a.Load, a.Target)
	}
	text := fmt.Sprintf("%s: %d of %d..%d by %s, %s", g.Name, g.Wanted, a.Min, a.Max, a.Metric, what)
	switch {
	case a.Off:
		text = fmt.Sprintf("%s: off, as its number was set to 0; \"souk scale\" to %d..%d turns it on", g.Name, a.Min,
			a.Max)
	case a.At != nil:
		text += fmt.Sprintf("; %s ago from %d to %d", age(*a.At, now), a.From, g.Wanted)
	}
	out = append(out, [2]string{"scales", text})
	if a.Lacks != "" {
		text = fmt.Sprintf("%s wants %d and has %d: %s", g.Name, g.Wanted, g.There, a.Lacks)
		out = append(out, [2]string{"room", text})
	}
	return out
}

// inForce returns the release that the machines should have now.
func inForce(s *api.ServiceStatus) string {
	if s.Rollout != nil {
		return s.Rollout.InForce
	}
	return s.Head.Release
}

func imageText(g *api.GroupStatus) string {
	if g.Image == "" {
		return "; no group of the release"
	}
	return ", " + machine.ShortImage(g.Image)
}

func stewardText(s *api.ServiceSteward) string {
	who := cmp.Or(string(s.Member), "this souk")
	switch {
	case s.Busy && (s.By == s.Member || s.Member == ""):
		return fmt.Sprintf("%s, at work in term %d", who, s.Term)
	case s.Busy:
		return fmt.Sprintf("%s, which takes over from %s (term %d)", who, s.By, s.Term)
	case s.Term == 0:
		return who + ", which has begun nothing yet"
	}
	return fmt.Sprintf("%s, at rest since term %d", who, s.Term)
}

func printSlots(c *cli.Env, s *api.ServiceStatus) {
	head := []cli.Column{cli.Keep("REPLICA"), cli.Drop("MACHINE", 2), cli.Drop("WORKER", 3).Cut(10), cli.Keep("STATE"),
		cli.Keep("READY"), cli.Drop("RELEASE", 1), cli.Reason("NOTE")}
	var rows [][]cli.Cell
	for i := range s.Groups {
		for _, x := range s.Groups[i].Slots {
			replica := release.Slot{Group: s.Groups[i].Name, Index: x.Index}.String()
			if x.Machine == "" {
				note := "no machine yet"
				if x.Unmade != "" {
					note += ": " + x.Unmade
				}
				rows = append(rows, []cli.Cell{{Text: replica}, {Text: "-"}, {Text: "-"}, {Text: "-"},
					{Text: "no", Colour: "33"}, {Text: "-"}, {Text: note}})
				continue
			}
			ready := cli.Cell{Text: "yes", Colour: "32"}
			if !x.Ready {
				ready = cli.Cell{Text: "no", Colour: "33"}
			}
			rows = append(rows, []cli.Cell{{Text: replica}, {Text: x.Machine}, {Text: string(x.Worker)},
				{Text: string(x.State)}, ready, {Text: cmp.Or(release.Short(x.Release), "-")}, {Text: noteText(&x)}})
		}
	}
	if len(rows) > 0 {
		c.Table(head, rows)
	}
}

// noteText returns a remark on a replica's machine.
func noteText(x *api.SlotStatus) string {
	switch {
	case x.Unheard:
		return "its worker is not heard"
	case x.Held != "":
		return "held: it died 5 times in 5 minutes"
	case x.To != "":
		return "goes to " + string(x.To)
	case x.Extra && !x.Old && !x.Ready:
		return "coming up"
	case x.Extra:
		return "not wanted any more"
	case x.Old:
		return "to be replaced"
	}
	return ""
}

// given returns why a group does not become ready by itself: a machine of it is held down; nil: none is.
func given(app string, g *api.GroupStatus) error {
	for _, x := range g.Slots {
		if x.Held != "" && !x.Old && !x.Extra {
			return fault.New(fault.Precondition, fault.CodeHeld,
				"%s, so replica %d of group %s of %s is not ready: see "+
					"\"souk logs %s\"", x.Held, x.Index, g.Name, app, x.Machine)
		}
	}
	return nil
}
