package releases

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/core/rollout"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
)

// unmade are the volumes that a release mounts by name and that do not exist yet, by their future ids.
type unmade map[string]unmadeVolume

type unmadeVolume struct {
	group string // the first that mounts it
	spec  machine.Volume
}

// plan lists the volumes for a plan, sorted by group and name.
func (u unmade) plan() (out []api.ReleaseVolume) {
	for _, v := range u {
		out = append(out, api.ReleaseVolume{Group: v.group, Name: v.spec.Name, SizeGB: v.spec.SizeGB})
	}
	slices.SortFunc(out, func(x, y api.ReleaseVolume) int {
		return cmp.Or(cmp.Compare(x.Group, y.Group), cmp.Compare(x.Name, y.Name))
	})
	return out
}

// of reports whether a config mounts one of these volumes.
func (u unmade) of(c *machine.Config) bool {
	return c != nil && slices.ContainsFunc(c.Mounts, func(m machine.Mount) bool { return u[m.Volume].group != "" })
}

// without returns a copy of a launch that asks for disk instead of the unmade volumes that it mounts, since no worker
// has them.
func (u unmade) without(l *machine.Launch) *machine.Launch {
	if !u.of(l.Config) {
		return l
	}
	out, c := *l, *l.Config
	var root machine.Rootfs
	if c.Rootfs != nil {
		root = *c.Rootfs
	}
	c.Mounts = nil
	for _, m := range l.Config.Mounts {
		if v, is := u[m.Volume]; is {
			root.SizeGB += uint64(v.spec.SizeGB) //nolint:gosec // 1 to MaxVolumeGB
		} else {
			c.Mounts = append(c.Mounts, m)
		}
	}
	c.Rootfs, out.Config = &root, &c
	return &out
}

// nameVolumes replaces volume names in a release's mounts by the ids of the app's volumes. A missing volume with a size
// gets a new id and is returned, to be made.
func (a *Releases) nameVolumes(ctx context.Context, app string, in *api.NewRelease) (unmade, error) {
	byName := func(m machine.Mount) bool { return m.Volume != "" && !machine.ValidVolumeID(m.Volume) }
	if !slices.ContainsFunc(in.Groups, func(g api.NewGroup) bool {
		return g.Config != nil && slices.ContainsFunc(g.Config.Mounts, byName)
	}) {
		return nil, nil //nolint:nilnil // none is to be made
	}
	there, silent, err := a.Directory.Volumes(ctx, app)
	if err != nil {
		return nil, err
	}
	n := naming{a, app, there, silent, unmade{}}
	for i := range in.Groups {
		g := &in.Groups[i]
		if g.Config == nil {
			continue
		}
		for j, m := range g.Config.Mounts {
			if !byName(m) {
				continue
			}
			if g.Config.Mounts[j], err = n.mount(g.Name, m); err != nil {
				return nil, fault.Wrap(err, fault.KindOf(err), fault.As(err).Code, "group %s",
					fault.Clip(cmp.Or(g.Name, `""`), 80))
			}
		}
	}
	return n.unmade, nil
}

// naming resolves volume names.
type naming struct {
	*Releases
	app    string
	there  []machine.Volume
	silent []find.Unanswered // unreachable workers, which may have more volumes
	unmade unmade
}

// mount converts a mount by a volume's name to one by its id, and keeps the name.
func (n *naming) mount(group string, m machine.Mount) (machine.Mount, error) {
	wanted := api.NewVolume{Name: m.Volume}
	if m.SizeGB != 0 {
		wanted.SizeGB = &m.SizeGB
	}
	spec, err := wanted.Spec()
	if err != nil {
		return m, err
	}
	m.Name, m.Volume, m.SizeGB = spec.Name, "", 0
	has, named := n.mounted(group, spec.Name), n.named(spec.Name)
	if i := slices.IndexFunc(named, func(v machine.Volume) bool { return v.ID == has }); i >= 0 {
		named = named[i : i+1] // of several keep the one that the group mounts already
	}
	switch {
	case len(named) > 1:
		return m, fault.New(fault.Conflict, fault.CodeAmbiguous,
			"%d volumes of app %s are named %s: give the id of one, as "+
				"\"souk volumes --app %s\" tells it", len(named), n.app, spec.Name, n.app)
	case len(named) == 1 && wanted.SizeGB != nil && named[0].SizeGB < spec.SizeGB:
		return m, fault.New(fault.Precondition, codeVolumeSize, "volume %s of app %s has %d GB and is to have %d: "+
			"\"souk volumes extend %s %d --app %s\" makes it larger", spec.Name, n.app, named[0].SizeGB, spec.SizeGB,
			spec.Name, spec.SizeGB, n.app)
	case len(named) == 1:
		m.Volume = named[0].ID
		return m, nil
	case len(n.silent) > 0 && has != "": // it is at an unreachable worker
		m.Volume = has
		return m, nil
	case len(n.silent) > 0:
		return m, n.Directory.Nowhere(find.VolumeMissing, n.silent)
	case wanted.SizeGB == nil:
		return m, fault.New(fault.NotFound, find.VolumeMissing, "app %s has no volume named %s: say its size, as in "+
			"size = \"10g\", and a deploy makes it, or make it with \"souk volumes create %s --app %s\"", n.app,
			spec.Name, spec.Name, n.app)
	}
	for id, v := range n.unmade {
		if v.spec.Name == spec.Name {
			m.Volume = id
			return m, nil
		}
	}
	m.Volume = machine.NewVolumeID(n.Rand)
	n.unmade[m.Volume] = unmadeVolume{group, spec}
	return m, nil
}

