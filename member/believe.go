package member

import (
	"crypto/ed25519"
	"crypto/x509"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/mesh/pki"
)

// Each record and object is signed by a member entitled to it: see docs/decisions/0036-what-travels-is-signed.md.

// doorkeeper is the member in its part of judging what other members send.
type doorkeeper struct{ *Member }

const signContext = "souk registry"

// isReserved reports whether the registry keeps its last places for a kind: those needed to shut a member out.
func isReserved(k registry.Kind) bool {
	switch k {
	case KindRemoved, KindToken, KindRevoked, KindIssuer, KindKeys:
		return true
	}
	return false
}

// mayWrite returns why a member with these roles may not write an object; nil: it may. Workers write records, about
// themselves only.
func mayWrite(who pki.Name, x registry.Object) error {
	switch {
	case x.Kind == KindIssuer || x.Kind == KindKeys:
		if !who.Has(pki.Issuer) {
			return fault.New(fault.Denied, codeNotEntitled, "member %s wrote an object of the kind %s, which only "+
				"an issuer may write", who.ID,
				x.Kind)
		}
	case x.Kind == KindDoor && x.Key != who.ID && !x.Deleted:
		return fault.New(fault.Denied, codeNotEntitled,
			"member %s wrote the API address of member %s, which only that member itself may write", who.ID, x.Key)
	case x.Kind == KindRemoved && x.Key == who.ID: // its own removal: see twins
	case !who.Has(pki.Gateway) && !who.Has(pki.Issuer):
		return fault.New(fault.Denied, codeNotEntitled,
			"member %s wrote an object of the kind %s and has the roles %v; it needs the role gateway",
			who.ID, x.Kind, who.Roles)
	}
	return nil
}

func (m doorkeeper) mayWrite(x registry.Object) error { return mayWrite(m.identity.Name(), x) }

// verifySigner rejects messages without a valid signature. The worker itself must sign its records and heads; the
// writer of an object must sign it, and have the role for its kind. Certificates of removed members count for nothing.
func (m doorkeeper) verifySigner(owner cluster.WorkerID, signed, raw []byte) error {
	if len(raw) <= ed25519.SignatureSize {
		return fault.New(fault.Denied, codeUnsigned, "a message about %s is not signed", owner)
	}
	s := pki.Signature{Signature: raw[:ed25519.SignatureSize], Certificate: raw[ed25519.SignatureSize:]}
	who, err := m.identity.Authored(signContext, signed, s, m.o.Now())
	if err != nil {
		return err
	}
	c, err := x509.ParseCertificate(s.Certificate)
	if err != nil {
		return fault.Wrap(err, fault.Denied, pki.CodeSignature, "the certificate of %s cannot be read", who.ID)
	}
	if m.isDenied(who.ID, c.NotBefore) {
		return fault.New(fault.Denied, fault.CodeRemoved,
			"member %s was removed from the cluster; it must join anew", who.ID)
	}
	if object, is := strings.CutPrefix(string(signed), registry.ObjectPrefix); is {
		return verifyObject(who, c.NotAfter, []byte(object))
	}
	if !who.SpeaksFor(string(owner)) {
		return fault.New(fault.Denied, codeNotEntitled, "member %s signed a message about %s, which only that "+
			"member itself may sign",
			who.ID, owner)
	}
	return m.verifyAge(owner, signed, c)
}

// afterlife is how long a member whose certificate has expired may still begin a new incarnation: others cannot call it
// any more, and its gossip is all they have of its machines.
const afterlife = 7 * 24 * time.Hour

// voice is the start of the newest certificate that an owner has signed with, and the earliest position signed with it.
type voice struct {
	begins time.Time
	from   registry.Position
}

