package catalog

import (
	"encoding/json"
	"strings"

	"github.com/soukhq/souk/fault"
)

// Resealed returns the shared form of a secret's row, sealed with the current key, and whether it was sealed with an
// earlier one.
func (c *Secrets) Resealed(key string, value []byte) (out []byte, anew bool, err error) {
	c.write.Lock()
	defer c.write.Unlock()
	row, bound, err := c.secretOf(key, value)
	if err != nil || c.sharing == nil {
		return nil, false, err
	}
	plain, at, err := c.unseal(bound, row.Sealed)
	if err != nil || at == 0 {
		return value, false, err
	}
	s, err := sealerBetweenGateways(c.sharing.Keys()[0])
	if err == nil {
		row.Sealed, err = s.seal(bound, plain)
	}
	if err != nil {
		return nil, false, err
	}
	out, err = json.Marshal(row)
	return out, true, err
}

// unseal opens a shared value with the first key that fits, whose index is at.
func (c *Secrets) unseal(bound string, sealed []byte) (plain string, at int, err error) {
	err = fault.New(fault.Precondition, codeNoSharedKey,
		"members share no key, so a secret of another gateway cannot be opened")
	for i, k := range c.sharing.Keys() {
		var s sealer
		if s, err = sealerBetweenGateways(k); err != nil {
			return "", 0, err
		}
		if plain, err = s.open(bound, sealed); err == nil {
			return plain, i, nil
		}
	}
	return "", 0, err
}

// outbound converts a secret's row to the form that the other gateways can open.
func (c *Secrets) outbound(key string, value []byte) ([]byte, error) {
	row, bound, err := c.secretOf(key, value)
	if err != nil {
		return nil, err
	}
	plain, err := c.sealer.open(bound, row.Sealed)
	if err != nil {
		return nil, err
	}
	keys := c.sharing.Keys()
	if len(keys) == 0 {
		return nil, fault.New(fault.Precondition, codeNoSharedKey,
			"members share no key, so secrets stay where they are")
	}
	s, err := sealerBetweenGateways(keys[0])
	if err == nil {
		row.Sealed, err = s.seal(bound, plain)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(row)
}

// inbound converts a shared row to this catalog's form.
func (c *Secrets) inbound(key string, value []byte) ([]byte, error) {
	row, bound, err := c.secretOf(key, value)
	if err != nil {
		return nil, err
	}
	plain, _, err := c.unseal(bound, row.Sealed)
	if err != nil {
		return nil, err
	}
	row.Digest = c.sealer.digest(bound, plain)
	if row.Sealed, err = c.sealer.seal(bound, plain); err != nil {
		return nil, err
	}
	return json.Marshal(row)
}

// secretOf decodes a secret's row, and returns what its value is bound to.
func (c *Secrets) secretOf(key string, value []byte) (row secretRow, bound string, err error) {
	app, of, _ := strings.Cut(key, "/")
	name, at, old := strings.Cut(of, "/")
	if !validSecretName(name) || old && (at == "" || strings.Trim(at, "0123456789") != "") {
		return row, "", fault.New(fault.Invalid, codeSecretName, "%q is the name of no secret", fault.Clip(key, 80))
	}
	a, known := c.apps.rows.all[app]
	if !known {
		return row, "", fault.New(fault.NotFound, fault.CodeApp,
			"the secret %s is of an app that is not known here (yet)", fault.Clip(key, 80))
	}
	if err := json.Unmarshal(value, &row); err != nil {
		return row, "", fault.Wrap(err, fault.Invalid, fault.CodeSecret, "the secret %s cannot be read",
			fault.Clip(key, 80))
	}
	return row, a.ID + "/" + name, nil
}
