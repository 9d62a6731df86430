package client

import (
	"context"
	"net/url"

	"github.com/soukhq/souk/api"
)

// TokenCalls are what a client asks about the tokens of the API, and about members that are to lose theirs.
type TokenCalls struct{ transport }

// Tokens lists the tokens, without their secrets.
func (c TokenCalls) Tokens(ctx context.Context) ([]api.Token, error) {
	var out api.TokenList
	err := c.doCall(ctx, newCall(api.ListTokens), &out)
	return out.Tokens, err
}

// MakeToken makes a token, and returns its secret, which is told this once.
func (c TokenCalls) MakeToken(ctx context.Context, in api.NewToken) (out api.MadeToken, err error) {
	err = c.doCall(ctx, newCall(api.MakeToken).withBody(in), &out)
	return out, err
}

// RevokeToken lets the tokens of an id or a name in no more, and returns them.
func (c TokenCalls) RevokeToken(ctx context.Context, ref, by, reason string) ([]api.Token, error) {
	var out api.TokenList
	q := url.Values{"by": {by}, "reason": {reason}}
	err := c.doCall(ctx, newCall(api.RevokeToken, ref).withQuery(q), &out)
	return out.Tokens, err
}

// Evict takes from who has a member's disk all that it lets them do, as far as that goes now. Asked again it carries
// on.
func (c TokenCalls) Evict(ctx context.Context, member string, in api.EvictRequest) (out api.MemberEviction, err error) {
	err = c.doCall(ctx, newCall(api.EvictMember, member).withBody(in), &out)
	return out, err
}

// CheckEviction tries at every member what the disk of a removed one lets who has it do.
func (c TokenCalls) CheckEviction(ctx context.Context, member string) (out api.EvictionCheck, err error) {
	err = c.doCall(ctx, newCall(api.CheckEviction, member), &out)
	return out, err
}
