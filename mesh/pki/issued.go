package pki

import (
	"crypto/ed25519"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
)

// Grantee is a member that this CA directory has issued a certificate to, and the time by which that certificate
// expires.
type Grantee struct {
	Name
	Key  string    `json:"key"` // hex SHA-256 of the public key
	Ends time.Time `json:"ends"`
}

func (c *CA) granteeFile(id string) string { return c.path("issued", id+".json") }

// claimID takes an id for a key. Conflict if another key has a valid certificate for the id; fresh reports that the id
// was not in use.
func (c *CA) claimID(n Name, pub ed25519.PublicKey, now time.Time) (fresh bool, err error) {
	g := Grantee{n, fingerprint(pub), now.Add(CertificateLife)}
	err = writeNew(c.granteeFile(n.ID), mustJSON(g))
	if !errors.Is(err, fs.ErrExist) {
		return err == nil, err
	}
	var has Grantee
	if err := readJSON(c.granteeFile(n.ID), &has); err != nil {
		return false, fault.As(err)
	}
	if has.Key != g.Key && now.Before(has.Ends) {
		return false, fault.New(fault.Conflict, fault.CodeIDInUse,
			"the id %s has a certificate until %s; join with another id, or remove the member that has it first "+
				"(`souk node rm %s`)", n.ID, formatMinute(has.Ends), n.ID)
	}
	return false, c.noteIssued(n, pub, now)
}

// isIssuedTo reports whether the newest certificate of an id is for a key.
func (c *CA) isIssuedTo(id, key string) bool {
	var has Grantee
	return readJSON(c.granteeFile(id), &has) == nil && has.Key == key
}

// noteIssued records an issued certificate.
func (c *CA) noteIssued(n Name, pub ed25519.PublicKey, now time.Time) error {
	return writeWhole(c.granteeFile(n.ID), mustJSON(Grantee{n, fingerprint(pub), now.Add(CertificateLife)}))
}

// Forget allows a new member to take an id. It does not revoke the old certificate: servers must refuse it (wire's
// Denied).
func (c *CA) Forget(id string) error {
	if !ValidID(id) {
		return fault.New(fault.Invalid, fault.CodeID, "%q cannot name a member", clip(id))
	}
	if err := os.Remove(c.granteeFile(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fileFault(err, c.granteeFile(id))
	}
	return fileFault(syncDir(c.path("issued")), c.dir)
}

// Issued lists the members that this directory has issued certificates to, by id. A copy of the directory knows only
// the ones that it issued itself.
func (c *CA) Issued() ([]Grantee, error) {
	files, err := os.ReadDir(c.path("issued"))
	if err != nil {
		return nil, fileFault(err, c.dir)
	}
	var out []Grantee
	for _, f := range files {
		if filepath.Ext(f.Name()) != ".json" || strings.HasPrefix(f.Name(), ".") {
			continue
		}
		var g Grantee
		switch err := readJSON(c.path("issued", f.Name()), &g); {
		case errors.Is(err, fs.ErrNotExist): // deleted meanwhile
		case err != nil:
			return nil, err
		default:
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b Grantee) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}
