package pki

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/atrest"
)

// The kinds of PEM blocks in souk's files.
const (
	keyBlock    = "PRIVATE KEY"
	certBlock   = "CERTIFICATE"
	gossipBlock = "SOUK GOSSIP KEY"
)

// writeWhole replaces a file atomically: a reader, or a restart after a crash, finds the old file or the new one. Only
// the owner may read it.
func writeWhole(file string, data []byte) error {
	temp, err := writeTemp(file, data)
	if err == nil {
		if err = os.Rename(temp, file); err != nil {
			os.Remove(temp)
		}
	}
	if err == nil {
		err = syncDir(filepath.Dir(file))
	}
	return fileFault(err, file)
}

// writeKeys is writeWhole for files with keys: it seals them if there is an external key.
func writeKeys(file string, data []byte) error {
	data, err := atrest.Seal(file, data)
	if err != nil {
		return err
	}
	return writeWhole(file, data)
}

// readKeys reads a file of writeKeys. If the file is in clear, or sealed with an earlier key, it seals it anew.
func readKeys(file string) ([]byte, error) {
	raw, err := readFile(file)
	if err != nil {
		return nil, err
	}
	data, due, err := atrest.Open(file, raw)
	if err == nil && due {
		err = writeKeys(file, data)
	}
	return data, err
}

// writeNew is writeWhole for a file that must not exist yet: of several concurrent calls one succeeds, the others get
// fs.ErrExist.
func writeNew(file string, data []byte) error {
	temp, err := writeTemp(file, data)
	if err == nil {
		err = os.Link(temp, file)
		os.Remove(temp)
	}
	if errors.Is(err, fs.ErrExist) {
		return fs.ErrExist
	}
	if err == nil {
		err = syncDir(filepath.Dir(file))
	}
	return fileFault(err, file)
}

func writeTemp(file string, data []byte) (name string, err error) {
	f, err := os.CreateTemp(filepath.Dir(file), ".new-*") // CreateTemp uses mode 0600
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return f.Name(), err
}

// syncDir makes file names made, changed or removed in dir survive a power loss.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func fileFault(err error, file string) error {
	if err == nil {
		return nil
	}
	return fault.Wrap(err, fault.Unavailable, fault.CodeFile, "%s could not be read or written", file)
}

// maxFile bounds every file that is read here, in bytes.
const maxFile = 1 << 20

// readFile reads a file of souk's own; it returns fs.ErrNotExist unwrapped.
func readFile(file string) ([]byte, error) {
	if st, err := os.Stat(file); err == nil && st.Size() > maxFile {
		return nil, fault.New(fault.Invalid, fault.CodeFile,
			"%s has %d bytes; no file of souk's is larger than %d", file,
			st.Size(), maxFile)
	}
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return raw, fileFault(err, file)
}

func readJSON(file string, v any) error {
	raw, err := readFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fault.Wrap(err, fault.Invalid, fault.CodeFile, "%s is damaged", file)
	}
	return nil
}

// blocks are the contents of a PEM file, in order.
type blocks struct {
	key    ed25519.PrivateKey
	certs  []*x509.Certificate
	gossip GossipKeys
}

func parseBlocks(raw []byte, file string) (b blocks, err error) {
	for {
		var p *pem.Block
		if p, raw = pem.Decode(raw); p == nil {
			return b, nil
		}
		switch p.Type {
		case keyBlock:
			b.key, err = parseKey(p.Bytes)
		case certBlock:
			var c *x509.Certificate
			if c, err = x509.ParseCertificate(p.Bytes); err == nil {
				b.certs = append(b.certs, c)
			}
		case gossipBlock:
			err = b.gossip.readBlock(p)
		}
		if err != nil {
			return b, fault.Wrap(err, fault.Invalid, fault.CodeFile,
				"%s is damaged: a %s in it cannot be read", file, p.Type)
		}
	}
}

func parseKey(der []byte) (ed25519.PrivateKey, error) {
	k, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, err
	}
	key, ok := k.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New("it is not an Ed25519 key")
	}
	return key, nil
}

func keyPEM(k ed25519.PrivateKey) []byte {
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		panic("pki: a key does not encode: " + err.Error()) // cannot happen: the type is fixed
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der})
}

func certPEM(certs ...*x509.Certificate) []byte {
	var out []byte
	for _, c := range certs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: certBlock, Bytes: c.Raw})...)
	}
	return out
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("pki: plain data does not encode: " + err.Error())
	}
	return append(b, '\n')
}
