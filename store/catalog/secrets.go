package catalog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
)

// Bounds of an app's secrets.
const (
	MaxSecrets     = 1000     // of one app
	MaxSecretValue = 64 << 10 // bytes
)

// secretRow is a secret as stored: only the key file can open Sealed.
type secretRow struct {
	Digest    string    `json:"digest"`
	Sealed    []byte    `json:"sealed"` // nonce, then ciphertext; bound to the app's ID and the secret's name
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Secret describes a secret without its value.
type Secret struct {
	Name      string
	Digest    string
	CreatedAt time.Time
	UpdatedAt time.Time
}

func (r secretRow) summary(name string) Secret {
	return Secret{name, r.Digest, r.CreatedAt, r.UpdatedAt}
}

// validSecretName reports whether name is valid for a secret, and so for an environment variable.
func validSecretName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if letter := c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z'; !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != "" && len(name) <= 255
}

// secretTable is a table of secrets. Its keys are app/name.
type secretTable struct {
	bucket string
	byApp  map[string]map[string]secretRow
}

func newSecretTable(bucket string) *secretTable {
	return &secretTable{bucket: bucket, byApp: map[string]map[string]secretRow{}}
}

func (t *secretTable) get(key string) (secretRow, bool) {
	app, name, _ := strings.Cut(key, "/")
	row, there := t.byApp[app][name]
	return row, there
}

func (t *secretTable) enter(key string, row secretRow) {
	app, name, _ := strings.Cut(key, "/")
	if t.byApp[app] == nil {
		t.byApp[app] = map[string]secretRow{}
	}
	t.byApp[app][name] = row
}

func (t *secretTable) put(key string, row secretRow) change {
	return change{fsm.Record{Bucket: t.bucket, Key: key, Value: encode(row)}, func() { t.enter(key, row) }}
}

func (t *secretTable) load(key string, value []byte) error {
	var row secretRow
	err := json.Unmarshal(value, &row)
	t.enter(key, row)
	return err
}

// accept accepts a row that inbound has sealed with this catalog's key.
func (t *secretTable) accept(key string, value []byte) (x change, same bool, err error) {
	var row secretRow
	if err := json.Unmarshal(value, &row); err != nil {
		return x, false, unusable(err, t.bucket, key)
	}
	old, there := t.get(key)
	return t.put(key, row), there && old.Digest == row.Digest && old.UpdatedAt.Equal(row.UpdatedAt), nil
}

func (t *secretTable) has(key string) bool {
	_, there := t.get(key)
	return there
}

func (t *secretTable) remove(key string) change {
	app, name, _ := strings.Cut(key, "/")
	return change{fsm.Record{Bucket: t.bucket, Key: key}, func() {
		if delete(t.byApp[app], name); len(t.byApp[app]) == 0 {
			delete(t.byApp, app)
		}
	}}
}

// removeApp returns the changes that remove all rows of an app.
func (t *secretTable) removeApp(app string) (out []change) {
	for name := range t.byApp[app] {
		out = append(out, t.remove(app+"/"+name))
	}
	return out
}

// Secrets stores the secrets of apps, and earlier values that releases use.
type Secrets struct {
	*engine
	sealer   sealer
	rows     *secretTable
	old      *secretTable // earlier values; its keys are app/name/time
	apps     *Apps
	services *Services
}

func newSecrets(e *engine) *Secrets {
	c := &Secrets{engine: e, rows: newSecretTable(bucketSecret), old: newSecretTable(bucketOldSecret)}
	e.add(bucketSecret, bucket{table: c.rows, outbound: c.outbound, inbound: c.inbound, beside: c.keptBefore,
		ofApp: c.rows.removeApp})
	e.add(bucketOldSecret, bucket{table: c.old, outbound: c.outbound, inbound: c.inbound, stays: c.needsOldSecret,
		ofApp: c.old.removeApp})
	return c
}

// SetSecrets sets an app's secrets, all or none; a nil value deletes. It returns their new version and those that were
// set. Machines of a service keep starting with their release's values: see RollSecrets.
func (c *Secrets) SetSecrets(app string, values map[string]*string) (uint64, []Secret, error) {
	c.write.Lock()
	defer c.write.Unlock()
	s, err := c.setSecrets(app, values, time.Now())
	if err == nil {
		err = c.stored(&s)
	}
	return s.app.Secrets, s.set, err
}

// stored commits only a change of secrets. The caller holds write.
func (c *Secrets) stored(s *setting) error {
	kept, erased := c.keptSecrets(s.app.Name, c.services.pinnedBy(s.app.Name, c.services.heads.get(s.app.Name)),
		s.replaced)
	return c.commit(slices.Concat(kept, s.batch, erased)...)
}

// setting is the result of a change of an app's secrets.
type setting struct {
	app      App
	batch    []change
	set      []Secret             // descriptions of the secrets that are set, by name
	replaced map[string]secretRow // rows that are replaced or removed, by name
	at       map[string]time.Time // when each remaining secret was set, by name
}

