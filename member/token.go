package member

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/soukhq/souk/registry"
)

// KindToken is the kind of objects whose keys are the digests of the API's tokens: any member lets in whoever has a
// token that one of them made.
const KindToken = registry.Kind("token")

// AllowToken lets a token in at every member.
func (m *Member) AllowToken(token string) error {
	key := digest(token)
	if _, there := m.cluster.Objects().Get(KindToken, key); there {
		return nil
	}
	_, err := m.cluster.Objects().Put(KindToken, key, 1, []byte(`{"member":"`+string(m.ID())+`"}`))
	return err
}

// Allowed says whether a token is good. Only digests are compared, and those of whoever guesses differ in all places,
// so how long it takes tells nothing.
func (m *Member) Allowed(token string) bool {
	o, there := m.cluster.Objects().Get(KindToken, digest(token))
	return there && !o.Deleted
}

func digest(token string) string {
	sum := sha256.Sum256([]byte("souk token " + token))
	return hex.EncodeToString(sum[:])
}
