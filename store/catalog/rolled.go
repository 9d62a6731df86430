package catalog

import (
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// pins are the values of secrets that must be kept, because releases use them.
type pins struct {
	keys    map[string]bool // keys in the form of oldKey
	unknown bool            // one of the releases is not here, so its values are unknown
}

// pinnedBy returns the values that a head needs; more are releases that are not in the catalog yet. The caller holds
// write.
func (c *Services) pinnedBy(app string, h *release.Head, more ...*release.Release) pins {
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

// keysFor returns when each secret was set whose value a machine reads. strict: it must be exactly these values, since
// its release is wanted, or an undo restores it.
func (c *Services) keysFor(m *machine.Machine) (keys map[string]time.Time, strict bool, err error) {
	h := c.heads.get(m.App)
	if all, names := machine.Reads(m.Config); m.Replica == nil || h == nil || !all && len(names) == 0 {
		return c.secrets.secretTimes(m.App), false, nil
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

// keyed returns a release of an app with the version of the secrets and the keys, among keys, that its groups read. A
// named secret that is missing is an error.
func keyed(a App, r *release.Release, keys map[string]time.Time) (*release.Release, error) {
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

// Rolled is the result of a change of secrets.
type Rolled struct {
	Version uint64        // of the app's secrets
	Set     []Secret      // the secrets that were set, by name
	Head    *release.Head // for the release that was made; nil: none was
	Groups  []string      // groups that read a changed secret, sorted
}

// RollSecrets sets an app's secrets as SetSecrets does. In the same commit it copies the release in force with the new
// versions, so that the groups which read a changed secret get new machines. Secrets not in values keep the version of
// that release; an empty values takes the newest version of all. If no group reads a changed secret, no release is
// made. parent is as for Deploy.
func (c *Services) RollSecrets(app string, values map[string]*string, by string, parent *string,
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
		return out, c.secrets.stored(&s)
	}
	return out, c.commit(c.headed(app, out.Head, r, &s)...)
}

// ForeseeSecrets returns the service as it would be after RollSecrets with the same arguments, and the groups that
// change, none if it makes no release. It writes nothing.
func (c *Services) ForeseeSecrets(app string, values map[string]*string, by string, parent *string,
	now time.Time) (Service, []string, error) {
	c.write.Lock()
	defer c.write.Unlock()
	_, out, r, err := c.rolled(app, values, by, parent, now)
	if err != nil || out.Head == nil {
		return Service{}, nil, err
	}
	s := Service{App: c.apps.rows.all[app], Service: c.standing(app, out.Head)}
	s.Release = r
	return s, out.Groups, nil
}

// rolled returns the result of a change of secrets, and the release that it makes. The caller holds write.
func (c *Services) rolled(app string, values map[string]*string, by string, parent *string,
	now time.Time) (s setting, out Rolled, made *release.Release, err error) {
	old, err := c.headFor(app, parent)
	if err == nil {
		s, err = c.secrets.setSecrets(app, values, now)
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
	if made, err = keyed(s.app, &next, keys); err != nil {
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

// renewed returns a copy of an earlier release for a rollback, with the newest values of those of its secrets whose
// values are erased, and their names. nil: no value is erased, and the release can be used unchanged. The caller holds
// write.
func (c *Services) renewed(app string, h *release.Head, r *release.Release, by string,
	now time.Time) (*release.Release, []string, error) {
	a, gone := c.apps.rows.all[app], []string(nil)
	keys := c.secrets.secretTimes(app)
	for name, at := range r.Keys {
		if _, there := c.secrets.secretAt(app, name, at); !there {
			gone = append(gone, name)
		} else {
			keys[name] = at
		}
	}
	for name := range keys { // it gets no secrets that it did not have
		if _, had := r.Keys[name]; !had {
			delete(keys, name)
		}
	}
	if len(gone) == 0 {
		return nil, nil, nil
	}
	next := *r
	next.By, next.At = by, now
	out, err := keyed(a, &next, keys)
	if err == nil {
		out, err = settled(out, by, now)
	}
	slices.Sort(gone)
	return out, gone, err
}