// named lists the volumes with a name.
func (n *naming) named(name string) (out []machine.Volume) {
	for _, v := range n.there {
		if v.State != "destroyed" && v.Name == name {
			out = append(out, v)
		}
	}
	return out
}

// mounted returns the volume that a group of the current release mounts under a name; "": none.
func (n *naming) mounted(group, name string) string {
	s, there := n.Catalog.Service(n.app)
	if !there || s.Release == nil {
		return ""
	}
	if g := s.Release.Group(group); g != nil && g.Config != nil {
		for _, m := range g.Config.Mounts {
			if m.Name == name {
				return m.Volume
			}
		}
	}
	return ""
}

// makeVolumes makes a release's missing volumes, each at a worker where a machine of its group has room.
func (a *Releases) makeVolumes(ctx context.Context, app *catalog.App, want *release.Change,
	un unmade) (made []api.ReleaseVolume, err error) {
	if len(un) == 0 {
		return nil, nil
	}
	if _, err := a.Catalog.Foresee(app.Name, *want); err != nil {
		return nil, err // make nothing for a refused release
	}
	space, err := a.Namespaces.NamespaceOf(app.Name)
	if err != nil {
		return nil, err
	}
	next := want.New
	s := catalog.Service{App: *app, Service: release.Service{App: app.Name, Release: next}}
	stage, left := a.Broker.Rehearse(ctx), un
	for i := range next.Groups {
		g := &next.Groups[i]
		if !left.of(g.Config) {
			continue
		}
		at, err := a.placeGroup(ctx, stage, &s, g, left)
		if err != nil {
			return made, err
		}
		w, region := a.Directory.WorkerAt(at)
		if w == nil {
			return made, fault.New(fault.Unavailable, broker.CodeGone, "worker %s, which has room for the volumes of "+
				"group %s, is not heard any more; try again", at, g.Name)
		}
		rest := unmade{}
		for id, v := range left {
			if !slices.ContainsFunc(g.Config.Mounts, func(m machine.Mount) bool { return m.Volume == id }) {
				rest[id] = v
				continue
			}
			c := lifecycle.VolumeCommand{Verb: "create", App: app.Name, Volume: id, Namespace: space.Name, Spec: v.spec}
			c.Spec.Region = region
			if _, err := w.Volume(ctx, c); err != nil {
				return made, fault.Wrap(err, fault.KindOf(err), fault.As(err).Code, "volume %s", v.spec.Name)
			}
			made = append(made, api.ReleaseVolume{Group: v.group, Name: v.spec.Name, SizeGB: v.spec.SizeGB, ID: id,
				Worker: at})
		}
		left = rest
	}
	a.Agree(ctx, true)
	return made, nil
}

// placeGroup returns a worker with room for a group's machine and its missing volumes, counted without the group's
// present machines, since a volume serves only one machine.
func (a *Releases) placeGroup(ctx context.Context, stage *broker.Rehearsal, s *catalog.Service, g *release.Group,
	un unmade) (cluster.WorkerID, error) {
	for _, m := range a.Directory.Fleet.Snapshot().Standing(s.App.Name) {
		if m.Replica.Group == g.Name {
			stage.TakeOut(ctx, s.App.Name, m.ID)
		}
	}
	o := &rollout.Order{Machine: machine.NewID(a.Rand), Replica: machine.Replica{Group: g.Name}}
	one, no := rehearse(ctx, stage, s, o, un)
	if one != nil {
		return one.Worker, nil
	}
	code := api.CodeNoVolumeCapacity
	if no.fits == api.FitsNever {
		code = api.CodeVolumeNeverFits
	}
	return "", &fault.Error{Kind: fault.Exhausted, Code: code, Scope: fault.ScopeRegion, Resource: "disk",
		Text: fmt.Sprintf("no worker has room for the volumes that group %s mounts and one of its machines: %s", g.Name,
			no.why)}
}
