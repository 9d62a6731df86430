package catalog

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// A release says when each secret was set that its machines begin with, and that time names the value: it stays the same at
// all members, also at those of before. The newest value of a secret is in its row. One of before is kept, as a row of its
// own, as long as the release that a service's head wants has it, or the one that an undo returns to.

// oldSecrets is the table of values of before. Its keys are app/name/time.
type oldSecrets struct{ *secrets }

// oldKey returns the key of a secret's value of before, without the app.
func oldKey(name string, at time.Time) string {
	return name + "/" + strconv.FormatInt(at.UnixNano(), 10)
}

// secretTimes returns when each secret of an app was set that there is, by name. The caller holds write or mu.
func (c *Catalog) secretTimes(app string) map[string]time.Time {
	out := make(map[string]time.Time, len(c.secrets.byApp[app]))
	for name, row := range c.secrets.byApp[app] {
		out[name] = row.UpdatedAt
	}
	return out
}

// secretAt returns the value of a secret that was set at a time, sealed. The caller holds write or mu.
func (c *Catalog) secretAt(app, name string, at time.Time) (secretRow, bool) {
	if row, there := c.secrets.byApp[app][name]; there && row.UpdatedAt.Equal(at) {
		return row, true
	}
	row, there := c.old.byApp[app][oldKey(name, at)]
	return row, there
}

// pins are the values of secrets that releases begin their machines with.
type pins struct {
	keys    map[string]bool // as of oldKey
	unknown bool            // one of the releases is not here
}

// pinnedBy returns the values that must stay for a head; more are releases that are not in the catalog yet. The caller
// holds write.
func (c *Catalog) pinnedBy(app string, h *release.Head, more ...*release.Release) pins {
	p := pins{keys: map[string]bool{}}
	if h == nil {
		_, there := c.heads.all[app]
		p.unknown = there
		return p
	}
	ids := []string{h.Release}
	if h.Before != nil {
		ids = append(ids, h.Before.Release)
	}
	for _, id := range ids {
		r := c.releases.get(app + "/" + id)
		if i := slices.IndexFunc(more, func(x *release.Release) bool { return x != nil && x.ID() == id }); i >= 0 {
			r = more[i]
		}
		if r == nil {
			p.unknown = true
			continue
		}
		for name, at := range r.Keys {
			p.keys[oldKey(name, at)] = true
		}
	}
	return p
}

// keptSecrets returns the changes that keep what is pinned of the values that are replaced, and those that erase what was
// kept and nothing pins any more. The caller holds write.
func (c *Catalog) keptSecrets(app string, p pins, replaced map[string]secretRow) (kept, erased []change) {
	for name, row := range replaced {
		key := oldKey(name, row.UpdatedAt)
		if p.keys[key] || p.unknown {
			kept = append(kept, c.old.put(app+"/"+key, row))
		}
	}
	if p.unknown {
		return kept, nil
	}
	for key := range c.old.byApp[app] {
		if !p.keys[key] {
			x, _ := c.old.remove(app + "/" + key)
			erased = append(erased, x)
		}
	}
	return kept, erased
}

// keptBefore returns the change that keeps a secret's value which another member replaced, where the service still needs it.
func (c *Catalog) keptBefore(key string) []change {
	row, there := c.secrets.get(key)
	if !there {
		return nil
	}
	app, name, _ := strings.Cut(key, "/")
	if _, kept := c.old.byApp[app][oldKey(name, row.UpdatedAt)]; kept || c.heads.get(app) == nil {
		return nil
	}
	kept, _ := c.keptSecrets(app, c.pinnedBy(app, c.heads.get(app)), map[string]secretRow{name: row})
	return kept
}

// needsOldSecret reports whether a value that another member erased is pinned here: that member knew another head.
func (c *Catalog) needsOldSecret(key string) bool {
	app, of, _ := strings.Cut(key, "/")
	return c.heads.get(app) != nil && c.pinnedBy(app, c.heads.get(app)).keys[of]
}

// keyed returns a release of an app with its version of the secrets and the keys that its groups read, out of those that
// there are. A secret that a group names and that is not there is an error.
func (c *Catalog) keyed(a App, r *release.Release, keys map[string]time.Time) (*release.Release, error) {
	next, lacking := r.Keyed(keys)
	next.Secrets = a.Secrets
	for _, group := range slices.Sorted(maps.Keys(lacking)) {
		name := lacking[group][0]
		return nil, fault.New(fault.Precondition, codeNoSecret,
			"group %s reads the secret %s, and app %s has none of that name: set it first, with \"souk secrets set "+
				"--app %s %s\", or leave it out of the group", group, fault.Clip(name, 80), a.Name, a.Name,
			fault.Clip(name, 80))
	}
	return next, nil
}

