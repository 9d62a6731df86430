package member

import (
	"context"
	"encoding/json"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/mesh/pki"
)

// KindKeys is the kind of objects by which an issuer tells the generation of the keys of gossip: keysTold by the
// issuer's id. The keys themselves go over the wire, to members that are not removed.
const KindKeys = registry.Kind("gossip-keys")

const schemaKeys = 1

type keyGeneration struct {
	Generation int `json:"generation"`
}

// gossipKeys is the member as who keeps the keys of gossip: its own those of the cluster, and a rotation going where
// the CA is.
type gossipKeys struct{ *Member }

// followKeys keeps this member's keys of gossip those of the cluster, and, where the CA is, has a rotation go on.
func (m gossipKeys) followKeys(ctx context.Context) {
	every := time.NewTicker(m.o.Knobs.Reconnect)
	defer every.Stop()
	for {
		moved := m.cluster.Moved()
		if err := m.keepKeys(ctx); err != nil && ctx.Err() == nil {
			m.o.Log.Warn("the keys of gossip could not be looked after", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		case <-m.keysDue:
		case <-moved: // and not before keysPause is over: much changes that is no key
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(keysPause):
		}
	}
}

// keysPause bounds how often the keys are looked after while much changes.
const keysPause = 500 * time.Millisecond

// keysPatience is for how many times Knobs.Reconnect a rotation waits for a member that is not heard: a minute by
// default.
const keysPatience = 12

// keepKeys does once what is due now.
func (m gossipKeys) keepKeys(ctx context.Context) error {
	failed := m.newerKeys(ctx)
	remover{m.Member}.adoptObjects()
	if err := m.leadKeys(ctx); err != nil {
		failed = err
	}
	if k := m.identity.GossipKeys(); m.keysOf(m.ID()) != k.Generation {
		if err := m.cluster.SetKeys(k.Generation, k.Keys); err != nil {
			return err
		}
	}
	return failed
}

// newerKeys asks an issuer where there are newer keys than ours, and, where an issuer is not heard any more, that one:
// we may be the one that is not heard. After asking in vain the next try waits.
func (m gossipKeys) newerKeys(ctx context.Context) error {
	lost := m.issuers.look()
	newer := max(m.newestKeyGeneration(), m.issuers.newest()) > m.identity.GossipKeys().Generation
	if !newer && len(lost) == 0 || time.Since(m.keysAsked) < m.o.Knobs.Reconnect {
		return nil
	}
	if !newer {
		m.keysAsked = time.Now()
		err := m.fetchKeys(ctx, lost)
		if fault.Is(err, fault.Denied) { // it is there, and will have nothing to do with us
			return err
		}
		return nil // it is gone, most likely
	}
	err := m.fetchKeys(ctx, m.issuers.all())
	if err != nil {
		m.keysAsked = time.Now()
	}
	return err
}

// newestKeyGeneration gives the newest generation that an issuer has told of.
func (m gossipKeys) newestKeyGeneration() (newest int) {
	for _, o := range m.cluster.Objects().List(KindKeys) {
		var t keyGeneration
		if json.Unmarshal(o.Payload, &t) == nil {
			newest = max(newest, t.Generation)
		}
	}
	return newest
}

// keysOf gives the generation of keys that a member says it has.
func (m gossipKeys) keysOf(id cluster.WorkerID) int {
	x, _ := m.cluster.Member(id)
	return x.Keys
}

// fetchKeys asks issuers for the bundle until one has answered.
func (m gossipKeys) fetchKeys(ctx context.Context, addrs []string) error {
	err := error(fault.New(fault.Unavailable, pki.CodeIssuer, "no issuer is known; see that a member with the CA runs"))
	for _, addr := range addrs {
		err = m.client.Refresh(ctx, addr)
		if err == nil || fault.CodeOf(err) == fault.CodeRemoved {
			m.outcast.Store(err != nil) // an issuer said so itself, as its certificate shows
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// leadKeys is an issuer's part: it takes the keys of its CA, or gives it newer ones, has a rotation go on, and tells of
// it.
func (m gossipKeys) leadKeys(ctx context.Context) error {
	if m.issuer == nil {
		return nil
	}
	k, err := m.issuer.Gossip()
	if err != nil {
		return err
	}
	mine := m.identity.GossipKeys()
	if mine.Generation > k.Generation { // another copy of the CA has rotated
		return m.issuer.AdoptGossip(mine)
	}
	if k.Step != "" && m.allHaveKeys(ctx, k) {
		if k, err = m.issuer.AdvanceGossip(k.Generation); err != nil {
			return err
		}
		m.o.Log.Info("the rotation of the key of gossip goes on", "generation", k.Generation, "step", k.Step)
	}
	if k.Generation > mine.Generation {
		bundle, err := m.issuer.Bundle()
		if err != nil {
			return err
		}
		if err := m.identity.Trust(bundle, m.o.Now()); err != nil {
			return err
		}
	}
	if k.Generation == 0 || k.Generation <= m.newestKeyGeneration() {
		return nil
	}
	raw, err := json.Marshal(keyGeneration{k.Generation})
	if err != nil {
		return fault.Wrap(err, fault.Internal, codeGossipKeys, "the generation of the keys cannot be written")
	}
	_, err = m.cluster.Objects().Put(KindKeys, string(m.ID()), schemaKeys, raw)
	return err
}
