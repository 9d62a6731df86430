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

// KindKeys is the kind of objects in which an issuer announces the generation of the gossip keys: keysTold by the
// issuer's id. The keys themselves go over the wire, to members that are not removed.
const KindKeys = registry.Kind("gossip-keys")

const schemaKeys = 1

type keyGeneration struct {
	Generation int `json:"generation"`
}

// gossipKeys is the member in its part of keeping the gossip keys: it keeps its own equal to the cluster's, and with
// the CA drives rotations.
type gossipKeys struct{ *Member }

// followKeys keeps this member's gossip keys equal to the cluster's, and with the CA drives a rotation.
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
		case <-moved: // but not before keysPause: most changes are not keys
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(keysPause):
		}
	}
}

// keysPause bounds how often the keys are checked while the registry changes.
const keysPause = 500 * time.Millisecond

// keysPatience times Knobs.Reconnect is how long a rotation waits for an unreachable member: a minute by default.
const keysPatience = 12

// keepKeys does the key work that is due now.
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

// newerKeys asks an issuer for keys if there are newer ones than ours, or if an issuer has become unreachable: we may
// be the one cut off. After a failure the next try waits.
func (m gossipKeys) newerKeys(ctx context.Context) error {
	lost := m.issuers.look()
	newer := max(m.newestKeyGeneration(), m.issuers.newest()) > m.identity.GossipKeys().Generation
	if !newer && len(lost) == 0 || time.Since(m.keysAsked) < m.o.Knobs.Reconnect {
		return nil
	}
	if !newer {
		m.keysAsked = time.Now()
		err := m.fetchKeys(ctx, lost)
		if fault.Is(err, fault.Denied) { // reachable, but it rejects this member
			return err
		}
		return nil // probably gone
	}
	err := m.fetchKeys(ctx, m.issuers.all())
	if err != nil {
		m.keysAsked = time.Now()
	}
	return err
}

// newestKeyGeneration returns the newest generation that an issuer has announced.
func (m gossipKeys) newestKeyGeneration() (newest int) {
	for _, o := range m.cluster.Objects().List(KindKeys) {
		var t keyGeneration
		if json.Unmarshal(o.Payload, &t) == nil {
			newest = max(newest, t.Generation)
		}
	}
	return newest
}

// keysOf returns the key generation that a member claims to have.
func (m gossipKeys) keysOf(id cluster.WorkerID) int {
	x, _ := m.cluster.Member(id)
	return x.Keys
}

// fetchKeys asks issuers for the key bundle until one has answered.
func (m gossipKeys) fetchKeys(ctx context.Context, addrs []string) error {
	err := error(fault.New(fault.Unavailable, pki.CodeIssuer, "no issuer is known; see that a member with the CA runs"))
	for _, addr := range addrs {
		err = m.client.Refresh(ctx, addr)
		if err == nil || fault.CodeOf(err) == fault.CodeRemoved {
			m.outcast.Store(err != nil) // the issuer's certificate proves that it said so
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// leadKeys is an issuer's part: it syncs its keys with the CA's, drives a rotation, and announces the generation.
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
		return fault.Wrap(err, fault.Internal, codeGossipKeys, "the generation of the gossip keys cannot be written")
	}
	_, err = m.cluster.Objects().Put(KindKeys, string(m.ID()), schemaKeys, raw)
	return err
}