// OpenSecrets returns the values of the secrets that a machine reads, by name: those of its release where it is a replica of
// a service, else the newest. Workers ask at the moment of a start, and nobody else does. Unavailable, code secret_missing
// or release_missing: another member has them, and they are not here yet.
func (c *Catalog) OpenSecrets(m *machine.Machine) (map[string]string, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	a, there := c.apps.all[m.App]
	if !there {
		return nil, NoApp()
	}
	keys, strict, err := c.keysFor(m)
	if err != nil {
		return nil, err
	}
	all, names := machine.Reads(m.Config)
	out := make(map[string]string, len(keys))
	for name, at := range keys {
		if !all && !slices.Contains(names, name) {
			continue
		}
		row, there := c.secretAt(m.App, name, at)
		if !there && strict {
			return nil, fault.New(fault.Unavailable, codeSecretMissing,
				"the value of the secret %s that its release has is not here: another member has it yet, or it was "+
					"erased; \"souk secrets deploy --app %s\" makes a release with the newest", name, m.App)
		}
		if !there {
			if row, there = c.secrets.byApp[m.App][name]; !there {
				continue
			}
		}
		if out[name], err = c.sealer.open(a.ID+"/"+name, row.Sealed); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// keysFor returns when each secret was set that a machine begins with. strict: no other values will do, since its release is
// wanted, or is what an undo returns to.
func (c *Catalog) keysFor(m *machine.Machine) (keys map[string]time.Time, strict bool, err error) {
	h := c.heads.get(m.App)
	if all, names := machine.Reads(m.Config); m.Replica == nil || h == nil || !all && len(names) == 0 {
		return c.secretTimes(m.App), false, nil
	}
	targets := []release.Target{{Release: h.Release, Restarted: h.Restarted}}
	if h.Before != nil {
		targets = append(targets, *h.Before)
	}
	for _, t := range targets {
		r := c.releases.get(m.App + "/" + t.Release)
		if r == nil {
			continue
		}
		if g := r.Group(m.Replica.Group); g != nil &&
			(m.Replica.Release == t.Release || r.Spec(g, t.Restarted) == m.Replica.Spec) {
			return r.Keys, true, nil
		}
	}
	if r := c.releases.get(m.App + "/" + m.Replica.Release); r != nil {
		return r.Keys, false, nil
	}
	return nil, false, c.noRelease(m.App, m.Replica.Release)
}

// Rolled is what a change of secrets came to.
type Rolled struct {
	Version uint64        // of the app's secrets
	Set     []Secret      // those that were set, by name
	Head    *release.Head // that wants the release which was made; nil: none was
	Groups  []string      // that read another secret than before, sorted
}

// RollSecrets sets an app's secrets as SetSecrets does. In the same commit it copies the release in force with the new
// versions, so that the groups which read a changed secret get new machines. Secrets that are not in values keep the
// version of that release; an empty values takes the newest version of all. If no group reads a changed secret, no release
// is made. parent is as for Deploy.
func (c *Catalog) RollSecrets(app string, values map[string]*string, by string, parent *string,
	now time.Time) (Rolled, error) {
	c.write.Lock()
	defer c.write.Unlock()
	s, out, r, err := c.rolled(app, values, by, parent, now)
	if err != nil {
		return Rolled{}, err
	}
	if out.Head == nil {
		if len(s.batch) == 0 {
			return out, nil
		}
		return out, c.stored(&s)
	}
	return out, c.commit(c.headed(app, out.Head, r, &s)...)
}

// ForeseeSecrets returns the service that there would be after a RollSecrets of the same arguments, and the groups that it
// changes, none where it makes no release. It writes nothing.
func (c *Catalog) ForeseeSecrets(app string, values map[string]*string, by string, parent *string,
	now time.Time) (Service, []string, error) {
	c.write.Lock()
	defer c.write.Unlock()
	_, out, r, err := c.rolled(app, values, by, parent, now)
	if err != nil || out.Head == nil {
		return Service{}, nil, err
	}
	s := Service{App: c.apps.all[app], Service: c.standing(app, out.Head)}
	s.Release = r
	return s, out.Groups, nil
}

// rolled returns what a change of secrets comes to, and the release that it makes. The caller holds write.
func (c *Catalog) rolled(app string, values map[string]*string, by string, parent *string,
	now time.Time) (s setting, out Rolled, made *release.Release, err error) {
	old, err := c.headFor(app, parent)
	if err == nil {
		s, err = c.setSecrets(app, values, now)
	}
	if err != nil {
		return s, out, nil, err
	}
	out = Rolled{Version: s.app.Secrets, Set: s.set}
	if old == nil {
		return s, out, nil, nil
	}
	before := c.inForce(app, old)
	if before == nil {
		return s, out, nil, c.noRelease(app, old.InForce(c.tenures.all[app].Progress).Release)
	}
	keys := s.at
	if len(values) > 0 {
		keys = maps.Clone(before.Keys)
		for name := range values {
			if delete(keys, name); !s.at[name].IsZero() {
				keys[name] = s.at[name]
			}
		}
	}
	next := *before
	next.By, next.At, next.Note = by, now, ""
	if made, err = c.keyed(s.app, &next, keys); err != nil {
		return s, out, nil, err
	}
	if out.Groups = made.Reread(before); len(out.Groups) == 0 {
		return s, out, nil, nil
	}
	if made, err = settled(made, by, now); err == nil {
		out.Head, err = c.following(app, old, made, release.Change{Why: release.WhySecrets, By: by, At: now})
	}
	return s, out, made, err
}

// renewed returns a copy of an earlier release that can be rolled back to, with the newest values of those of its secrets
// whose own values are erased, and their names. nil: no value is erased, and the release can be used as it is. The caller
// holds write.
func (c *Catalog) renewed(app string, h *release.Head, r *release.Release, by string,
	now time.Time) (*release.Release, []string, error) {
	a, gone := c.apps.all[app], []string(nil)
	keys := c.secretTimes(app)
	for name, at := range r.Keys {
		if _, there := c.secretAt(app, name, at); !there {
			gone = append(gone, name)
		} else {
			keys[name] = at
		}
	}
	for name := range keys { // what it had not it does not get
		if _, had := r.Keys[name]; !had {
			delete(keys, name)
		}
	}
	if len(gone) == 0 {
		return nil, nil, nil
	}
	next := *r
	next.By, next.At = by, now
	out, err := c.keyed(a, &next, keys)
	if err == nil {
		out, err = settled(out, by, now)
	}
	slices.Sort(gone)
	return out, gone, err
}
