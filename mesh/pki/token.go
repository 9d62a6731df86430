package pki

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
)

// Limits of join tokens.
const (
	MaxTokens       = 1024 // tokens that an issuer keeps, used or not, until they expire
	MaxTokenLife    = 7 * 24 * time.Hour
	DefaultTokenTTL = time.Hour
)

// Token is a decoded join token: the digest that identifies the issuer's root, and the secret that lets one member
// join, once.
type Token struct {
	Root   [sha256.Size]byte // digest of the root's certificate
	Secret string
}

// TokenOptions limit the use of a token.
type TokenOptions struct {
	TTL   time.Duration // 0: DefaultTokenTTL
	ID    string        // the only id that may join with it; "": any free id
	Roles []Role        // the roles that a member may ask for; empty: worker and gateway
}

const (
	tokenPrefix = "souk1"
	secretBytes = 24
)

// tokenEntry is the issuer's record of a token: the file's name is the secret's hash. Key is the fingerprint of the key
// that used it.
type tokenEntry struct {
	Ends  time.Time `json:"ends"`
	ID    string    `json:"id,omitempty"`
	Roles []Role    `json:"roles,omitempty"`
	Key   string    `json:"key,omitempty"`
}

// String encodes the token for its user. It is a secret.
func (t Token) String() string {
	return tokenPrefix + "." + base64.RawURLEncoding.EncodeToString(t.Root[:]) + "." + t.Secret
}

// ParseToken decodes the result of String.
func ParseToken(s string) (Token, error) {
	parts := strings.Split(strings.TrimSpace(s), ".")
	bad := fault.New(fault.Invalid, fault.CodeToken,
		"this is no join token; `souk token join` prints one, of the form %s.XXXX.XXXX", tokenPrefix)
	if len(s) > 256 || len(parts) != 3 || parts[0] != tokenPrefix {
		return Token{}, bad
	}
	digest, err := base64.RawURLEncoding.DecodeString(parts[1])
	secret, serr := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || serr != nil || len(digest) != sha256.Size || len(secret) != secretBytes {
		return Token{}, bad
	}
	return Token{[sha256.Size]byte(digest), parts[2]}, nil
}

func certificateDigest(c *x509.Certificate) [sha256.Size]byte { return sha256.Sum256(c.Raw) }

// NewToken makes a token and keeps the hash of its secret until it expires. Expired tokens are removed first, others
// never.
func (c *CA) NewToken(now time.Time, o TokenOptions) (Token, error) {
	if o.TTL == 0 {
		o.TTL = DefaultTokenTTL
	}
	if o.TTL < 0 || o.TTL > MaxTokenLife {
		return Token{}, fault.New(fault.Invalid, fault.CodeTTL,
			"a join token lasts up to %v; got %v", MaxTokenLife, o.TTL)
	}
	if len(o.Roles) == 0 {
		o.Roles = []Role{Gateway, Worker}
	}
	probe := Name{o.ID, o.Roles}
	if o.ID == "" {
		probe.ID = "any"
	}
	if _, err := probe.check(); err != nil {
		return Token{}, err
	}
	if err := c.sweepEnded(now); err != nil {
		return Token{}, err
	}
	by, err := c.signingRoot()
	if err != nil {
		return Token{}, err
	}
	var secret [secretBytes]byte
	rand.Read(secret[:])
	t := Token{certificateDigest(by.cert), base64.RawURLEncoding.EncodeToString(secret[:])}
	return t, writeWhole(c.tokenFile(t.Secret), mustJSON(tokenEntry{Ends: now.Add(o.TTL), ID: o.ID, Roles: o.Roles}))
}

func (c *CA) tokenFile(secret string) string {
	h := sha256.Sum256([]byte(secret))
	return c.path("tokens", hex.EncodeToString(h[:]))
}

// sweepEnded removes expired tokens, and fails if too many are left.
func (c *CA) sweepEnded(now time.Time) error {
	files, err := os.ReadDir(c.path("tokens"))
	if err != nil {
		return fileFault(err, c.dir)
	}
	left := 0
	for _, f := range files {
		if strings.HasPrefix(f.Name(), ".") || strings.HasSuffix(f.Name(), ".used") {
			continue
		}
		var e tokenEntry
		if err := readJSON(c.path("tokens", f.Name()), &e); err == nil && now.Before(e.Ends) {
			left++
			continue
		}
		os.Remove(c.path("tokens", f.Name())) // the entry first: a .used file without an entry admits no member
		os.Remove(c.path("tokens", f.Name()+".used"))
	}
	if left >= MaxTokens {
		return fault.New(fault.Exhausted, CodeTokens,
			"%d join tokens are out already, the most that are kept; wait until some have ended", left)
	}
	return nil
}

// Redeem exchanges a token's secret, once, for a certificate of name n for the key of csr (DER). The same key may
// repeat the request, if the answer got lost, until the token expires or the member is forgotten: a thief of a removed
// member's disk has its key. If another member has the id, the call fails and the token stays valid.
func (c *CA) Redeem(now time.Time, secret string, n Name, csr []byte) (Credentials, error) {
	n, err := n.check()
	if err != nil {
		return Credentials{}, err
	}
	pub, err := requestKey(csr)
	if err != nil {
		return Credentials{}, err
	}
	key := fingerprint(pub)
	if err := c.checkToken(now, secret, n, key); err != nil {
		return Credentials{}, err
	}
	fresh, err := c.claimID(n, pub, now)
	if err != nil {
		return Credentials{}, err
	}
	if err := c.markUsed(secret, key); err != nil {
		if fresh {
			os.Remove(c.granteeFile(n.ID))
		}
		return Credentials{}, err
	}
	return c.issueCertificate(now, pub, n)
}

// checkToken returns why the token is not valid for this name and key, nil if it is.
func (c *CA) checkToken(now time.Time, secret string, n Name, key string) error {
	var e tokenEntry
	switch err := readJSON(c.tokenFile(secret), &e); {
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.Denied, codeTokenUnknown,
			"this issuer knows no such join token (those that have ended are forgotten); make one there with `souk "+
				"token join`")
	case err != nil:
		return err
	case !now.Before(e.Ends):
		return fault.New(fault.Denied, codeTokenExpired,
			"the join token ended on %s; make another with `souk token join`", formatMinute(e.Ends))
	case e.ID != "" && e.ID != n.ID:
		return fault.New(fault.Denied, codeTokenID, "the join token is for %s, not for %s", e.ID, n.ID)
	}
	for _, r := range n.Roles {
		if !slices.Contains(e.Roles, r) {
			return fault.New(fault.Denied, CodeTokenRole,
				"the join token does not give the role %s; make one that does",
				r)
		}
	}
	var used tokenEntry
	if err := readJSON(c.tokenFile(secret)+".used", &used); err == nil &&
		(used.Key != key || !c.isIssuedTo(n.ID, key)) {
		return usedUp()
	}
	return nil
}

// markUsed marks the token as used by a key. Of two concurrent calls one succeeds, even in different processes.
func (c *CA) markUsed(secret, key string) error {
	file := c.tokenFile(secret) + ".used"
	err := writeNew(file, mustJSON(tokenEntry{Key: key}))
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	var by tokenEntry
	if err := readJSON(file, &by); err != nil || by.Key != key {
		return usedUp()
	}
	return nil
}

func usedUp() error {
	return fault.New(fault.Denied, codeTokenUsed,
		"the join token has been used; each lets one member join, so make another with `souk token join`")
}
