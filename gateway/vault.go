package gateway

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"time"

	"golang.org/x/crypto/chacha20poly1305"

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

// AppSecret tells of a secret all but its value.
type AppSecret struct {
	Name      string    `json:"name"`
	Digest    string    `json:"digest"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// sealer seals values with one key. The digest is keyed too: a plain hash would let short values be guessed.
type sealer struct {
	key [chacha20poly1305.KeySize]byte
}

// openSealer reads the key file, or makes it when fresh says that nothing can have been sealed yet.
func openSealer(path string, fresh bool) (sealer, error) {
	var s sealer
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && fresh:
		return makeSealer(path)
	case errors.Is(err, fs.ErrNotExist):
		return s, fault.Wrap(err, fault.Invalid, "key_file", "the key of the secrets is gone; put %s back from a backup, or the secrets cannot be read", path)
	case err != nil:
		return s, fault.Wrap(err, fault.Unavailable, "key_file", "the key of the secrets cannot be read; see to %s", path)
	}
	info, err := os.Stat(path)
	if err != nil {
		return s, fault.Wrap(err, fault.Unavailable, "key_file", "the key of the secrets cannot be read; see to %s", path)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return s, fault.New(fault.Denied, "key_file", "others may read the key of the secrets (mode %04o); run chmod 600 %s", info.Mode().Perm(), path)
	}
	if n, err := hex.Decode(s.key[:], trimmed(raw, 2*len(s.key))); err != nil || n != len(s.key) {
		return s, fault.New(fault.Invalid, "key_file", "%s is not a key of secrets (64 hexadecimal digits); put it back from a backup", path)
	}
	return s, nil
}

// trimmed takes the newline off, and cuts what is too long to be a key so that decoding fails by its length.
func trimmed(raw []byte, n int) []byte {
	for len(raw) > 0 && (raw[len(raw)-1] == '\n' || raw[len(raw)-1] == '\r') {
		raw = raw[:len(raw)-1]
	}
	if len(raw) != n {
		return nil
	}
	return raw
}

func makeSealer(path string) (sealer, error) {
	var s sealer
	if _, err := rand.Read(s.key[:]); err != nil {
		return s, fault.Wrap(err, fault.Internal, "key_file", "no random key could be made")
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return s, fault.Wrap(err, fault.Unavailable, "key_file", "the key of the secrets cannot be written; see to %s", path)
	}
	_, err = f.WriteString(hex.EncodeToString(s.key[:]) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return s, fault.Wrap(errors.Join(err, os.Remove(path)), fault.Unavailable, "key_file", "the key of the secrets cannot be written; see to %s", path)
	}
	return s, nil
}

func (s sealer) seal(bound, value string) ([]byte, error) {
	aead, err := chacha20poly1305.NewX(s.key[:])
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "seal", "the secret could not be sealed")
	}
	nonce := make([]byte, aead.NonceSize(), aead.NonceSize()+len(value)+aead.Overhead())
	if _, err := rand.Read(nonce); err != nil {
		return nil, fault.Wrap(err, fault.Internal, "seal", "the secret could not be sealed")
	}
	return aead.Seal(nonce, nonce, []byte(value), []byte(bound)), nil
}

func (s sealer) open(bound string, sealed []byte) (string, error) {
	aead, err := chacha20poly1305.NewX(s.key[:])
	if err == nil && len(sealed) > aead.NonceSize() {
		var raw []byte
		if raw, err = aead.Open(nil, sealed[:aead.NonceSize()], sealed[aead.NonceSize():], []byte(bound)); err == nil {
			return string(raw), nil
		}
	}
	return "", fault.Wrap(err, fault.Internal, "unseal", "a secret cannot be opened with this key: the key file or the catalog was changed; set the secret again")
}

func (s sealer) digest(bound, value string) string {
	mac := hmac.New(sha256.New, s.key[:])
	mac.Write([]byte(bound))
	mac.Write([]byte{0})
	mac.Write([]byte(value))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

var secretName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,254}$`)

func (c *Catalog) putSecret(app, name string, s secretRow) {
	if c.secrets[app] == nil {
		c.secrets[app] = map[string]secretRow{}
	}
	c.secrets[app][name] = s
}

