package gateway

import (
	"context"
	"net"
	"net/http"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/unixsock"
	"github.com/soukhq/souk/internal/unixuser"
)

// UnixUsers says who the users of this host are. *unixuser.Users is one.
type UnixUsers interface {
	// Numbered returns the user with a number; Denied: he is not let in.
	Numbered(ctx context.Context, uid uint32) (unixuser.Account, error)
}

type peerKey struct{}

// identifyPeers has the requests of an HTTP server know the users of its connections over the socket for users.
func identifyPeers(s *http.Server) {
	before := s.ConnContext
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		ctx = before(ctx, c)
		if uid, known := unixsock.PeerOf(c); known {
			ctx = context.WithValue(ctx, peerKey{}, uid)
		}
		return ctx
	}
}

// isPeer reports whether a token is no token, but the rights of the user at the socket for users.
func isPeer(t *api.Token) bool { return t.ID == "" && t.UnixUser != nil }

// addPeer adds to the tokens of a request what the user of this host may do who sent it over the socket for users: what
// an operator may, in his own app. His tokens are his: what is made with them belongs to him.
func (f *front) addPeer(r *http.Request, good []api.Token, failed error, refused bool) ([]api.Token, error) {
	uid, local := r.Context().Value(peerKey{}).(uint32)
	switch {
	case len(good) == 0 && (!local || refused):
		return nil, failed
	case !local:
		return good, nil
	}
	a, err := f.users.Numbered(r.Context(), uid)
	if err != nil {
		kind := fault.Denied
		if fault.Is(err, fault.Unavailable) { // the name service does not answer: worth a retry
			kind = fault.Unavailable
		}
		return nil, fault.Wrap(err, kind, fault.CodeUnixUser, "the souk of this host does not serve user %d",
			uid)
	}
	who := a.UnixUser
	for i := range good {
		if good[i].UnixUser == nil {
			good[i].UnixUser = &who
		}
	}
	return append(good, api.Token{Name: who.Name, Role: api.RoleOperator, App: api.AppOfUser(who), UnixUser: &who,
		State: api.TokenGood}), nil
}
