package release

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// Slot is one replica of a group of a service. One machine stands for it.
type Slot struct {
	Group string
	Index int
}

// String returns the slot as text, such as "web/0".
func (s Slot) String() string { return s.Group + "/" + strconv.Itoa(s.Index) }

// Compare orders slots.
func (s Slot) Compare(o Slot) int {
	return cmp.Or(cmp.Compare(s.Group, o.Group), cmp.Compare(s.Index, o.Index))
}

// MachineID returns the ID of the machine for a slot of an app at an epoch. app is the app's own ID, which no later
// app of that name has. steward is the member that orders it: two members that do not hear each other may have terms
// with one number, and then make two machines with different IDs.
func (s Slot) MachineID(app string, epoch uint64, steward cluster.WorkerID) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "souk replica %s %s %d %d %s", app, s.Group, s.Index, epoch, steward))
	return hex.EncodeToString(sum[:7])
}

// MachineName returns the unique name of the slot's machine with an ID.
func (s Slot) MachineName(id string) string {
	return s.Group + "-" + strconv.Itoa(s.Index) + "-" + id[:min(4, len(id))]
}

// homeWeight is the weight of the worker of the replaced machine: more than any policy's scores.
const homeWeight = 1000

// direct is the strategy that places a machine alone and at once.
const direct = "direct"

// Launch returns the launch of the machine with an ID for a slot of the group. By default, the group's machines are
// spread over workers. home is the preferred worker; "": none.
func (g *Group) Launch(s Slot, id string, home cluster.WorkerID, secrets uint64) *machine.Launch {
	l := &machine.Launch{ID: id, Name: s.MachineName(id), Region: g.Region, Config: g.Config}
	at := g.scheduling()
	said := len(at.Require) + len(at.Prefer) + len(at.Tolerate) + len(at.Affinity) + len(at.Spread)
	if home != "" && said < cluster.MaxRequirements {
		is := cluster.Requirement{Attribute: "worker", Op: cluster.Equal,
			Values: []cluster.Value{cluster.Text(string(home))}}
		at.Prefer = append(slices.Clone(at.Prefer), cluster.Preference{Requirement: is, Weight: homeWeight})
		at.Strategy = cmp.Or(at.Strategy, direct) // each goes to its own home, so none waits to be placed with others
	}
	if !reflect.DeepEqual(at, machine.Scheduling{}) {
		l.Scheduling = &at
	}
	if secrets > 0 {
		l.MinSecretsVersion = &secrets
	}
	return l
}

// scheduling returns the group's scheduling, with the defaults that follow from the group.
func (g *Group) scheduling() (at machine.Scheduling) {
	if g.Scheduling != nil {
		at = *g.Scheduling
	}
	if len(at.Spread) == 0 && len(at.Affinity) == 0 && g.Replicas != 1 {
		at.Spread = []machine.Spread{{Attribute: "worker"}}
	}
	return at
}

// Launch returns the launch of the machine with an ID for a replica, or for a run, of the release. home is as in
// Group.Launch.
func (r *Release) Launch(of *machine.Replica, id string, home cluster.WorkerID) *machine.Launch {
	g := *r.Group(of.Group)
	switch {
	case of.Run == machine.RunCommand && r.Command != nil:
		g.Config = r.Command.config(g.Config)
	case of.Run != "":
		g.Config = onceConfig(g.Config)
	}
	l := g.Launch(Slot{of.Group, of.Index}, id, home, r.Secrets)
	switch of.Run {
	case "":
	case machine.RunCommand:
		l.Name = g.Name + "-command-" + id[:4]
	default: // there are many of them
		l.Name = g.Name + "-" + id[:8]
	}
	return l
}

// SpreadBy returns the attribute over whose values the group's machines are spread; "": they are not.
func (g *Group) SpreadBy() string {
	s := g.scheduling()
	switch {
	case !g.Movable():
		return ""
	case len(s.Spread) > 0:
		return s.Spread[0].Attribute
	}
	return ""
}
