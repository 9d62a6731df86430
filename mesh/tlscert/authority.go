package tlscert

import (
	"crypto/tls"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
)

// Files of an authority, below a directory.
const (
	AuthorityFile = "local-root.pem"     // clients trust it
	authorityKey  = "local-root-key.pem" // 0600
)

var localRoot = kind{AuthorityFile, authorityKey, "proxy"} //nolint:gochecknoglobals // a constant

// Authority is a root of souk's own. It can sign for names at and below certain domains, and for no others.
type Authority struct{ root *root }

// OpenAuthority opens the authority for domains below dir, and makes it if there is none. If the existing one cannot
// sign for all of the domains, it fails with Precondition.
func OpenAuthority(dir string, domains []string, now time.Time) (*Authority, error) {
	r, err := openRoot(localRoot, dir, domains, now)
	if err != nil {
		return nil, err
	}
	a := &Authority{r}
	if wrong := slices.DeleteFunc(slices.Clone(domains), a.Covers); len(wrong) > 0 {
		return nil, fault.New(fault.Precondition, codeTLSHosts,
			"the proxy's root in %s can vouch for names below %s, and not for %s: remove it and %s, and give the new "+
				"root to the clients", filepath.Join(dir, AuthorityFile), strings.Join(r.vouchedHosts(), ", "),
			strings.Join(wrong, ", "), filepath.Join(dir, authorityKey))
	}
	return a, nil
}

// Covers reports whether the authority can sign for a name.
func (a *Authority) Covers(name string) bool {
	return slices.ContainsFunc(a.root.vouchedHosts(), func(domain string) bool {
		above, below := strings.CutSuffix(strings.ToLower(name), domain)
		return below && (above == "" || strings.HasSuffix(above, "."))
	})
}

// Issue makes a certificate for a covered name. Its key is never written to disk.
func (a *Authority) Issue(name string, now time.Time) (*tls.Certificate, error) {
	c, err := a.root.issueFor([]string{name}, now)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, CodeTLS, "no certificate for %s could be made", name)
	}
	return c, nil
}

// Due reports whether a certificate of the authority must be renewed.
func (a *Authority) Due(c *tls.Certificate, now time.Time) bool {
	return now.After(c.Leaf.NotAfter.Add(-leafRenew))
}
