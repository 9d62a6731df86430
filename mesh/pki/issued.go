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

// Grantee is who was given a certificate by this CA directory, and until when at the latest it holds.
type Grantee struct {
	Name
	Key  string    `json:"key"` // hex SHA-256 of the public key
	Ends time.Time `json:"ends"`
}

func (c *CA) granteeFile(id string) string { return c.path("issued", id+".json") }

// claimID takes an id for a key. An id that another key has a certificate for is a Conflict; fresh says that nobody had
// it.
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
			"the id %s has a certificate until %s; join with another id, or let the cluster forget that one first "+
				"(`souk node rm %s`)", n.ID, formatMinute(has.Ends), n.ID)
	}
	return false, c.noteIssued(n, pub, now)
}

// isIssuedTo reports whether the newest certificate of an id is for a key.
func (c *CA) isIssuedTo(id, key string) bool {
	var has Grantee
	return readJSON(c.granteeFile(id), &has) == nil && has.Key == key
}

// noteIssued enters a certificate that was given.
func (c *CA) noteIssued(n Name, pub ed25519.PublicKey, now time.Time) error {
	return writeWhole(c.granteeFile(n.ID), mustJSON(Grantee{n, fingerprint(pub), now.Add(CertificateLife)}))
}

// Forget lets an id be taken anew. It takes no certificate away: who serves must refuse the old one (wire's Denied).
func (c *CA) Forget(id string) error {
	if !ValidID(id) {
		return fault.New(fault.Invalid, fault.CodeID, "%q cannot name a member", clip(id))
	}
	if err := os.Remove(c.granteeFile(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fileFault(err, c.granteeFile(id))
	}
	return fileFault(syncDir(c.path("issued")), c.dir)
}

// Issued lists who was given a certificate by this directory, in the order of ids. A copy of the directory knows only
// its own.
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
		case errors.Is(err, fs.ErrNotExist): // forgotten meanwhile
		case err != nil:
			return nil, err
		default:
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b Grantee) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}
