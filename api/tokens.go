package api

import (
	"time"

	"github.com/soukhq/souk/cluster"
)

// Role says what who has a token may do. What a scope adds to it will be judged by the same table of routes.
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

// Token is a token of the API without its secret, which is told once and kept nowhere.
type Token struct {
	ID     string           `json:"id"` // 16 digits of the secret's digest
	Name   string           `json:"name"`
	Role   Role             `json:"role"`
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
