package member

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/mesh/pki"
)

// The kinds of objects that say who may use the API. The keys of both are digests of tokens: every member accepts a
// token that any member made, and rejects a revoked one. A revocation is a separate object, so that no older write of
// the token undoes it; it stays as long as the token, or one made with it, could be valid.
const (
	KindToken   = registry.Kind("token")
	KindRevoked = registry.Kind("token-revoked")
)

const (
	schemaToken   = 2
	schemaRevoked = 1
)

// How long tokens last.
const (
	TokenLife    = 720 * time.Hour  // by default, and for a member's own token
	MaxTokenLife = 8784 * time.Hour // a leap year
	ownRenewed   = TokenLife / 3    // a member renews its own token after this; the old one stays valid until its end
	keepEnded    = 7 * 24 * time.Hour
	minTokenLife = time.Minute
)

const (
	maxTokens = 10_000    // of a cluster
	maxLine   = 8         // longest chain of tokens made with one another
	ownPrefix = "member-" // name prefix of members' own tokens
)

// tokenRow is a token as stored in its object.
type tokenRow struct {
	Name string            `json:"name,omitempty"`
	Role api.Role          `json:"role,omitempty"`
	App  string            `json:"app,omitempty"` // the only app it is valid for; "": all
	User *cluster.UnixUser `json:"unix_user,omitempty"`
	By   string            `json:"by,omitempty"`
	Own  bool              `json:"own,omitempty"`
	Made time.Time         `json:"made,omitzero"`
	Ends time.Time         `json:"ends,omitzero"`
	Line []forebear        `json:"line,omitempty"` // the chain of tokens that it was made with, oldest first
	Keys int               `json:"keys,omitempty"` // own token: the gossip key generation when it was announced
}

// forebear is a token with which another was made: when it becomes invalid, so does the other. Since is the start of
// its maker's certificate.
type forebear struct {
	Token  string    `json:"token"`
	Member string    `json:"member"`
	Since  time.Time `json:"since"`
}

// revokedRow is a revocation as stored in its object.
type revokedRow struct {
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
	Until  time.Time `json:"until"` // after this no token made with it can be valid
}

// Tokens are the API tokens of all members.
type Tokens struct {
	m    *Member
	now  func() time.Time
	keep func(secret string) error // stores a new own token; nil: the own token is never replaced

	mu      sync.Mutex
	own     string // digest of this member's own token
	pending string // an own token that is announced but not stored yet
	read    map[string]readToken
}

// readToken is a token that was read and verified.
type readToken struct {
	stamp registry.Stamp
	row   tokenRow
	since time.Time // start of its signer's certificate
	err   error
}

// NewTokens returns the tokens that this member knows. keep stores each new own token for local readers.
func NewTokens(m *Member, keep func(secret string) error) *Tokens {
	t := &Tokens{m: m, now: m.o.Now, keep: keep, read: map[string]readToken{}}
	m.tokens.Store(t)
	return t
}

// Judge returns the token of a secret, or why it is not valid. It compares only digests, and guessed secrets have
// unrelated digests, so the timing reveals nothing.
func (t *Tokens) Judge(secret string) (api.Token, error) {
	return t.JudgeDigest(api.TokenDigest(secret))
}

// Digest returns the digest of the token with an id, or why it is not valid.
func (t *Tokens) Digest(id string) (digest string, err error) {
	t.mu.Lock()
	own := t.own
	t.mu.Unlock()
	if own != "" && api.TokenID(own) == id {
		digest = own
	}
	for _, o := range t.m.cluster.Objects().List(KindToken) {
		if digest == "" && api.TokenID(o.Key) == id {
			digest = o.Key
		}
	}
	_, err = t.JudgeDigest(digest)
	return digest, err
}

// JudgeDigest is Judge for a secret of which only the digest is known.
func (t *Tokens) JudgeDigest(d string) (api.Token, error) {
	x, there := t.findToken(d)
	switch {
	case !there:
		return x, fault.New(fault.Denied, fault.CodeUnauthenticated,
			"the token is not valid here; look for the current one where this souk was started")
	case x.State == api.TokenGood:
		return x, nil
	}
	return x, fault.New(fault.Denied, x.State.Code(),
		"the token %s is no longer accepted: %s; use another one", x.Name, x.Why)
}

