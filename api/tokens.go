package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Role says what the holder of a token may do.
type Role string

// The roles.
const (
	RoleAdmin    Role = "admin"    // everything
	RoleOperator Role = "operator" // everything but tokens, and policies it may only read
	RoleViewer   Role = "viewer"   // reads everything but tokens
)

// Roles returns all roles, the most powerful first.
func Roles() []Role { return []Role{RoleAdmin, RoleOperator, RoleViewer} }

// May reports whether the role may use a route.
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

// OfApp reports whether the operation stays within one app: the one in its path, or the one that its query names. An
// app's own settings about taking resources from others do not count as within the app.
func (r Route) OfApp() bool {
	switch r.Op {
	case SetAppPolicy, SetAppBudget, SetAppNamespace:
		return false
	case ListMachineLines, StreamEvents, ListServices:
		return true
	}
	return strings.Contains(r.Op.Pattern(), "/{app}")
}

// OfJob reports whether the operation is on jobs, whose apps and owners are in no path: its handler checks them.
func (r Route) OfJob() bool { return r.Kind == KindJob || r.Op == TaskLogs || r.Op == JobLogs }

// OfNone reports whether the operation reveals nothing of any app, and changes nothing.
func (r Route) OfNone() bool {
	return r.Open || slices.Contains([]Op{GetVersion, GetOpenAPI, ListDoors}, r.Op)
}

// May reports whether the token may use a route for an app; "": for none, or for all.
func (t Token) May(to Route, app string) bool {
	return t.Role.May(to) && (t.App == "" || to.OfNone() || to.OfJob() || to.OfApp() && app == t.App) &&
		(to.Verb.Reads() || !IsUserApp(app) || t.Role == RoleAdmin || t.isOwnApp(app))
}

// AppOfUser returns the app that is a Unix user's own, in which he may do what an operator may: unix-NAME, or
// unix-NUMBER where the name cannot be part of an app's.
func AppOfUser(u cluster.UnixUser) string {
	if app := userAppPrefix + u.Name; machine.ValidName(app) {
		return app
	}
	return fmt.Sprintf("%s%d", userAppPrefix, u.UID)
}

// userAppPrefix begins the names of the apps that are Unix users' own, and of no others.
const userAppPrefix = "unix-"

// IsUserApp reports whether an app is a Unix user's own. Only this user and admins change it, or what is in it.
func IsUserApp(app string) bool { return strings.HasPrefix(app, userAppPrefix) }

// isOwnApp reports whether an app is the own one of the token's Unix user.
func (t Token) isOwnApp(app string) bool { return t.UnixUser != nil && AppOfUser(*t.UnixUser) == app }

// Least returns the least powerful role that may use a route.
func Least(to Route) Role {
	least := RoleAdmin
	for _, r := range Roles() {
		if r.May(to) {
			least = r
		}
	}
	return least
}

// TokenState is good for a valid token, else the reason why it is not valid.
type TokenState string

// The states of tokens.
const (
	TokenGood    TokenState = "good"
	TokenEnded   TokenState = "ended"   // it has expired
	TokenRevoked TokenState = "revoked" // it, or a token in its chain, was revoked
	TokenRemoved TokenState = "removed" // its member, or that of a token in its chain, was removed
)

// The codes of errors of tokens that are no longer valid.
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

// Token is a token of the API without its secret, which is shown once and stored nowhere.
type Token struct {
	ID     string           `json:"id"` // 16 digits of the secret's digest
	Name   string           `json:"name"`
	Role   Role             `json:"role"`
	App    string           `json:"app,omitempty"`    // the only app it is valid for; "": all
	Member cluster.WorkerID `json:"member,omitempty"` // the member that made it
	// the Unix user that what is made with it belongs to and runs as; nil: none
	UnixUser *cluster.UnixUser `json:"unix_user,omitempty"`
	By       string            `json:"by,omitempty"`  // the name of the token that it was made with
	Own      bool              `json:"own,omitempty"` // the member's own, which it renews by itself
	Made     time.Time         `json:"made,omitzero"`
	Ends     time.Time         `json:"ends,omitzero"`
	State    TokenState        `json:"state"`
	Why      string            `json:"why,omitempty"` // why it is not valid

	Digest string `json:"-"` // the whole digest, only within the process
}

