package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// Role says what who has a token may do.
type Role string

// The roles.
const (
	RoleAdmin    Role = "admin"    // everything
	RoleOperator Role = "operator" // everything but tokens, and policies it may only read
	RoleViewer   Role = "viewer"   // reads, and not who has tokens
)

// Roles returns all roles, the one that may most first.
func Roles() []Role { return []Role{RoleAdmin, RoleOperator, RoleViewer} }

// May reports whether who has the role may do what a route does.
func (r Role) May(to Route) bool {
	switch r {
	case RoleAdmin:
		return true
	case RoleOperator:
		return to.Kind != KindToken && (to.Kind != KindPolicy || to.Verb.Reads())
	case RoleViewer:
		return to.Kind != KindToken && to.Verb.Reads()
	}
	return to.Open
}

// OfApp reports whether the operation stays within one app: the one in its path, or the one that its query names. What an
// app may take from others is not the app's to say.
func (r Route) OfApp() bool {
	switch r.Op {
	case SetAppPolicy, SetAppBudget, SetAppNamespace:
		return false
	case ListMachineLines, StreamEvents, ListServices:
		return true
	}
	return strings.Contains(r.Op.Pattern(), "/{app}")
}

// OfNone reports whether the operation tells nothing of any app, and changes nothing.
func (r Route) OfNone() bool {
	return r.Open || slices.Contains([]Op{GetVersion, GetOpenAPI, ListDoors}, r.Op)
}

// May reports whether who has the token may do what a route does with an app; "": with none, or with all.
func (t Token) May(to Route, app string) bool {
	return t.Role.May(to) && (t.App == "" || to.OfNone() || to.OfApp() && app == t.App)
}

// Least returns the role that may do least, of those that may do what a route does.
func Least(to Route) Role {
	least := RoleAdmin
	for _, r := range Roles() {
		if r.May(to) {
			least = r
		}
	}
	return least
}

// TokenState says whether a token is let in.
type TokenState string

// The states of tokens.
const (
	TokenGood    TokenState = "good"
	TokenEnded   TokenState = "ended"   // it was good until its end
	TokenRevoked TokenState = "revoked" // it, or one that it was made with
	TokenRemoved TokenState = "removed" // its member was removed, or that of one that it was made with
)

// The codes of errors of tokens that are let in no more.
const (
	CodeTokenEnded   fault.Code = "token_ended"   // the token's time is over
	CodeTokenRevoked fault.Code = "token_revoked" // the token, or one that it was made with, was revoked
	CodeTokenRemoved fault.Code = "token_removed" // the member that made the token was removed
)

// Code returns the code of the error of a token in a state other than good.
func (s TokenState) Code() fault.Code {
	switch s {
	case TokenEnded:
		return CodeTokenEnded
	case TokenRevoked:
		return CodeTokenRevoked
	}
	return CodeTokenRemoved
}

// Token is a token of the API without its secret, which is told once and kept nowhere.
type Token struct {
	ID     string           `json:"id"` // 16 digits of the secret's digest
	Name   string           `json:"name"`
	Role   Role             `json:"role"`
	App    string           `json:"app,omitempty"`    // that it is good for; "": all
	Member cluster.WorkerID `json:"member,omitempty"` // that made it
	By     string           `json:"by,omitempty"`     // the name of the token that it was made with
	Own    bool             `json:"own,omitempty"`    // the member's own, which it renews by itself
	Made   time.Time        `json:"made,omitzero"`
	Ends   time.Time        `json:"ends,omitzero"`
	State  TokenState       `json:"state"`
	Why    string           `json:"why,omitempty"` // it is not good

	Digest string `json:"-"` // whole, within the process
}

// NewToken is what a token is made of.
type NewToken struct {
	Name    string  `json:"name"`
	Role    Role    `json:"role,omitempty"`    // none: viewer
	App     string  `json:"app,omitempty"`     // that it is good for, and for no other; none: all
	Expires float64 `json:"expires,omitempty"` // in seconds; 0: 720 hours
}

// MadeToken is a token that was made, with its secret.
type MadeToken struct {
	Token
	Secret string `json:"token"`
}

// TokenList lists tokens.
type TokenList struct {
	Tokens []Token `json:"tokens"`
}

// EvictRequest is who wants a member to be evicted, and why.
type EvictRequest struct {
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	Force  bool   `json:"force,omitempty"` // take the next step of the rotation of the gossip key, whoever lags behind
	Again  bool   `json:"again,omitempty"` // also when it has joined anew since it was removed
}

// MemberEviction says how far it has come that who has a member's disk can do nothing with it. Asking again carries on.
type MemberEviction struct {
	Member cluster.WorkerID `json:"member"`
	Done   bool             `json:"done"`
	Steps  []EvictionStep   `json:"steps"` // in their order, up to the first that is not done
}

// EvictionStep is one thing that is taken from who has the disk.
type EvictionStep struct {
	Name    string             `json:"name"` // removed, tokens, gossip-key or secrets
	Done    bool               `json:"done"`
	Text    string             `json:"text"`
	Waiting []cluster.WorkerID `json:"waiting,omitempty"` // members that have not taken it yet
}

// EvictionCheck is what came of trying all that a member's disk lets who has it do.
type EvictionCheck struct {
	Member cluster.WorkerID `json:"member"`
	OK     bool             `json:"ok"` // everything was tried, and refused
	Tries  []EvictionTry    `json:"tries"`
	Left   []string         `json:"left"` // what is left to do for people
}

// EvictionTry is one thing that was tried at one member.
type EvictionTry struct {
	At      cluster.WorkerID `json:"at"`
	What    string           `json:"what"` // tokens, certificate or gossip-key
	Refused bool             `json:"refused"`
	Have    string           `json:"have"`
}

// TokenDigest returns what a souk keeps of a token's secret, in hexadecimal digits.
func TokenDigest(secret string) string {
	sum := sha256.Sum256([]byte("souk token " + secret))
	return hex.EncodeToString(sum[:])
}

// tokenDigits is how many digits of its digest name a token.
const tokenDigits = 16

// TokenID returns the name of the token with a digest.
func TokenID(digest string) string { return digest[:min(len(digest), tokenDigits)] }

// Bounds of the nonce of a proof, which is drawn by who wants one.
const (
	MinNonce = 16
	MaxNonce = 128
)

// Proof is what a souk answers who wants to know, before it sends a token, that it is one that knows the token. Value
// is HMAC-SHA-256 under the token's digest over the address that it is asked at, IP and port, and the nonce: a program
// that has taken another cannot pass on what the souk answers, not even one at the same port of another loopback address.
type Proof struct {
	At    string `json:"at"` // HOST:PORT; "": no TCP address
	Value string `json:"value"`
}

// ProvenAt writes a server's end of a TCP connection as a proof has it.
func ProvenAt(at netip.AddrPort) string {
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()).String()
}

// ProofOf returns the proof of who knows a token's digest.
func ProofOf(digest, at, nonce string) Proof {
	mac := hmac.New(sha256.New, []byte(digest))
	mac.Write([]byte(strings.Join([]string{"souk proof 2", at, nonce}, "\n")))
	return Proof{at, hex.EncodeToString(mac.Sum(nil))}
}

// Is reports whether two proofs are the same. How long that takes tells nothing.
func (p Proof) Is(q Proof) bool {
	return p.At == q.At && hmac.Equal([]byte(p.Value), []byte(q.Value))
}
