package gateway

import (
	"cmp"
	"context"
	"net/http"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// Tokens are those of the API, as all members of a cluster let them in.
type Tokens interface {
	// Judge returns the token that a secret is of, or why it is not let in.
	Judge(secret string) (api.Token, error)
	// Digest returns the digest of the token with an id, or why it is not let in.
	Digest(id string) (digest string, err error)
	List() []api.Token
	// EndingWith lists the good tokens that end when a member is removed, but for the member's own.
	EndingWith(id cluster.WorkerID) []api.Token
	// Make makes a token for who has the token by.
	Make(by api.Token, in api.NewToken) (api.MadeToken, error)
	// Revoke lets the tokens of an id or a name in no more, nor what was made with them.
	Revoke(ref, by, reason string) ([]api.Token, error)
}

// Evictions take from who has a member's disk all that it lets them do.
type Evictions interface {
	// Evict does what is due now, and says how far it has come.
	Evict(ctx context.Context, id cluster.WorkerID, in api.EvictRequest) (api.MemberEviction, error)
	// Check tries what a removed member's disk lets who has it do.
	Check(ctx context.Context, id cluster.WorkerID) (api.EvictionCheck, error)
}

// tokensAPI serves the tokens, and what takes them and all else from members.
type tokensAPI struct {
	apps      appCatalog
	tokens    Tokens    // nil: this souk is alone, and has one
	evictions Evictions // nil: this souk is alone
}

// opHandlers returns what it serves.
func (a *tokensAPI) opHandlers() handlers {
	return handlers{
		api.ListTokens:  a.list,
		api.MakeToken:   a.make,
		api.RevokeToken: a.revoke,

		api.EvictMember:   a.evict,
		api.CheckEviction: a.checkEviction,
	}
}

func (a *tokensAPI) tokensOrError() (Tokens, error) {
	if a.tokens == nil {
		return nil, fault.New(fault.Precondition, codeAlone,
			"this souk is alone, and has the one token in its directory; a cluster has several (\"souk init\")")
	}
	return a.tokens, nil
}

func (a *tokensAPI) list(w http.ResponseWriter, _ *http.Request) error {
	t, err := a.tokensOrError()
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, api.TokenList{Tokens: append([]api.Token{}, t.List()...)})
	return nil
}

func (a *tokensAPI) make(w http.ResponseWriter, r *http.Request) error {
	t, err := a.tokensOrError()
	if err != nil {
		return err
	}
	var in api.NewToken
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if in.App != "" {
		if _, err := a.apps.App(in.App); err != nil {
			return err
		}
	}
	out, err := t.Make(adminToken(r), in)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusCreated, out)
	return nil
}

// adminToken returns the token with which a request of an admin was let in.
func adminToken(r *http.Request) (t api.Token) {
	for _, x := range of(r).who {
		if x.Role == api.RoleAdmin && x.App == "" {
			return x
		}
	}
	return t
}

func (a *tokensAPI) revoke(w http.ResponseWriter, r *http.Request) error {
	t, err := a.tokensOrError()
	if err != nil {
		return err
	}
	q := r.URL.Query()
	by := clipText(cmp.Or(q.Get("by"), adminToken(r).Name), 256)
	gone, err := t.Revoke(r.PathValue("token"), by, clipText(q.Get("reason"), 256))
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, api.TokenList{Tokens: append([]api.Token{}, gone...)})
	return nil
}

func (a *tokensAPI) evict(w http.ResponseWriter, r *http.Request) error {
	if a.evictions == nil {
		return noMember()
	}
	var in api.EvictRequest
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	in.By, in.Reason = clipText(in.By, 256), clipText(in.Reason, 256)
	out, err := a.evictions.Evict(r.Context(), cluster.WorkerID(r.PathValue("member")), in)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, out)
	return nil
}

func (a *tokensAPI) checkEviction(w http.ResponseWriter, r *http.Request) error {
	if a.evictions == nil {
		return noMember()
	}
	out, err := a.evictions.Check(r.Context(), cluster.WorkerID(r.PathValue("member")))
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, out)
	return nil
}
