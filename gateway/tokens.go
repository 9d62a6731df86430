package gateway

import (
	"cmp"
	"context"
	"net/http"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/unixuser"
)

// Tokens are the API's tokens, which all members of a cluster accept.
type Tokens interface {
	// Judge returns the token of a secret, or why it is not valid.
	Judge(secret string) (api.Token, error)
	// Digest returns the digest of the token with an id, or why it is not valid.
	Digest(id string) (digest string, err error)
	List() []api.Token
	// EndingWith lists the valid tokens that end when a member is removed, without the member's own.
	EndingWith(id cluster.WorkerID) []api.Token
	// Make makes a token for the holder of token by.
	Make(by api.Token, in api.NewToken) (api.MadeToken, error)
	// Revoke revokes the tokens with an id or a name, and all tokens made with them.
	Revoke(ref, by, reason string) ([]api.Token, error)
}

// Evictions revoke all credentials on a member's stolen disk.
type Evictions interface {
	// Evict does the steps that are due now, and reports its progress.
	Evict(ctx context.Context, id cluster.WorkerID, in api.EvictRequest) (api.MemberEviction, error)
	// Check tests which credentials on a removed member's disk still work.
	Check(ctx context.Context, id cluster.WorkerID) (api.EvictionCheck, error)
}

// tokensAPI serves tokens and evictions.
type tokensAPI struct {
	apps      appCatalog
	tokens    Tokens    // nil: this souk is alone, and has a single token
	evictions Evictions // nil: this souk is alone
}

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
	if err := settleUnixUser(r.Context(), &in); err != nil {
		return err
	}
	if in.App != "" && (in.User == nil || in.App != api.AppOfUser(*in.User)) { // that one exists once it is used
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

// settleUnixUser looks up the Unix user of a new token on this host, and gives him an operator's rights in his own app
// unless the request says otherwise.
func settleUnixUser(ctx context.Context, in *api.NewToken) error {
	if in.UnixUser == "" {
		return nil
	}
	a, err := unixuser.Named(ctx, in.UnixUser)
	if err != nil {
		return err
	}
	if a.UID == 0 {
		return fault.New(fault.Invalid, fault.CodeRoot, "no token is root's: name another user, or leave "+
			"--unix-user out")
	}
	in.User = &a.UnixUser
	if in.Role == "" && in.App == "" {
		in.Role, in.App = api.RoleOperator, api.AppOfUser(a.UnixUser)
	}
	return nil
}

// adminToken returns the admin token of a request.
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
