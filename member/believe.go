package member

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/mesh/pki"
)

// What travels is signed by who may say it: see docs/decisions/0036-what-travels-is-signed.md.

// doorkeeper is the member as who judges what the others tell.
type doorkeeper struct{ *Member }

const signContext = "souk registry"

// KindSignedOnly is the kind of the object by which an issuer says that all members sign the heads of their updates, so
// that nobody believes one without. It is never taken back.
const (
	KindSignedOnly   = registry.Kind("signed-only")
	keySignedOnly    = "cluster"
	schemaSignedOnly = 1
)

// reserved says for which kinds the last places are kept: those without which nobody could be shut out.
func reserved(k registry.Kind) bool {
	switch k {
	case KindRemoved, KindToken, KindRevoked, KindIssuer, KindKeys, KindSignedOnly:
		return true
	}
	return false
}

// mayWrite says why a member with these roles may not write an object. Workers speak of themselves, in records.
func mayWrite(who pki.Name, x registry.Object) error {
	switch {
	case x.Kind == KindIssuer || x.Kind == KindKeys || x.Kind == KindSignedOnly:
		if !who.Has(pki.Issuer) || x.Kind == KindSignedOnly && x.Deleted {
			return fault.New(fault.Denied, "not_entitled",
				"member %s writes of %s, which only an issuer may, and none takes back", who.ID, x.Kind)
		}
	case x.Kind == KindDoor && x.Key != who.ID && !x.Deleted:
		return fault.New(fault.Denied, "not_entitled",
			"member %s writes where %s serves the API, which only that member itself may", who.ID, x.Key)
	case x.Kind == KindRemoved && x.Key == who.ID: // of itself: see twins
	case !who.Has(pki.Gateway) && !who.Has(pki.Issuer):
		return fault.New(fault.Denied, "not_entitled",
			"member %s writes of %s and has the roles %v; it needs the role gateway", who.ID, x.Kind, who.Roles)
	}
	return nil
}

func (m doorkeeper) may(x registry.Object) error { return mayWrite(m.identity.Name(), x) }

// verify keeps out what is not signed by who may say it: records and heads by the worker that they are of, objects by
// their writer, who must have the role for their kind; and all that is signed with the certificate of a removed member.
func (m doorkeeper) verify(owner cluster.WorkerID, signed, raw []byte) error {
	if len(raw) <= ed25519.SignatureSize {
		return fault.New(fault.Denied, "unsigned", "what is told of %s is not signed", owner)
	}
	s := pki.Signature{Signature: raw[:ed25519.SignatureSize], Certificate: raw[ed25519.SignatureSize:]}
	who, err := m.identity.Authored(signContext, signed, s, m.o.Now())
	if err != nil {
		return err
	}
	c, err := x509.ParseCertificate(s.Certificate)
	if err != nil {
		return fault.Wrap(err, fault.Denied, "signature", "the certificate of %s cannot be read", who.ID)
	}
	if m.denied(who.ID, c.NotBefore) {
		return fault.New(fault.Denied, "removed", "member %s was removed from the cluster; it must join anew", who.ID)
	}
	if object, is := strings.CutPrefix(string(signed), registry.ObjectPrefix); is {
		return verifyObject(who, c.NotAfter, []byte(object))
	}
	if !who.SpeaksFor(string(owner)) {
		return fault.New(fault.Denied, "not_entitled", "member %s tells of %s, which only that member itself may",
			who.ID, owner)
	}
	return m.verifyAge(owner, signed, c)
}

// afterlife is for how long a member whose certificate has ended may still begin to tell all anew: nobody can call it
// any more, and what it says of its machines is all that the others have.
const afterlife = 7 * 24 * time.Hour

// voice is the newest certificate that an owner has spoken with, and the earliest that it was heard to say with that.
type voice struct {
	begins time.Time
	from   registry.Position
}

// verifyAge judges by the age of the certificate that a record or a head was signed with. An incarnation counts
// seconds, so one that began long after the certificate's end was begun by who has the old key; and what an owner has
// said with a newer certificate stands before anything that comes after it with one that has ended. Neither depends on
// when it is heard, so that all members judge alike, and what was said in time may be carried for ever.
func (m doorkeeper) verifyAge(owner cluster.WorkerID, signed []byte, c *x509.Certificate) error {
	p, ok := registry.PositionOf(signed)
	if !ok {
		return fault.New(fault.Denied, "signature", "what is told of %s is neither a record nor a head", owner)
	}
	if p.Incarnation > incarnationAt(c.NotAfter.Add(afterlife)) {
		return fault.New(fault.Denied, "certificate_expired",
			"member %s has begun to tell all anew with a certificate that had ended before", owner)
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
		// Of ourselves it is let through: the registry then outbids it, so that nobody is left with it.
		return fault.New(fault.Denied, "certificate_expired",
			"member %s speaks with a certificate that has ended, and has had a newer one since", owner)
	}
	return nil
}