// findToken returns the token with a digest.
func (t *Tokens) findToken(d string) (x api.Token, there bool) {
	o, there := t.m.cluster.Objects().Get(KindToken, d)
	if !there && t.isOwn(d) && t.isLocal() {
		return api.Token{ID: api.TokenID(d), Name: ownPrefix + string(t.m.ID()), Role: api.RoleAdmin, Member: t.m.ID(),
			Own: true, State: api.TokenGood, Digest: d}, true
	}
	if !there {
		return x, false
	}
	r := t.rowOf(o)
	if r.err != nil {
		return x, false
	}
	x = api.Token{ID: api.TokenID(d), Name: r.row.Name, Role: r.row.Role, App: r.row.App, UnixUser: r.row.User,
		Member: o.Stamp.Writer,
		By:     r.row.By, Own: r.row.Own, Made: r.row.Made, Ends: r.row.Ends, State: api.TokenGood, Digest: d}
	x.State, x.Why = t.stateOf(x, r)
	return x, true
}

// stateOf returns a token's state, and why it is not valid.
func (t *Tokens) stateOf(x api.Token, r readToken) (api.TokenState, string) {
	if why, revoked := t.revocationOf(x.Digest); revoked {
		return api.TokenRevoked, why.whyText()
	}
	if t.isOwn(x.Digest) { // a running member always accepts its own token, even if others reject it
		return api.TokenGood, ""
	}
	if !t.now().Before(x.Ends) {
		return api.TokenEnded, "it ended on " + x.Ends.UTC().Format(time.RFC3339)
	}
	if t.isDenied(string(x.Member), r.since) {
		return api.TokenRemoved, fmt.Sprintf("member %s, which made it, was removed", x.Member)
	}
	for _, f := range r.row.Line {
		if why, revoked := t.revocationOf(f.Token); revoked {
			return api.TokenRevoked, "one that it was made with: " + why.whyText()
		}
		if t.isDenied(f.Member, f.Since) {
			return api.TokenRemoved, fmt.Sprintf("member %s, with whose token it was made, was removed", f.Member)
		}
	}
	return api.TokenGood, ""
}

// isDenied reports whether tokens that a member made with a certificate that began at since are invalid, since it was
// removed. A member chosen to live among copies with one id wrote its own removal: its tokens stay valid, and it renews
// its own.
func (t *Tokens) isDenied(id string, since time.Time) bool {
	if !t.m.isDenied(id, since) {
		return false
	}
	o, _ := t.m.cluster.Objects().Get(KindRemoved, id)
	if string(o.Stamp.Writer) != id {
		return true
	}
	by, err := t.signedSince(o)
	return err != nil || t.m.isDenied(id, by)
}

func (t *Tokens) isOwn(d string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return d == t.own
}

// rowOf reads and verifies a token, once for each version of its object.
func (t *Tokens) rowOf(o registry.Object) readToken {
	t.mu.Lock()
	r, known := t.read[o.Key]
	t.mu.Unlock()
	if known && r.stamp == o.Stamp {
		return r
	}
	r = readToken{stamp: o.Stamp}
	if r.since, r.err = t.signedSince(o); r.err == nil {
		r.err = json.Unmarshal(o.Payload, &r.row)
	}
	if r.err == nil && (len(r.row.Line) > maxLine || !slices.Contains(api.Roles(), r.row.Role)) {
		r.err = fault.New(fault.Invalid, fault.CodeToken,
			"the token %s has an unknown role, or descends from too many other tokens", o.Key)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.read) >= maxTokens {
		clear(t.read)
	}
	t.read[o.Key] = r
	return r
}

