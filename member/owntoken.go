package member

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/registry"
)

// keepTokensPause bounds how often the tokens are checked while the registry changes.
const keepTokensPause = 100 * time.Millisecond

// forgetEvery is how often ended tokens are looked for: that walks all objects.
const forgetEvery = time.Hour

// Own makes this member's own token valid at every member. If the token is new (written by hand, or made since the file
// was deleted), the previous one becomes invalid.
func (t *Tokens) Own(secret string) error {
	d := api.TokenDigest(secret)
	t.mu.Lock()
	t.own = d
	t.mu.Unlock()
	if t.isLocal() {
		return nil
	}
	if _, there := t.m.cluster.Objects().Get(KindToken, d); there {
		return t.renewOwn()
	}
	for _, x := range t.List() {
		if x.Own && x.Member == t.m.ID() && x.Digest != d && x.State == api.TokenGood {
			if err := t.revokeToken(x, string(t.m.ID()), "the member has another one"); err != nil {
				return err
			}
		}
	}
	return t.putToken(d, t.ownRow())
}

// isLocal reports whether this member may not write tokens, since it is only a worker: its own token is valid only
// here.
func (t *Tokens) isLocal() bool {
	return doorkeeper{t.m}.mayWrite(registry.Object{Kind: KindToken}) != nil
}

func (t *Tokens) ownRow() tokenRow {
	now := t.now().UTC()
	return tokenRow{Name: ownPrefix + string(t.m.ID()), Role: api.RoleAdmin, Own: true,
		Made: now, Ends: now.Add(TokenLife), Keys: t.m.identity.GossipKeys().Generation}
}

// Keep renews this member's own token, and deletes ended tokens, until ctx ends.
func (t *Tokens) Keep(ctx context.Context) {
	every := time.NewTicker(t.m.o.Knobs.Reconnect)
	defer every.Stop()
	var forgot time.Time
	for {
		moved := t.m.cluster.Moved()
		err := t.renewOwn()
		if now := time.Now(); now.Sub(forgot) >= forgetEvery {
			forgot, err = now, errors.Join(err, t.forgetEnded())
		}
		if err != nil {
			t.m.o.Log.Warn("the tokens could not be looked after", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		case <-moved:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(keepTokensPause):
		}
	}
}

// renewOwn replaces this member's own token when a third of its life is over, when it is no longer valid, or when the
// gossip key has changed: a removed member may have read the token's digest, and could pose as a souk that knows the
// token. The previous token stays valid until its end, for clients that have read it already.
func (t *Tokens) renewOwn() error {
	t.mu.Lock()
	own, pending := t.own, t.pending
	t.mu.Unlock()
	if t.keep == nil || t.isLocal() || !t.isDue(own) {
		return nil
	}
	if m := t.m; m.isDenied(string(m.ID()), m.identity.Begins()) {
		return nil // this member was removed: no other accepts its tokens
	}
	if pending == "" {
		secret, err := t.tellToken(t.ownRow())
		if err != nil {
			return err
		}
		pending = secret
	}
	t.mu.Lock()
	t.pending = pending
	t.mu.Unlock()
	if err := t.keep(pending); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.own, t.pending = api.TokenDigest(pending), ""
	return nil
}

// isDue reports whether the own token must be replaced.
func (t *Tokens) isDue(own string) bool {
	o, there := t.m.cluster.Objects().Get(KindToken, own)
	if own == "" || !there {
		return own != ""
	}
	r, now := t.rowOf(o), t.now()
	_, revoked := t.revocationOf(own)
	keys := t.m.identity.GossipKeys()
	// the token was announced under an older gossip key, which others had
	unheard := len(keys.Keys) == 1 && keys.Generation > r.row.Keys
	return revoked || unheard || r.err != nil || !now.Before(r.row.Made.Add(ownRenewed)) ||
		t.m.isDenied(string(o.Stamp.Writer), r.since)
}

// forgetEnded deletes tokens that ended long ago, and revocations of tokens that have ended: each member its own, and
// the member with the CA all.
func (t *Tokens) forgetEnded() (failed error) {
	now := t.now()
	over := func(o registry.Object) bool {
		if o.Kind == KindToken {
			r := t.rowOf(o)
			return r.err == nil && now.After(r.row.Ends.Add(keepEnded))
		}
		var r revokedRow
		return json.Unmarshal(o.Payload, &r) == nil && !r.Until.IsZero() && now.After(r.Until)
	}
	for _, kind := range []registry.Kind{KindToken, KindRevoked} {
		for _, o := range t.m.cluster.Objects().List(kind) {
			if (o.Stamp.Writer == t.m.ID() || t.m.issuer != nil) && over(o) {
				failed = errors.Join(failed, t.m.cluster.Objects().Delete(kind, o.Key))
			}
		}
	}
	return failed
}
