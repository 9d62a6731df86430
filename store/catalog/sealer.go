package catalog

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/atrest"
	"github.com/soukhq/souk/store/journal"
)

// sealer seals values with one key. The digest is keyed, too: a plain hash would allow guessing of short values.
type sealer struct {
	key [chacha20poly1305.KeySize]byte
}

// openSealer reads the key file, or makes it if fresh says that nothing can have been sealed yet.
func openSealer(path string, fresh bool) (sealer, error) {
	var s sealer
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && fresh:
		return makeSealer(path)
	case errors.Is(err, fs.ErrNotExist):
		return s, fault.Wrap(err, fault.Invalid, codeKeyFile,
			"the key of the secrets is gone; put %s back from a backup, or the secrets cannot be read", path)
	case err != nil:
		return s, fault.Wrap(err, fault.Unavailable, codeKeyFile, "the key of the secrets cannot be read; check the "+
			"file %s",
			path)
	}
	info, err := os.Stat(path)
	if err != nil {
		return s, fault.Wrap(err, fault.Unavailable, codeKeyFile, "the key of the secrets cannot be read; check the "+
			"file %s",
			path)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return s, fault.New(fault.Denied, codeKeyFile,
			"others may read the key of the secrets (mode %04o); run chmod 600 %s", info.Mode().Perm(), path)
	}
	raw, due, err := atrest.Open(path, raw)
	if err != nil {
		return s, err
	}
	if n, err := hex.Decode(s.key[:], trimmed(raw, 2*len(s.key))); err != nil || n != len(s.key) {
		return s, fault.New(fault.Invalid, codeKeyFile,
			"%s is not a key of secrets (64 hexadecimal digits); put it back from a backup", path)
	}
	if due {
		err = s.write(path)
	}
	return s, err
}

// write writes the key to its file, sealed with an external key if there is one.
func (s sealer) write(path string) error {
	data, err := atrest.Seal(path, []byte(hex.EncodeToString(s.key[:])+"\n"))
	if err != nil {
		return err
	}
	if err := journal.WriteWhole(path, data, 0o600); err != nil {
		return fault.Wrap(err, fault.Unavailable, codeKeyFile, "the key of the secrets cannot be written; check the "+
			"file %s",
			path)
	}
	return nil
}

// trimmed removes the newline, and cuts a text that is too long for a key, so that decoding fails by its length.
func trimmed(raw []byte, n int) []byte {
	for len(raw) > 0 && (raw[len(raw)-1] == '\n' || raw[len(raw)-1] == '\r') {
		raw = raw[:len(raw)-1]
	}
	if len(raw) != n {
		return nil
	}
	return raw
}

func makeSealer(path string) (sealer, error) {
	var s sealer
	if _, err := rand.Read(s.key[:]); err != nil {
		return s, fault.Wrap(err, fault.Internal, codeKeyFile, "no random key could be made")
	}
	return s, s.write(path)
}

func (s sealer) seal(bound, value string) ([]byte, error) {
	aead, err := chacha20poly1305.NewX(s.key[:])
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, atrest.CodeSeal, "the secret could not be sealed")
	}
	nonce := make([]byte, aead.NonceSize(), aead.NonceSize()+len(value)+aead.Overhead())
	if _, err := rand.Read(nonce); err != nil {
		return nil, fault.Wrap(err, fault.Internal, atrest.CodeSeal, "the secret could not be sealed")
	}
	return aead.Seal(nonce, nonce, []byte(value), []byte(bound)), nil
}

func (s sealer) open(bound string, sealed []byte) (string, error) {
	aead, err := chacha20poly1305.NewX(s.key[:])
	if err == nil && len(sealed) > aead.NonceSize() {
		var raw []byte
		if raw, err = aead.Open(nil, sealed[:aead.NonceSize()], sealed[aead.NonceSize():], []byte(bound)); err == nil {
			return string(raw), nil
		}
	}
	return "", fault.Wrap(err, fault.Internal, codeUnseal,
		"a secret cannot be opened with this key: the key file or the catalog was changed; set the secret again")
}

func (s sealer) digest(bound, value string) string {
	mac := hmac.New(sha256.New, s.key[:])
	mac.Write([]byte(bound))
	mac.Write([]byte{0})
	mac.Write([]byte(value))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

// sealerBetweenGateways returns the sealer for rows in transit between gateways.
func sealerBetweenGateways(shared []byte) (s sealer, err error) {
	key, err := hkdf.Key(sha256.New, shared, nil, "souk secrets between gateways, 1", len(s.key))
	if err != nil {
		return s, fault.Wrap(err, fault.Internal, atrest.CodeSeal, "the key for secrets on their way could not be made")
	}
	copy(s.key[:], key)
	return s, nil
}