// signedSince returns the start of the certificate that signed a token's object. Its writer must have signed it, and
// serve the API or issue certificates.
func (t *Tokens) signedSince(o registry.Object) (since time.Time, err error) {
	if len(o.Sig) <= ed25519.SignatureSize {
		return since, fault.New(fault.Denied, pki.CodeSignature, "a token of %s is not signed", o.Stamp.Writer)
	}
	s := pki.Signature{Signature: o.Sig[:ed25519.SignatureSize], Certificate: o.Sig[ed25519.SignatureSize:]}
	who, err := t.m.identity.Authored(signContext, o.SigningBytes(), s, t.now())
	if err != nil {
		return since, err
	}
	if who.ID != string(o.Stamp.Writer) || !who.Has(pki.Gateway) && !who.Has(pki.Issuer) {
		return since, fault.New(fault.Denied, pki.CodeSignature, "member %s may not write this token: it takes the "+
			"role gateway or issuer, and its own name as the writer", who.ID)
	}
	c, err := x509.ParseCertificate(s.Certificate)
	if err != nil {
		return since, fault.Wrap(err, fault.Denied, pki.CodeSignature, "the certificate of %s cannot be read", who.ID)
	}
	return c.NotBefore, nil
}

// revocationOf returns the revocation of a token, if any. Revocations that a member wrote after its removal are
// ignored; earlier ones count.
func (t *Tokens) revocationOf(d string) (r revokedRow, revoked bool) {
	o, there := t.m.cluster.Objects().Get(KindRevoked, d)
	if !there {
		return r, false
	}
	since, err := t.signedSince(o)
	if err != nil || json.Unmarshal(o.Payload, &r) != nil {
		return r, false
	}
	removal, _ := t.m.removalOf(string(o.Stamp.Writer))
	return r, !t.m.isDenied(string(o.Stamp.Writer), since) || o.Stamp.Wall <= removal.At.UnixMilli()
}

func (r revokedRow) whyText() string {
	return fmt.Sprintf("it was revoked on %s by %s (%s)", r.At.UTC().Format(time.RFC3339), cmp.Or(r.By, "somebody"),
		cmp.Or(r.Reason, "no reason given"))
}

// List returns all known tokens, by name.
func (t *Tokens) List() (out []api.Token) {
	for _, o := range t.m.cluster.Objects().List(KindToken) {
		if x, there := t.findToken(o.Key); there {
			out = append(out, x)
		}
	}
	slices.SortStableFunc(out, func(a, b api.Token) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), a.Made.Compare(b.Made))
	})
	return out
}

// letIn returns the digests whose tokens are valid here.
func (t *Tokens) letIn(digests []string) (in []string) {
	for _, d := range digests {
		if t == nil {
			break
		}
		if _, err := t.JudgeDigest(d); err == nil {
			in = append(in, d)
		}
	}
	return in
}

// endedWith returns the invalid tokens that were made by a member, or with one of its tokens.
func (t *Tokens) endedWith(id cluster.WorkerID) (out []api.Token) {
	for _, o := range t.m.cluster.Objects().List(KindToken) {
		if x, there := t.findToken(o.Key); there && t.isOf(o, id) && x.State != api.TokenGood {
			out = append(out, x)
		}
	}
	return out
}

// EndingWith lists the valid tokens that end when a member is removed: those that it made, and those made with them,
// without its own.
func (t *Tokens) EndingWith(id cluster.WorkerID) (out []api.Token) {
	for _, x := range t.List() {
		o, there := t.m.cluster.Objects().Get(KindToken, x.Digest)
		if !there || x.State != api.TokenGood || x.Own {
			continue
		}
		if t.isOf(o, id) {
			out = append(out, x)
		}
	}
	return out
}

// isOf reports whether a member made a token, or a token in its chain.
func (t *Tokens) isOf(o registry.Object, id cluster.WorkerID) bool {
	return o.Stamp.Writer == id ||
		slices.ContainsFunc(t.rowOf(o).row.Line, func(f forebear) bool { return f.Member == string(id) })
}