// NewToken is the request to make a token.
type NewToken struct {
	Name string `json:"name"`
	Role Role   `json:"role,omitempty"` // none: viewer
	App  string `json:"app,omitempty"`  // the only app it is valid for; none: all
	// UnixUser is the name of a user of the answering member's host: what is made with the token is his, and runs as him.
	// With neither Role nor App it is good for what he may do at the socket of a host: an operator's, in his own app.
	UnixUser string  `json:"unix_user,omitempty"`
	Expires  float64 `json:"expires,omitempty"` // in seconds; 0: 720 hours

	User *cluster.UnixUser `json:"-"` // UnixUser with the number that he has there
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

// EvictRequest says who wants to evict a member, and why.
type EvictRequest struct {
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	Force  bool   `json:"force,omitempty"` // rotate the gossip key without waiting for others
	Again  bool   `json:"again,omitempty"` // even if it has joined again since its removal
}

// MemberEviction is the progress of revoking all credentials on a member's disk. Asking again continues.
type MemberEviction struct {
	Member cluster.WorkerID `json:"member"`
	Done   bool             `json:"done"`
	Steps  []EvictionStep   `json:"steps"` // in order, up to the first that is not done
}

// EvictionStep is one credential revoked from the holder of a stolen disk.
type EvictionStep struct {
	Name    string             `json:"name"` // removed, tokens, gossip-key or secrets
	Done    bool               `json:"done"`
	Text    string             `json:"text"`
	Waiting []cluster.WorkerID `json:"waiting,omitempty"` // members that have not applied it yet
}

// EvictionCheck is the result of trying all credentials on a removed member's disk.
type EvictionCheck struct {
	Member cluster.WorkerID `json:"member"`
	OK     bool             `json:"ok"` // everything was tried and refused
	Tries  []EvictionTry    `json:"tries"`
	Left   []string         `json:"left"` // what is left to do by hand
}

// EvictionTry is one credential tried at one member.
type EvictionTry struct {
	At      cluster.WorkerID `json:"at"`
	What    string           `json:"what"` // tokens, certificate or gossip-key
	Refused bool             `json:"refused"`
	Have    string           `json:"have"`
}

// TokenDigest returns the digest of a token's secret, which souk stores, in hexadecimal.
func TokenDigest(secret string) string {
	sum := sha256.Sum256([]byte("souk token " + secret))
	return hex.EncodeToString(sum[:])
}

// tokenDigits is the length of a token's id, in digits of its digest.
const tokenDigits = 16

// TokenID returns the id of the token with a digest.
func TokenID(digest string) string { return digest[:min(len(digest), tokenDigits)] }

// Bounds of the nonce of a proof, which the client draws.
const (
	MinNonce = 16
	MaxNonce = 128
)

// Proof is a souk's answer to a client that wants to know, before it sends a token, that the souk knows the token.
// Value is HMAC-SHA-256, keyed by the token's digest, over the server's address (IP and port) and the nonce: a program
// on another address or port cannot relay the real souk's proof, not even on another loopback address.
type Proof struct {
	At    string `json:"at"` // HOST:PORT; "": no TCP address
	Value string `json:"value"`
}

// ProvenAt formats the server's address of a TCP connection for a proof.
func ProvenAt(at netip.AddrPort) string {
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()).String()
}

// ProofOf returns the proof of knowing a token's digest.
func ProofOf(digest, at, nonce string) Proof {
	mac := hmac.New(sha256.New, []byte(digest))
	mac.Write([]byte(strings.Join([]string{"souk proof 2", at, nonce}, "\n")))
	return Proof{at, hex.EncodeToString(mac.Sum(nil))}
}

// Is compares two proofs in constant time.
func (p Proof) Is(q Proof) bool {
	return p.At == q.At && hmac.Equal([]byte(p.Value), []byte(q.Value))
}
