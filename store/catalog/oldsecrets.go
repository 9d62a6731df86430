package catalog

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// A release records when each secret was set that its machines read. That time identifies the value for all members,
// including earlier values. The newest value of a secret is in its row. An earlier value is kept in a row of its own
// as long as a release needs it: the one that a service's head wants, or the one that an undo restores.

// oldKey returns the key, without the app, of an earlier value of a secret.
func oldKey(name string, at time.Time) string {
	return name + "/" + strconv.FormatInt(at.UnixNano(), 10)
}

// secretTimes returns when each secret of an app was set, by name. The caller holds write or mu.
func (c *Secrets) secretTimes(app string) map[string]time.Time {
	out := make(map[string]time.Time, len(c.rows.byApp[app]))
	for name, row := range c.rows.byApp[app] {
		out[name] = row.UpdatedAt
	}
	return out
}

// secretAt returns the sealed value of a secret that was set at a time. The caller holds write or mu.
func (c *Secrets) secretAt(app, name string, at time.Time) (secretRow, bool) {
	if row, there := c.rows.byApp[app][name]; there && row.UpdatedAt.Equal(at) {
		return row, true
	}
	row, there := c.old.byApp[app][oldKey(name, at)]
	return row, there
}

// keptSecrets returns the changes that keep pinned values among the replaced ones, and those that erase kept values
// that are no longer pinned. The caller holds write.
func (c *Secrets) keptSecrets(app string, p pins, replaced map[string]secretRow) (kept, erased []change) {
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
			erased = append(erased, c.old.remove(app+"/"+key))
		}
	}
	return kept, erased
}

// keptBefore returns the change that keeps a secret's value which another member has replaced, if the service still
// needs it.
func (c *Secrets) keptBefore(key string, _ []byte) []change {
	row, there := c.rows.get(key)
	if !there {
		return nil
	}
	app, name, _ := strings.Cut(key, "/")
	if _, kept := c.old.byApp[app][oldKey(name, row.UpdatedAt)]; kept || c.services.heads.get(app) == nil {
		return nil
	}
	kept, _ := c.keptSecrets(app, c.services.pinnedBy(app, c.services.heads.get(app)), map[string]secretRow{name: row})
	return kept
}

// needsOldSecret reports whether a value that another member erased is pinned here: that member knew another head.
func (c *Secrets) needsOldSecret(key string) (_ []change, stays bool) {
	app, of, _ := strings.Cut(key, "/")
	return nil, c.services.heads.get(app) != nil && c.services.pinnedBy(app, c.services.heads.get(app)).keys[of]
}

// OpenSecrets returns the values of the secrets that a machine reads, by name: those of its release if it is a replica
// of a service, else the newest. Only workers call it, at a start. Unavailable, code secret_missing or
// release_missing: other members have them, but this one does not yet.
func (c *Secrets) OpenSecrets(m *machine.Machine) (map[string]string, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	a, there := c.apps.rows.all[m.App]
	if !there {
		return nil, NoApp()
	}
	keys, strict, err := c.services.keysFor(m)
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
				"the value of the secret %s that its release has is not here: only another member has it so far, or "+
					"it was erased; \"souk secrets deploy --app %s\" makes a release with the newest", name, m.App)
		}
		if !there {
			if row, there = c.rows.byApp[m.App][name]; !there {
				continue
			}
		}
		if out[name], err = c.sealer.open(a.ID+"/"+name, row.Sealed); err != nil {
			return nil, err
		}
	}
	return out, nil
}