// Make makes a token with the rights of another one, by.
func (t *Tokens) Make(by api.Token, in api.NewToken) (out api.MadeToken, err error) {
	life := TokenLife
	if in.Expires != 0 {
		life = time.Duration(min(max(in.Expires, 0), 2*MaxTokenLife.Seconds()) * float64(time.Second))
	}
	in.Role = cmp.Or(in.Role, api.RoleViewer)
	all := t.List()
	same := func(x api.Token) bool { return x.Name == in.Name && x.State == api.TokenGood }
	switch {
	case !pki.ValidID(in.Name) || strings.HasPrefix(in.Name, ownPrefix):
		return out, fault.New(fault.Invalid, codeTokenName,
			"%q cannot name a token: use lower-case letters, digits and dashes, and do not begin with %q", in.Name,
			ownPrefix)
	case !slices.Contains(api.Roles(), in.Role):
		return out, fault.New(fault.Invalid, pki.CodeTokenRole,
			"%q is no role; it is admin, operator or viewer", in.Role)
	case in.App != "" && in.Role == api.RoleAdmin:
		return out, fault.New(fault.Invalid, pki.CodeTokenRole,
			"a token with the role admin is for all apps, not for %s only; give it the role operator or viewer", in.App)
	case life < minTokenLife || life > MaxTokenLife:
		return out, fault.New(fault.Invalid, codeTokenLife, "a token lasts from %v to %v, not %v", minTokenLife,
			MaxTokenLife, life)
	case slices.ContainsFunc(all, same):
		return out, fault.New(fault.Conflict, codeTokenExists,
			"there is a valid token named %s; revoke it first, or choose another name", in.Name)
	case len(all) >= maxTokens:
		return out, fault.New(fault.Exhausted, pki.CodeTokens, "%d tokens are kept, the most; revoke some", len(all))
	}
	line, err := t.lineOf(by.Digest)
	if err != nil {
		return out, err
	}
	now := t.now().UTC()
	row := tokenRow{Name: in.Name, Role: in.Role, App: in.App, User: in.User, By: by.Name,
		Made: now, Ends: now.Add(life), Line: line}
	if out.Secret, err = t.tellToken(row); err == nil {
		out.Token, _ = t.findToken(api.TokenDigest(out.Secret))
	}
	return out, err
}

// lineOf returns the chain for a new token made with token d.
func (t *Tokens) lineOf(d string) ([]forebear, error) {
	o, there := t.m.cluster.Objects().Get(KindToken, d)
	if !there {
		return nil, nil
	}
	r := t.rowOf(o)
	if len(r.row.Line) >= maxLine {
		return nil, fault.New(fault.Precondition, codeTokenLine,
			"this token descends from %d other tokens, each made with the one before, and no further one can be "+
				"made with it; use one of those earlier tokens", maxLine)
	}
	return append(slices.Clone(r.row.Line), forebear{d, string(o.Stamp.Writer), r.since}), nil
}

// NewSecret returns the secret of a new token.
func NewSecret() string {
	raw := make([]byte, 32)
	rand.Read(raw) // never fails: it ends the program instead
	return "souk_" + base64.RawURLEncoding.EncodeToString(raw)
}

// tellToken draws a secret, and announces its token to all members.
func (t *Tokens) tellToken(row tokenRow) (secret string, err error) {
	secret = NewSecret()
	return secret, t.putToken(api.TokenDigest(secret), row)
}

func (t *Tokens) putToken(d string, row tokenRow) error {
	raw, err := json.Marshal(row)
	if err != nil {
		return fault.Wrap(err, fault.Internal, fault.CodeToken, "the token cannot be written")
	}
	_, err = t.m.cluster.Objects().Put(KindToken, d, schemaToken, raw)
	return err
}

// Revoke revokes the tokens with an id or a name, and all tokens made with them.
func (t *Tokens) Revoke(ref, by, reason string) (out []api.Token, err error) {
	for _, x := range t.List() {
		if x.Name != ref && x.ID != ref || x.State != api.TokenGood {
			continue
		}
		if err := t.revokeToken(x, by, reason); err != nil {
			return out, err
		}
		x, _ = t.findToken(x.Digest)
		out = append(out, x)
	}
	if len(out) == 0 {
		return out, fault.New(fault.NotFound, codeTokenNotFound, "there is no valid token named %s", ref)
	}
	return out, nil
}

func (t *Tokens) revokeToken(x api.Token, by, reason string) error {
	now := t.now().UTC()
	raw, err := json.Marshal(revokedRow{By: by, Reason: reason, At: now, Until: now.Add(MaxTokenLife)})
	if err == nil {
		_, err = t.m.cluster.Objects().Put(KindRevoked, x.Digest, schemaRevoked, raw)
	}
	if err != nil {
		return fault.Wrap(err, fault.KindOf(err), fault.CodeToken, "the token %s could not be revoked", x.Name)
	}
	return nil
}
