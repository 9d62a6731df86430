package pki

import (
	"crypto/x509"
	"net/url"
	"slices"

	"github.com/soukhq/souk/fault"
)

// Role is what a member may speak as.
type Role string

// The roles.
const (
	Worker  Role = "worker"  // owns machines; may publish records of itself
	Gateway Role = "gateway" // may send requests to workers
	Issuer  Role = "issuer"  // has the CA's directory: signs joins and renewals
)

// Name is a member's id and its roles, sorted. Ids are compared whole, never by prefix.
type Name struct {
	ID    string `json:"id"`
	Roles []Role `json:"roles"`
}

const scheme = "souk"

// Has reports whether the member has a role.
func (n Name) Has(r Role) bool { return slices.Contains(n.Roles, r) }

// SpeaksFor reports whether the member may publish records of a worker: it must be that worker.
func (n Name) SpeaksFor(worker string) bool { return n.Has(Worker) && n.ID == worker }

// ValidID reports whether s can be a member's id: 1 to 63 of a-z, 0-9, "-", "_" and ".", a letter or digit first.
func ValidID(s string) bool {
	if s == "" || len(s) > 63 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', i > 0 && (c == '-' || c == '_' || c == '.'):
		default:
			return false
		}
	}
	return true
}

// check returns the name with its roles sorted, or why it is invalid in a certificate.
func (n Name) check() (Name, error) {
	if !ValidID(n.ID) {
		return n, fault.New(fault.Invalid, fault.CodeID,
			"%q cannot name a member: use 1 to 63 of a-z, 0-9, - _ and ., a letter or digit first", clip(n.ID))
	}
	roles := slices.Clone(n.Roles)
	slices.Sort(roles)
	n.Roles = slices.Compact(roles)
	if len(n.Roles) == 0 {
		return n, fault.New(fault.Invalid, fault.CodeRole, "a member needs a role: worker, gateway, issuer")
	}
	for _, r := range n.Roles {
		if !r.isKnown() {
			return n, fault.New(fault.Invalid, fault.CodeRole,
				"%q is no role; use worker, gateway, issuer", clip(string(r)))
		}
	}
	return n, nil
}

func (r Role) isKnown() bool { return r == Worker || r == Gateway || r == Issuer }

func (n Name) nameURIs() []*url.URL {
	out := make([]*url.URL, len(n.Roles))
	for i, r := range n.Roles {
		out[i] = &url.URL{Scheme: scheme, Host: string(r), Path: "/" + n.ID}
	}
	return out
}

// nameOf returns the name in a certificate. It refuses a certificate with any URI that is not a role of one id.
func nameOf(c *x509.Certificate) (Name, error) {
	var n Name
	for _, u := range c.URIs {
		role, id := Role(u.Host), ""
		if len(u.Path) > 1 {
			id = u.Path[1:]
		}
		plain := url.URL{Scheme: scheme, Host: u.Host, Path: u.Path}
		if *u != plain || !role.isKnown() || !ValidID(id) || n.ID != "" && n.ID != id {
			return Name{}, fault.New(fault.Denied, fault.CodeCertificate,
				"the certificate names %q, which is not a role of one member", clip(u.String()))
		}
		n.ID, n.Roles = id, append(n.Roles, role)
	}
	if n.ID == "" {
		return Name{}, fault.New(fault.Denied, fault.CodeCertificate, "the certificate names no member")
	}
	return n, nil
}

func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "..."
	}
	return s
}