// verifyAge judges a record or head by the age of its signer's certificate. An incarnation counts seconds, so a thief
// of the old key must have begun one that starts long after the certificate's end. Once an owner has signed with a
// newer certificate, later positions signed with an expired one are rejected. Neither rule depends on when a message
// arrives, so all members judge alike, and messages signed in time stay valid for ever.
func (m doorkeeper) verifyAge(owner cluster.WorkerID, signed []byte, c *x509.Certificate) error {
	p, ok := registry.PositionOf(signed)
	if !ok {
		return fault.New(fault.Denied, pki.CodeSignature, "the signed message about %s is neither a record nor the "+
			"head of an update", owner)
	}
	if p.Incarnation > incarnationAt(c.NotAfter.Add(afterlife)) {
		return fault.New(fault.Denied, pki.CodeCertificateExpired,
			"member %s began a new incarnation after its certificate had expired", owner)
	}
	m.voicesMu.Lock()
	defer m.voicesMu.Unlock()
	v, known := m.voices[owner]
	newer := !known || c.NotBefore.After(v.begins)
	switch {
	case newer || c.NotBefore.Equal(v.begins) && p.Compare(v.from) < 0:
		if m.voices == nil {
			m.voices = map[cluster.WorkerID]voice{}
		}
		m.voices[owner] = voice{c.NotBefore, p}
	case owner != m.ID() && c.NotBefore.Before(v.begins) && p.Compare(v.from) > 0 &&
		m.o.Now().After(c.NotAfter.Add(clockSlack)):
		// A forgery about this member itself is accepted: the registry then outbids it, so that no member keeps it.
		return fault.New(fault.Denied, pki.CodeCertificateExpired,
			"member %s signed with an expired certificate, although it has a newer one", owner)
	}
	return nil
}

// verifyObject judges an object signed by who, with a certificate that expires at ends.
func verifyObject(who pki.Name, ends time.Time, raw []byte) error {
	x, err := registry.DecodeObject(raw)
	if err != nil {
		return err
	}
	if string(x.Stamp.Writer) != who.ID {
		return fault.New(fault.Denied, codeNotEntitled, "member %s signed an object that names %s as its writer",
			who.ID, x.Stamp.Writer)
	}
	if written := time.UnixMilli(x.Stamp.Wall); written.After(ends.Add(clockSlack)) {
		return fault.New(fault.Denied, pki.CodeCertificateExpired,
			"member %s wrote an object of the kind %s with an expired certificate",
			who.ID, x.Kind)
	}
	return mayWrite(who, x)
}

// Refused counts rejected gossip messages, by reason.
func (m *Member) Refused() map[string]int64 { return m.cluster.Stats().Refused }

// tokenWait is how long a removed member's tokens are still listed, as invalid.
const tokenWait = 10 * time.Minute

// adoptObjects rewrites the objects of removed members under this member's signature: members that see them for the
// first time reject the old signatures. Removed members' tokens are invalid, and are deleted. Members start at
// different moments, so that mostly one does it for all.
func (m remover) adoptObjects() {
	keeper := doorkeeper{m.Member}
	if len(m.removalList()) == 0 || keeper.mayWrite(registry.Object{Kind: KindRemoved}) != nil || rand.IntN(4) > 0 {
		return
	}
	for _, x := range m.cluster.Objects().All("") {
		r, removed := m.removalOf(string(x.Stamp.Writer))
		if !removed || fault.CodeOf(keeper.verifySigner(x.Stamp.Writer, x.SigningBytes(), x.Sig)) != fault.CodeRemoved {
			continue
		}
		var err error
		switch {
		case x.Kind == KindDoor && !x.Deleted:
			err = m.cluster.Objects().Delete(x.Kind, x.Key)
		case x.Kind != KindToken || x.Deleted:
			err = m.cluster.Objects().Adopt(x)
		case m.o.Now().Sub(r.At) > tokenWait:
			err = m.cluster.Objects().Delete(x.Kind, x.Key)
		}
		if err != nil {
			m.o.Log.Warn("what a removed member wrote is not taken over", "kind", x.Kind, "key", x.Key, "err", err)
		}
	}
}
