package catalog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fsm"
)

// Bounds of an app's secrets.
const (
	MaxSecrets     = 1000     // of one app
	MaxSecretValue = 64 << 10 // bytes
)

// secretRow is a secret as it is stored: only the key file opens Sealed.
type secretRow struct {
	Digest    string    `json:"digest"`
	Sealed    []byte    `json:"sealed"` // nonce, then ciphertext; bound to the app's id and the name
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Secret tells of a secret all but its value.
type Secret struct {
	Name      string
	Digest    string
	CreatedAt time.Time
	UpdatedAt time.Time
}

func (r secretRow) summary(name string) Secret {
	return Secret{name, r.Digest, r.CreatedAt, r.UpdatedAt}
}

// validSecretName reports whether name can name a secret, and so a variable of a machine's environment.
func validSecretName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if letter := c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z'; !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != "" && len(name) <= 255
}

// secrets is the table of secrets. Its keys are app/name.
type secrets struct {
	byApp map[string]map[string]secretRow
}

func newSecrets() *secrets { return &secrets{byApp: map[string]map[string]secretRow{}} }

func (t *secrets) get(key string) (secretRow, bool) {
	app, name, _ := strings.Cut(key, "/")
	row, there := t.byApp[app][name]
	return row, there
}

func (t *secrets) enter(key string, row secretRow) {
	app, name, _ := strings.Cut(key, "/")
	if t.byApp[app] == nil {
		t.byApp[app] = map[string]secretRow{}
	}
	t.byApp[app][name] = row
}

func (t *secrets) put(key string, row secretRow) change {
	return change{fsm.Record{Bucket: bucketSecret, Key: key, Value: encode(row)}, func() { t.enter(key, row) }}
}

func (t *secrets) load(key string, value []byte) error {
	var row secretRow
	err := json.Unmarshal(value, &row)
	t.enter(key, row)
	return err
}

// accept takes a row that was sealed anew with this catalog's key: see inbound.
func (t *secrets) accept(key string, value []byte) (x change, same bool, err error) {
	var row secretRow
	if err := json.Unmarshal(value, &row); err != nil {
		return x, false, unusable(err, bucketSecret, key)
	}
	old, there := t.get(key)
	return t.put(key, row), there && old.Digest == row.Digest && old.UpdatedAt.Equal(row.UpdatedAt), nil
}

func (t *secrets) remove(key string) (change, bool) {
	app, name, _ := strings.Cut(key, "/")
	_, there := t.byApp[app][name]
	return change{fsm.Record{Bucket: bucketSecret, Key: key}, func() {
		if delete(t.byApp[app], name); len(t.byApp[app]) == 0 {
			delete(t.byApp, app)
		}
	}}, there
}

// SetSecrets sets an app's secrets, all or none; a nil value deletes. It returns their new version and those that
// were set.
func (c *Catalog) SetSecrets(app string, values map[string]*string) (uint64, []Secret, error) {
	for name, v := range values {
		if !validSecretName(name) {
			return 0, nil, fault.New(fault.Invalid, "secret_name",
				"%q cannot be a secret's name; it becomes a variable, so use letters, digits and _, and do not "+
					"begin with a digit",
				fault.Clip(name, 80))
		}
		if v != nil && strings.IndexByte(*v, 0) >= 0 {
			return 0, nil, fault.New(fault.Invalid, "secret_value",
				"the secret %s holds a zero byte, which no variable of a machine can: encode it (base64)", name)
		}
		if v != nil && len(*v) > MaxSecretValue {
			return 0, nil, fault.New(fault.Invalid, "secret_size",
				"the secret %s has %d bytes; at most %d are kept", name, len(*v), MaxSecretValue)
		}
	}
	c.write.Lock()
	defer c.write.Unlock()
	a, there := c.apps.all[app]
	if !there || a.Deleting {
		return 0, nil, NoApp()
	}
	a.Secrets++
	batch, set, err := c.secretChanges(a, values)
	if err == nil {
		err = c.commit(append([]change{c.apps.put(app, a)}, batch...)...)
	}
	if err != nil {
		return 0, nil, err
	}
	slices.SortFunc(set, func(a, b Secret) int { return cmp.Compare(a.Name, b.Name) })
	return a.Secrets, set, nil
}

// secretChanges returns the changes that set an app's secrets, and what is to be told of those that are set.
func (c *Catalog) secretChanges(a App, values map[string]*string) (batch []change, set []Secret, err error) {
	now, most, set := time.Now().UTC(), len(c.secrets.byApp[a.Name]), []Secret{}
	for name, v := range values {
		key, bound := a.Name+"/"+name, a.ID+"/"+name
		if v == nil {
			x, _ := c.secrets.remove(key)
			batch = append(batch, x)
			continue
		}
		sealed, err := c.sealer.seal(bound, *v)
		if err != nil {
			return nil, nil, err
		}
		row := secretRow{Digest: c.sealer.digest(bound, *v), Sealed: sealed, CreatedAt: now, UpdatedAt: now}
		if old, there := c.secrets.get(key); there {
			row.CreatedAt = old.CreatedAt
		} else {
			most++
		}
		batch, set = append(batch, c.secrets.put(key, row)), append(set, row.summary(name))
	}
	if most > MaxSecrets {
		return nil, nil, &fault.Error{Kind: fault.Exhausted, Code: "too_many_secrets", Scope: fault.ScopeQuota,
			Text: fmt.Sprintf("an app keeps at most %d secrets, and %d are wanted; delete some", MaxSecrets, most)}
	}
	return batch, set, nil
}

// Secrets returns an app's secrets by name, without their values, and their version.
func (c *Catalog) Secrets(app string) ([]Secret, uint64, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	a, there := c.apps.all[app]
	if !there {
		return nil, 0, NoApp()
	}
	out := make([]Secret, 0, len(c.secrets.byApp[app]))
	for name, row := range c.secrets.byApp[app] {
		out = append(out, row.summary(name))
	}
	slices.SortFunc(out, func(a, b Secret) int { return cmp.Compare(a.Name, b.Name) })
	return out, a.Secrets, nil
}

// SecretsReach refuses a version of an app's secrets that is not there yet.
func (c *Catalog) SecretsReach(app string, version uint64) error {
	a, err := c.App(app)
	if err == nil && version > a.Secrets {
		err = fault.New(fault.Precondition, "secrets_version",
			"failed_precondition: the app's secrets are at version %d, and version %d is wanted; set them first",
			a.Secrets, version)
	}
	return err
}

// OpenSecrets returns the values of an app's secrets. Workers ask at the moment of a start, and nobody else does.
func (c *Catalog) OpenSecrets(app string) (map[string]string, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	a, there := c.apps.all[app]
	if !there {
		return nil, NoApp()
	}
	out := make(map[string]string, len(c.secrets.byApp[app]))
	for name, row := range c.secrets.byApp[app] {
		v, err := c.sealer.open(a.ID+"/"+name, row.Sealed)
		if err != nil {
			return nil, err
		}
		out[name] = v
	}
	return out, nil
}
