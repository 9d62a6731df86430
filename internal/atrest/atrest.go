// Package atrest seals the files that hold keys with a key from outside of the disk, so that a copy of the disk alone
// opens nothing. Where none is given they are in clear, for their owner only.
//
// The key is a file that something else guards: a credential of systemd's, which a TPM opens, or what SOUK_KEY_FILE
// names. It seals keys and nothing else, so that those can be changed without it, and it without those.
package atrest

import (
	"bytes"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/soukhq/souk/fault"
)

// CodeSeal says that a secret cannot be sealed or opened.
const CodeSeal fault.Code = "seal"

// Fault says that the key from outside cannot be used.
const Fault fault.Code = "key_outside"

// Where the key is looked for: in the file that EnvFile names, else in the directory of the credentials that systemd
// gives a service.
const (
	EnvFile        = "SOUK_KEY_FILE"
	envCredentials = "CREDENTIALS_DIRECTORY"
	Credential     = "souk-key"
)

const (
	head    = "souk sealed 1\n"
	none    = "none" // in the first line: nothing is sealed any more
	minLine = 32     // characters of a key
	maxFile = 64 << 10
)

// keys are what a file of keys says: the first one seals, all open.
type keys struct {
	all     [][]byte
	unseals bool // nothing is sealed any more
}

// find reads the keys from outside; there may be none.
func find() (k keys, err error) {
	path, named := os.Getenv(EnvFile), true
	if path == "" {
		dir := os.Getenv(envCredentials)
		if dir == "" {
			return k, nil
		}
		path, named = filepath.Join(dir, Credential), false
	}
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return k, nil // the service has other credentials
	}
	var raw []byte
	if err == nil && st.Size() <= maxFile {
		raw, err = os.ReadFile(path)
	}
	switch {
	case err != nil:
		return k, fault.Wrap(err, fault.Unavailable, Fault,
			"the key from outside cannot be read; see to %s (%s)", path, EnvFile)
	case st.Mode().Perm()&0o007 != 0:
		return k, fault.New(fault.Denied, Fault, "others may read the key from outside (mode %04o); run "+
			"chmod 600 %s", st.Mode().Perm(), path)
	}
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		switch {
		case line == none && len(k.all) == 0:
			k.unseals = true
		case line == "":
		case len(line) < minLine:
			return k, fault.New(fault.Invalid, Fault, "%s has a line of %d characters; a key is one of %d or "+
				"more, drawn by chance (openssl rand -hex 32)", path, len(line), minLine)
		default:
			key, err := hkdf.Key(sha256.New, []byte(line), nil, "souk keys at rest, 1", chacha20poly1305.KeySize)
			if err != nil {
				return k, fault.Wrap(err, fault.Internal, Fault, "the key from outside cannot be used")
			}
			k.all = append(k.all, key)
		}
	}
	if len(k.all) == 0 {
		return k, fault.New(fault.Invalid, Fault, "%s holds no key: a line of %d characters or more, drawn by "+
			"chance (openssl rand -hex 32)", path, minLine)
	}
	return k, nil
}

// Seals reports whether files of keys are sealed: whether there is a key from outside.
func Seals() (bool, error) {
	k, err := find()
	return len(k.all) > 0 && !k.unseals, err
}

// Seal returns what a file of keys is to hold: sealed for a file of this name, where there is a key from outside.
func Seal(path string, data []byte) ([]byte, error) {
	k, err := find()
	if err != nil || len(k.all) == 0 || k.unseals {
		return data, err
	}
	aead, err := chacha20poly1305.NewX(k.all[0])
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, CodeSeal, "%s could not be sealed", path)
	}
	nonce := make([]byte, aead.NonceSize(), aead.NonceSize()+len(data)+aead.Overhead())
	rand.Read(nonce) // never fails
	sealed := aead.Seal(nonce, nonce, data, []byte(filepath.Base(path)))
	return append([]byte(head), base64.StdEncoding.EncodeToString(sealed)+"\n"...), nil
}

// Open returns what Seal was given, from what the file holds, which may be in clear. It reports whether the file is to
// be written anew (Seal): it is in clear and a key is there by now, or the key has changed.
func Open(path string, raw []byte) (data []byte, due bool, err error) {
	k, err := find()
	if err != nil {
		return nil, false, err
	}
	text, sealed := bytes.CutPrefix(raw, []byte(head))
	switch {
	case !sealed:
		return raw, len(k.all) > 0 && !k.unseals, nil
	case len(k.all) == 0:
		return nil, false, fault.New(fault.Precondition, Fault,
			"%s is sealed with a key from outside, which is not here: give souk the credential %s again, or name its "+
				"file in %s", path, Credential, EnvFile)
	}
	box, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err == nil && len(box) < chacha20poly1305.NonceSizeX {
		err = errors.New("it is cut off")
	}
	if err != nil {
		return nil, false, fault.Wrap(err, fault.Invalid, Fault, "%s is damaged; put it back from a backup",
			path)
	}
	for i, key := range k.all {
		aead, err := chacha20poly1305.NewX(key)
		if err != nil {
			return nil, false, fault.Wrap(err, fault.Internal, CodeSeal, "%s could not be opened", path)
		}
		nonce, rest := box[:aead.NonceSize()], box[aead.NonceSize():]
		if data, err = aead.Open(nil, nonce, rest, []byte(filepath.Base(path))); err == nil {
			return data, i > 0 || k.unseals, nil
		}
	}
	return nil, false, fault.New(fault.Precondition, Fault,
		"%s is sealed with another key from outside than the one that is here: give souk that one (the credential %s, "+
			"or %s), in a line of its own", path, Credential, EnvFile)
}
