// Package atrest seals key files with a key from outside the disk, so that a copy of the disk alone opens nothing.
// Without such a key they are in clear, readable by their owner only.
//
// The outside key is a file protected by other means: a systemd credential, which a TPM opens, or the file that
// SOUK_KEY_FILE names. It seals only keys, so that the outside key and the sealed keys can be changed independently.
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

// Fault says that the key from outside the disk cannot be used.
const Fault fault.Code = "key_outside"

// The key is in the file that EnvFile names, else in the directory of the service's systemd credentials.
const (
	EnvFile        = "SOUK_KEY_FILE"
	envCredentials = "CREDENTIALS_DIRECTORY"
	Credential     = "souk-key"
)

const (
	head    = "souk sealed 1\n"
	none    = "none" // as the first line: stop sealing, and unseal existing files
	minLine = 32     // characters of a key
	maxFile = 64 << 10
)

// keys are the keys of a key file: the first one seals, all can open.
type keys struct {
	all     [][]byte
	unseals bool // the file's first line is none
}

// find reads the outside keys; there may be none.
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
		return k, nil // the service has only other credentials
	}
	var raw []byte
	if err == nil && st.Size() <= maxFile {
		raw, err = os.ReadFile(path)
	}
	switch {
	case err != nil:
		return k, fault.Wrap(err, fault.Unavailable, Fault,
			"the key from outside the disk cannot be read; check %s (%s)", path, EnvFile)
	case st.Mode().Perm()&0o007 != 0:
		return k, fault.New(fault.Denied, Fault, "others may read the key from outside the disk (mode %04o); run "+
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
				return k, fault.Wrap(err, fault.Internal, Fault, "the key from outside the disk cannot be used")
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

// Seals reports whether key files are sealed, that is, whether there is an outside key.
func Seals() (bool, error) {
	k, err := find()
	return len(k.all) > 0 && !k.unseals, err
}

// Seal returns the content of a key file: data sealed for a file of this name, or data itself without an outside key.
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

// Open returns the data of a key file, sealed or in clear. due says that the file should be sealed again: it is in
// clear and there is an outside key now, or that key has changed.
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
			"%s is sealed with a key that is kept outside the disk, and souk was started without it: give souk the "+
				"credential %s again, or name its file in %s", path, Credential, EnvFile)
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
		"%s is sealed with another key than the one that souk was started with: add that one (the credential %s, or "+
			"%s), in a line of its own", path, Credential, EnvFile)
}
