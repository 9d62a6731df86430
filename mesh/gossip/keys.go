package gossip

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"time"

	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
)

// tellTime bounds the wait until a change of keys reaches others, and each network step of Knock.
const tellTime = 2 * time.Second

// SetKeys changes the keys while the member runs: the first key encrypts from now on, all keys decrypt, and keys not in
// the list are removed. Others learn this member's generation of keys (Member.Keys). It fails in a cluster without
// encryption.
//
// The caller must make sure that every member can decrypt with a key before any member encrypts with it; see package
// pki's GossipKeys.
func (c *Cluster) SetKeys(generation int, keys [][]byte) error {
	if c.ring == nil || len(keys) == 0 {
		return fault.New(fault.Precondition, codeGossipKey, "gossip that is not encrypted has no keys to change")
	}
	seal, err := newSealer(keys)
	if err != nil {
		return fault.Wrap(err, fault.Invalid, codeGossipKey, "a gossip key cannot be used")
	}
	for _, k := range keys {
		if err := c.ring.AddKey(k); err != nil {
			return fault.Wrap(err, fault.Invalid, codeGossipKey, "a gossip key cannot be used")
		}
	}
	if err := c.ring.UseKey(keys[0]); err != nil {
		return fault.Wrap(err, fault.Internal, codeGossipKey, "a gossip key that was just installed is missing")
	}
	old := slices.Clone(c.ring.GetKeys())
	// in reverse: memberlist's RemoveKey shifts the slice that readers may be iterating over
	for _, k := range slices.Backward(old) {
		if !slices.ContainsFunc(keys, func(x []byte) bool { return bytes.Equal(x, k) }) {
			if err := c.ring.RemoveKey(k); err != nil {
				return fault.Wrap(err, fault.Internal, codeGossipKey,
					"an unused gossip key could not be removed")
			}
		}
	}
	c.seal.Store(seal)
	c.keys.Store(int64(generation))
	select {
	case <-c.ready:
		// A timeout here is no error: memberlist repeats the update with its full exchanges.
		if err := c.ml.UpdateNode(tellTime); err != nil {
			c.o.Log.Debug("the others may not have heard yet which keys of gossip this member has", "err", err)
		}
	default: // the generation is sent when the member begins
	}
	return nil
}

// Keys returns the generation of the keys that this member has.
func (c *Cluster) Keys() int { return int(c.keys.Load()) }

// Knock reports whether the gossip at an address answers a holder of key. It sends no data to that member and does not
// join it. An error means that the address did not answer at all.
func Knock(ctx context.Context, addr string, key []byte) (answered bool, err error) {
	s, err := newSealer([][]byte{key})
	if err != nil {
		return false, fault.Wrap(err, fault.Invalid, codeGossipKey, "a gossip key cannot be used")
	}
	conn, err := (&net.Dialer{Timeout: tellTime}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false, fault.Wrap(err, fault.Unavailable, fault.CodeUnreachable,
			"the gossip at %s cannot be reached", addr)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(tellTime))
	if err := s.writeFrame(conn, []byte{pullByte}, question, registry.EncodeDigest(registry.Digest{})); err != nil {
		return false, fault.Wrap(err, fault.Unavailable, fault.CodeUnreachable,
			"the gossip at %s did not accept the request", addr)
	}
	// a member that cannot decrypt the question closes the connection or stays silent
	_, err = io.ReadFull(conn, make([]byte, 1))
	return err == nil, nil
}
