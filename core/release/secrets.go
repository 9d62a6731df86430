package release

import (
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/machine"
)

// Reads returns when each secret was set that the machines of a group read, by name. It is empty if the release has no
// keys.
func (r *Release) Reads(g *Group) map[string]time.Time {
	all, names := machine.Reads(g.Config)
	if all {
		return r.Keys
	}
	out := make(map[string]time.Time, len(names))
	for _, name := range names {
		if at, there := r.Keys[name]; there {
			out[name] = at
		}
	}
	return out
}

// Keyed returns the release with those of keys that its groups read. lacking are the secrets that a group names and
// keys lacks, by group name.
func (r *Release) Keyed(keys map[string]time.Time) (out *Release, lacking map[string][]string) {
	next, every := *r, false
	next.Keys, lacking = map[string]time.Time{}, map[string][]string{}
	for i := range r.Groups {
		g := &r.Groups[i]
		if g.Config == nil {
			continue // Check refuses it
		}
		all, names := machine.Reads(g.Config)
		every = every || all
		for _, name := range names {
			if at, there := keys[name]; there {
				next.Keys[name] = at
			} else {
				lacking[g.Name] = append(lacking[g.Name], name)
			}
		}
	}
	if every {
		next.Keys = maps.Clone(keys)
		if next.Keys == nil {
			next.Keys = map[string]time.Time{}
		}
	}
	return &next, lacking
}

// Reread returns, sorted, the groups that read a secret that has changed since the release before, which may be nil.
func (r *Release) Reread(before *Release) (groups []string) {
	for i := range r.Groups {
		g := &r.Groups[i]
		if before == nil || before.Group(g.Name) == nil || len(r.ChangedSecrets(before, g)) > 0 {
			groups = append(groups, g.Name)
		}
	}
	slices.Sort(groups)
	return groups
}

// Alike reports whether two groups make the same machines, apart from secrets.
func (g *Group) Alike(o *Group) bool { return g.spec(nil, 0) == o.spec(nil, 0) }

// ChangedSecrets returns, sorted, the secrets that a group of r reads and that have changed since the release before.
func (r *Release) ChangedSecrets(before *Release, g *Group) (names []string) {
	now, was := r.Reads(g), before.Reads(g)
	for name, at := range now {
		if old, there := was[name]; !there || !old.Equal(at) {
			names = append(names, name)
		}
	}
	for name := range was {
		if _, there := now[name]; !there {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