// setSecrets returns the result of a change. The caller holds write.
func (c *Secrets) setSecrets(app string, values map[string]*string, now time.Time) (setting, error) {
	var none setting
	for name, v := range values {
		if err := checkSecret(name, v); err != nil {
			return none, err
		}
	}
	a, there := c.apps.rows.all[app]
	if !there || a.Deleting {
		return none, NoApp()
	}
	s := setting{app: a, set: []Secret{}, replaced: map[string]secretRow{}, at: c.secretTimes(app)}
	if len(values) == 0 {
		return s, nil
	}
	s.app.Secrets++
	s.batch = []change{c.apps.rows.put(app, s.app)}
	for name, v := range values {
		if err := c.setSecret(&s, name, v, now.UTC()); err != nil {
			return none, err
		}
	}
	if len(s.at) > MaxSecrets && len(s.at) > len(c.rows.byApp[app]) {
		return none, &fault.Error{Kind: fault.Exhausted, Code: codeTooManySecrets, Scope: fault.ScopeQuota,
			Text: fmt.Sprintf("an app keeps at most %d secrets, and %d are wanted; delete some", MaxSecrets, len(s.at))}
	}
	slices.SortFunc(s.set, func(a, b Secret) int { return cmp.Compare(a.Name, b.Name) })
	return s, nil
}

// checkSecret refuses an invalid secret. A nil value deletes one.
func checkSecret(name string, v *string) error {
	switch {
	case !validSecretName(name):
		return fault.New(fault.Invalid, codeSecretName,
			"%q cannot be a secret's name; it becomes a variable, so use letters, digits and _, and do not "+
				"begin with a digit",
			fault.Clip(name, 80))
	case v != nil && strings.IndexByte(*v, 0) >= 0:
		return fault.New(fault.Invalid, codeSecretValue,
			"the secret %s holds a zero byte, which no variable of a machine can: encode it (base64)", name)
	case v != nil && len(*v) > MaxSecretValue:
		return fault.New(fault.Invalid, fault.CodeSecretSize,
			"the secret %s has %d bytes; at most %d are kept", name, len(*v), MaxSecretValue)
	}
	return nil
}

// setSecret adds the change of one secret. Setting the value that it already has changes nothing.
func (c *Secrets) setSecret(s *setting, name string, v *string, now time.Time) error {
	key, bound := s.app.Name+"/"+name, s.app.ID+"/"+name
	old, there := c.rows.get(key)
	if v == nil {
		s.batch = append(s.batch, c.rows.remove(key))
		if delete(s.at, name); there {
			s.replaced[name] = old
		}
		return nil
	}
	row := secretRow{Digest: c.sealer.digest(bound, *v), CreatedAt: now, UpdatedAt: now}
	if there {
		if was, err := c.sealer.open(bound, old.Sealed); err == nil && was == *v {
			s.set = append(s.set, old.summary(name))
			return nil
		}
		row.CreatedAt, s.replaced[name] = old.CreatedAt, old
		if !now.After(old.UpdatedAt) { // the clock was set back, or another member's is ahead
			row.UpdatedAt = old.UpdatedAt.Add(1)
		}
	}
	var err error
	if row.Sealed, err = c.sealer.seal(bound, *v); err != nil {
		return err
	}
	s.at[name] = row.UpdatedAt
	s.batch, s.set = append(s.batch, c.rows.put(key, row)), append(s.set, row.summary(name))
	return nil
}

// SecretsOf returns an app's secrets by name, without their values, and their version.
func (c *Secrets) SecretsOf(app string) ([]Secret, uint64, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	a, there := c.apps.rows.all[app]
	if !there {
		return nil, 0, NoApp()
	}
	out := make([]Secret, 0, len(c.rows.byApp[app]))
	for name, row := range c.rows.byApp[app] {
		out = append(out, row.summary(name))
	}
	slices.SortFunc(out, func(a, b Secret) int { return cmp.Compare(a.Name, b.Name) })
	return out, a.Secrets, nil
}

// OpenNamed returns the values of some secrets of an app, by name. Only workers call it, at the start of a task. The
// secrets were there at a version of the app's secrets. Unavailable, code secret_missing: this member has not reached that
// version yet.
func (c *Secrets) OpenNamed(app string, names []string, version uint64) (map[string]string, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	a, there := c.apps.rows.all[app]
	if !there {
		return nil, NoApp()
	}
	out := make(map[string]string, len(names))
	for _, name := range names {
		row, there := c.rows.byApp[app][name]
		if !there && a.Secrets < version {
			return nil, fault.New(fault.Unavailable, codeSecretMissing, "the secret %.80q of app %s is not here yet: "+
				"this member knows the app's secrets up to version %d, and the task needs version %d", name, app,
				a.Secrets, version)
		}
		if !there {
			return nil, fault.New(fault.NotFound, fault.CodeSecret,
				"app %s has no secret %.80q any more; set it with \"souk secrets set --app %s\"", app, name, app)
		}
		var err error
		if out[name], err = c.sealer.open(a.ID+"/"+name, row.Sealed); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// SecretsReach returns an error if an app's secrets have not reached a version yet.
func (c *Secrets) SecretsReach(app string, version uint64) error {
	a, err := c.apps.App(app)
	if err == nil && version > a.Secrets {
		err = fault.New(fault.Precondition, codeSecretsVersion,
			"the app's secrets are at version %d, and version %d is wanted; set them first",
			a.Secrets, version)
	}
	return err
}