// verifyObject judges an object that who has signed with a certificate that ends.
func verifyObject(who pki.Name, ends time.Time, raw []byte) error {
	x, err := registry.DecodeObject(raw)
	if err != nil {
		return err
	}
	if string(x.Stamp.Writer) != who.ID {
		return fault.New(fault.Denied, "not_entitled", "member %s writes in the name of %s", who.ID, x.Stamp.Writer)
	}
	if written := time.UnixMilli(x.Stamp.Wall); written.After(ends.Add(clockSlack)) {
		return fault.New(fault.Denied, "certificate_expired", "member %s wrote of %s with a certificate that had ended",
			who.ID, x.Kind)
	}
	return mayWrite(who, x)
}

// heedSignedOnly has unsigned heads refused once an issuer has said so. What is on disk counts, so that a restart does
// not open the door again.
func (m doorkeeper) heedSignedOnly() {
	_, said := m.cluster.Objects().Get(KindSignedOnly, keySignedOnly)
	if said && m.signedOnly.CompareAndSwap(false, true) {
		m.cluster.SignedOnly()
	}
}

// leadSignedOnly is an issuer's part: once every member that has a certificate or has told anything, and was not
// removed, signs its heads, nobody needs to be believed without. What gossip says of members, which is not signed, does
// not count: it can neither hurry nor hold this up.
func (m doorkeeper) leadSignedOnly() error {
	if m.issuer == nil || m.signedOnly.Load() || !m.identity.Name().Has(pki.Issuer) || !m.begun.Load() {
		return nil
	}
	if left, err := m.unsigned(); err != nil || len(left) > 0 {
		return err
	}
	if err := m.writeSignedOnly(); err != nil {
		return err
	}
	m.o.Log.Info("all members sign what they tell; what is not signed is believed no more")
	return nil
}

func (m doorkeeper) writeSignedOnly() error {
	raw, err := json.Marshal(map[string]time.Time{"at": m.o.Now().UTC()})
	if err == nil {
		_, err = m.cluster.Objects().Put(KindSignedOnly, keySignedOnly, schemaSignedOnly, raw)
	}
	if err == nil {
		m.heedSignedOnly()
	}
	return err
}

// Unsigned lists the members that have not signed what they tell, by id; none once nothing is believed without.
func (m *Member) Unsigned() ([]cluster.WorkerID, error) {
	if m.signedOnly.Load() {
		return nil, nil
	}
	left, err := doorkeeper{m}.unsigned()
	slices.Sort(left)
	return left, err
}

// SignedOnly has nothing believed any more that is not signed, whoever has not signed yet: they are members without a
// worker until they are upgraded. It is for ever, and asked where the CA is.
func (m *Member) SignedOnly() error {
	if err := authority(m); err != nil || m.signedOnly.Load() {
		return err
	}
	if err := (doorkeeper{m}).writeSignedOnly(); err != nil {
		return err
	}
	m.o.Log.Warn("what is not signed is believed no more, as was asked for")
	return nil
}

// unsigned lists the members of which no signed head is known here: those of an older souk, and those that were
// not heard of since this one began. Of ids that only the CA knows it tells where the CA is.
func (m doorkeeper) unsigned() (out []cluster.WorkerID, err error) {
	signed := map[cluster.WorkerID]bool{}
	for _, k := range m.cluster.Known() {
		signed[k.Owner] = k.Signed
	}
	if m.issuer != nil {
		all, err := m.issuer.Issued()
		if err != nil {
			return nil, err
		}
		for _, g := range all {
			id := cluster.WorkerID(g.ID)
			signed[id] = signed[id]
		}
	}
	for id, ok := range signed {
		if !ok && !m.removedFor(id) {
			out = append(out, id)
		}
	}
	return out, nil
}

// FindingSigned names the finding that tells how far the change to signed heads is.
const FindingSigned = "gossip: only what is signed is believed"

func (m doorkeeper) finding() cluster.Finding {
	f := cluster.Finding{Name: FindingSigned, OK: true, Have: "yes"}
	if m.signedOnly.Load() {
		return f
	}
	left, err := m.unsigned()
	slices.Sort(left)
	f.Have = fmt.Sprintf("not yet; %d members have not signed what they tell: %s", len(left),
		fault.Clip(fmt.Sprint(left), 200))
	f.Advice = "upgrade these members, or remove those that are gone for good (souk node rm); the rest goes by " +
		"itself; souk node signed-only --force, where the CA is, does not wait for them"
	if err != nil {
		f.Have = fault.As(err).Text
	}
	return f
}

// Refused counts what came over gossip and was not believed, by why.
func (m *Member) Refused() map[string]int64 { return m.cluster.Stats().Refused }

// tokenWait is for how long the tokens of a member that was removed are shown as such.
const tokenWait = 10 * time.Minute

// adopt has this member stand in for what members wrote that were removed since: their signatures are not believed any
// more by who hears of it for the first time. Their tokens are let in nowhere, and go. Members do so at different
// moments, so that mostly one does it for all.
func (m remover) adopt() {
	keeper := doorkeeper{m.Member}
	if len(m.removalList()) == 0 || keeper.may(registry.Object{Kind: KindRemoved}) != nil || rand.IntN(4) > 0 {
		return
	}
	for _, x := range m.cluster.Objects().All("") {
		r, removed := m.removal(string(x.Stamp.Writer))
		if !removed || fault.CodeOf(keeper.verify(x.Stamp.Writer, x.SigningBytes(), x.Sig)) != "removed" {
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
