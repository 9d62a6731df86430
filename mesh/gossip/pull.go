package gossip

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
)

// pullByte is the first byte of our own streams. Memberlist's streams begin with 10 (encrypted), 9 (compressed), 244
// (labelled) or less than 16.
const pullByte = 0xa5

// sealer encrypts and authenticates frames with the gossip keys.
type sealer struct{ ciphers []cipher.AEAD }

func newSealer(keys [][]byte) (*sealer, error) {
	s := &sealer{}
	for _, k := range keys {
		b, err := aes.NewCipher(k)
		if err != nil {
			return nil, err
		}
		a, err := cipher.NewGCM(b)
		if err != nil {
			return nil, err
		}
		s.ciphers = append(s.ciphers, a)
	}
	return s, nil
}

// writeFrame sends head and one frame: its length, a nonce, and the encrypted text. what is authenticated with the
// text, so that a question cannot be replayed as an answer.
func (s *sealer) writeFrame(w io.Writer, head []byte, what string, text []byte) error {
	body := text
	if len(s.ciphers) > 0 {
		nonce := make([]byte, s.ciphers[0].NonceSize())
		if _, err := rand.Read(nonce); err != nil {
			return err
		}
		body = s.ciphers[0].Seal(nonce, nonce, text, []byte(what))
	}
	frame := binary.BigEndian.AppendUint32(head, uint32(len(body)))
	_, err := w.Write(append(frame, body...))
	return err
}

func (s *sealer) readFrame(r io.Reader, what string) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > 4*registry.MaxDelta {
		return nil, fault.New(fault.Invalid, fault.CodeFrame,
			"a frame of %d bytes is more than the %d allowed", n, 4*registry.MaxDelta)
	}
	var come bytes.Buffer // grows as bytes arrive: a stranger can claim any length
	if _, err := io.CopyN(&come, r, int64(n)); err != nil {
		return nil, err
	}
	body := come.Bytes()
	if len(s.ciphers) == 0 {
		return body, nil
	}
	for _, c := range s.ciphers {
		if len(body) < c.NonceSize() {
			break
		}
		if text, err := c.Open(nil, body[:c.NonceSize()], body[c.NonceSize():], []byte(what)); err == nil {
			return text, nil
		}
	}
	return nil, fault.New(fault.Denied, codeGossipKey,
		"a frame is not sealed with a gossip key of ours; members need a key in common")
}

const (
	question = "souk pull question 1"
	answer   = "souk pull answer 1"
)

// pullDelta asks one question over one connection.
func (t *transport) pullDelta(ctx context.Context, s *sealer, addr string, d registry.Digest) (registry.Delta, error) {
	conn, err := t.DialTimeout(addr, pullTimeout)
	if err != nil {
		return registry.Delta{}, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(pullTimeout))
	if err := s.writeFrame(conn, []byte{pullByte}, question, registry.EncodeDigest(d)); err != nil {
		return registry.Delta{}, err
	}
	text, err := s.readFrame(conn, answer)
	if err != nil {
		return registry.Delta{}, err
	}
	return registry.DecodeDelta(text)
}

type ownPuller struct{ c *Cluster }

// Pull asks over a stream of our own.
func (p ownPuller) Pull(ctx context.Context, m cluster.Member, d registry.Digest) (registry.Delta, error) {
	return p.c.net.pullDelta(ctx, p.c.seal.Load(), m.Addr, d)
}

// servePull answers one question of a member.
func (c *Cluster) servePull(conn net.Conn) {
	defer conn.Close()
	text, err := c.seal.Load().readFrame(conn, question)
	var d registry.Digest
	if err == nil {
		d, err = registry.DecodeDigest(text)
	}
	if err == nil {
		select {
		case c.net.answers <- struct{}{}:
			defer func() { <-c.net.answers }()
		case <-c.net.stop:
			return
		}
		err = c.seal.Load().writeFrame(conn, nil, answer, registry.EncodeDelta(c.Answer(d)))
	}
	if err != nil && !errors.Is(err, io.EOF) {
		c.o.Log.Debug("a pull was not answered", "from", conn.RemoteAddr(), "err", err)
	}
}

// Answer returns what the sender of a digest lacks. Package wire calls it for members that ask over mTLS.
func (c *Cluster) Answer(d registry.Digest) registry.Delta {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.reg.Delta(d, pullSize)
	if c.reg.Contested() > 0 {
		wakeLoop(c.announcer.contests)
	}
	return out
}
