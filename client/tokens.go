package client

import (
	"context"
	"net/url"

	"github.com/soukhq/souk/api"
)

// TokenCalls are the client's calls on API tokens, and on evictions of members.
type TokenCalls struct{ transport }

// Tokens lists the tokens, without their secrets.
func (c TokenCalls) Tokens(ctx context.Context) ([]api.Token, error) {
	var out api.TokenList
	err := c.doCall(ctx, newCall(api.ListTokens), &out)
	return out.Tokens, err
}

// MakeToken makes a token, and returns its secret, which is shown only once.
func (c TokenCalls) MakeToken(ctx context.Context, in api.NewToken) (out api.MadeToken, err error) {
	err = c.doCall(ctx, newCall(api.MakeToken).withBody(in), &out)
	return out, err
}

// RevokeToken revokes the tokens with an id or a name, and returns them.
func (c TokenCalls) RevokeToken(ctx context.Context, ref, by, reason string) ([]api.Token, error) {
	var out api.TokenList
	q := url.Values{"by": {by}, "reason": {reason}}
	err := c.doCall(ctx, newCall(api.RevokeToken, ref).withQuery(q), &out)
	return out.Tokens, err
}

// Evict revokes all credentials on a member's stolen disk, as far as possible now. Calling it again continues.
func (c TokenCalls) Evict(ctx context.Context, member string, in api.EvictRequest) (out api.MemberEviction, err error) {
	err = c.doCall(ctx, newCall(api.EvictMember, member).withBody(in), &out)
	return out, err
}

// CheckEviction tests at every member which credentials on a removed member's disk still work.
func (c TokenCalls) CheckEviction(ctx context.Context, member string) (out api.EvictionCheck, err error) {
	err = c.doCall(ctx, newCall(api.CheckEviction, member), &out)
	return out, err
}