// SetSecrets sets an app's secrets, all or none; a nil value deletes. It gives their new version and those that were set.
func (c *Catalog) SetSecrets(app string, values map[string]*string) (uint64, []AppSecret, error) {
	for name, v := range values {
		if !secretName.MatchString(name) {
			return 0, nil, fault.New(fault.Invalid, "secret_name",
				"%q cannot be a secret's name; it becomes a variable, so use letters, digits and _, and do not begin with a digit", clip(name, 80))
		}
		if v != nil && len(*v) > MaxSecretValue {
			return 0, nil, fault.New(fault.Invalid, "secret_size", "the secret %s has %d bytes; at most %d are kept", name, len(*v), MaxSecretValue)
		}
	}
	c.write.Lock()
	defer c.write.Unlock()
	a, ok := c.apps[app]
	if !ok || a.Deleting {
		return 0, nil, noApp()
	}
	a.Secrets++
	batch, rows, err := c.secretBatch(a, values)
	if err != nil {
		return 0, nil, err
	}
	set := []AppSecret{}
	err = c.commit(func() {
		c.apps[app] = a
		for name, row := range rows {
			if row == nil {
				delete(c.secrets[app], name)
				continue
			}
			c.putSecret(app, name, *row)
			set = append(set, AppSecret{name, row.Digest, row.CreatedAt, row.UpdatedAt})
		}
	}, batch...)
	if err != nil {
		return 0, nil, err
	}
	slices.SortFunc(set, func(a, b AppSecret) int { return cmp.Compare(a.Name, b.Name) })
	return a.Secrets, set, nil
}

// secretBatch makes the records and rows of a change; a nil row deletes.
func (c *Catalog) secretBatch(a appRow, values map[string]*string) ([]fsm.Record, map[string]*secretRow, error) {
	batch, rows, now := []fsm.Record{record(bucketApp, a.Name, a)}, map[string]*secretRow{}, time.Now().UTC()
	more := len(c.secrets[a.Name])
	for name, v := range values {
		key, bound := a.Name+"/"+name, a.ID+"/"+name
		old, exists := c.secrets[a.Name][name]
		if v == nil {
			batch, rows[name] = append(batch, fsm.Record{Bucket: bucketSecret, Key: key}), nil
			continue
		}
		sealed, err := c.seal.seal(bound, *v)
		if err != nil {
			return nil, nil, err
		}
		row := &secretRow{Digest: c.seal.digest(bound, *v), Sealed: sealed, CreatedAt: now, UpdatedAt: now}
		if exists {
			row.CreatedAt = old.CreatedAt
		} else {
			more++
		}
		batch, rows[name] = append(batch, record(bucketSecret, key, row)), row
	}
	if more > MaxSecrets {
		return nil, nil, &fault.Error{Kind: fault.Exhausted, Code: "too_many_secrets", Scope: fault.ScopeQuota,
			Text: fmt.Sprintf("an app keeps at most %d secrets, and %d are wanted; delete some", MaxSecrets, more)}
	}
	return batch, rows, nil
}

// AppSecrets lists an app's secrets by name, with their version.
func (c *Catalog) AppSecrets(app string) ([]AppSecret, uint64, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	a, ok := c.apps[app]
	if !ok {
		return nil, 0, noApp()
	}
	out := make([]AppSecret, 0, len(c.secrets[app]))
	for name, s := range c.secrets[app] {
		out = append(out, AppSecret{name, s.Digest, s.CreatedAt, s.UpdatedAt})
	}
	slices.SortFunc(out, func(a, b AppSecret) int { return cmp.Compare(a.Name, b.Name) })
	return out, a.Secrets, nil
}

// Secrets opens an app's secrets. It is a SecretsOf: workers ask at the moment of a start, and nobody else does.
func (c *Catalog) Secrets(app string) (map[string]string, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	a, ok := c.apps[app]
	if !ok {
		return nil, noApp()
	}
	out := make(map[string]string, len(c.secrets[app]))
	for name, s := range c.secrets[app] {
		v, err := c.seal.open(a.ID+"/"+name, s.Sealed)
		if err != nil {
			return nil, err
		}
		out[name] = v
	}
	return out, nil
}
