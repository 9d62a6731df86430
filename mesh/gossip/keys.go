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

// tellTime bounds how long the others' hearing of something is waited for.
const tellTime = 2 * time.Second

// SetKeys changes the keys while the member runs: the first one encrypts from now on, all of them decrypt, and others
// do no more. The others hear which generation of keys this member has (Member.Keys). It is for a cluster that is
// encrypted.
//
// Who changes a key must see that everybody can read it before anybody writes with it; see package pki's GossipKeys.
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
		return fault.Wrap(err, fault.Internal, codeGossipKey, "a gossip key that was just installed is not there")
	}
	old := slices.Clone(c.ring.GetKeys())
	// from the end: memberlist's RemoveKey shifts what readers may be looking at
	for _, k := range slices.Backward(old) {
		if !slices.ContainsFunc(keys, func(x []byte) bool { return bytes.Equal(x, k) }) {
			if err := c.ring.RemoveKey(k); err != nil {
				return fault.Wrap(err, fault.Internal, codeGossipKey,
					"a gossip key that is not used could not be removed")
			}
		}
	}
	c.seal.Store(seal)
	c.keys.Store(int64(generation))
	select {
	case <-c.ready:
		// That the news did not reach anybody yet is no error: memberlist repeats it with its full exchanges.
		if err := c.ml.UpdateNode(tellTime); err != nil {
			c.o.Log.Debug("the others may not have heard yet which keys of gossip this member has", "err", err)
		}
	default: // it is told when the member begins
	}
	return nil
}

// Keys returns the generation of the keys that this member has.
func (c *Cluster) Keys() int { return int(c.keys.Load()) }

// Knock reports whether the gossip at an address answers who has a key, and nothing else of a member. It tells nothing
// there and becomes no member. An error says that nobody was there to answer.
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
			"the gossip at %s takes no question", addr)
	}
	_, err = io.ReadFull(conn, make([]byte, 1)) // it is closed, or silent, to whose question it cannot open
	return err == nil, nil
}
