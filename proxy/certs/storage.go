package certs

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/caddyserver/certmagic"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/atrest"
)

// storage is certmagic's file storage with two differences: private keys are sealed if a sealing key is configured, and
// locks are held in memory, so a killed process leaves none behind.
type storage struct {
	*certmagic.FileStorage

	mu     sync.Mutex
	locked map[string]chan struct{} // closed when the lock is free again
}

func newStorage(dir string) *storage {
	return &storage{FileStorage: &certmagic.FileStorage{Path: dir}, locked: map[string]chan struct{}{}}
}

// Lock waits until a lock is free, and takes it.
func (s *storage) Lock(ctx context.Context, name string) error {
	for {
		held := s.tryLock(name)
		if held == nil {
			return nil
		}
		select {
		case <-held:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *storage) TryLock(_ context.Context, name string) (bool, error) {
	return s.tryLock(name) == nil, nil
}

func (s *storage) tryLock(name string) (held chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held = s.locked[name]; held == nil {
		s.locked[name] = make(chan struct{})
	}
	return held
}

func (s *storage) Unlock(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held := s.locked[name]; held != nil {
		close(held)
		delete(s.locked, name)
	}
	return nil
}

func isKey(file string) bool { return strings.HasSuffix(file, ".key") }

// Store writes a file; a private key is sealed first.
func (s *storage) Store(ctx context.Context, file string, data []byte) (err error) {
	if isKey(file) {
		if data, err = atrest.Seal(s.Filename(file), data); err != nil {
			return err
		}
	}
	return s.FileStorage.Store(ctx, file, data)
}

// Load returns a file's content.
func (s *storage) Load(ctx context.Context, file string) ([]byte, error) {
	raw, err := s.FileStorage.Load(ctx, file)
	if err != nil || !isKey(file) {
		return raw, err
	}
	data, due, err := atrest.Open(s.Filename(file), raw)
	if err == nil && due {
		err = s.Store(ctx, file, data)
	}
	return data, err
}

const certsFolder = "certificates" // certmagic's

// openKeys makes the directory if it is missing, and opens all private keys in it, resealing those that are due. So a
// missing sealing key is reported at the start.
func (s *storage) openKeys() error {
	if err := os.MkdirAll(s.Path, 0o700); err != nil {
		return fault.Wrap(err, fault.Unavailable, fault.CodeDir,
			"the directory %s of ACME certificates cannot be made", s.Path)
	}
	return filepath.WalkDir(s.Path, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !isKey(file) {
			return err
		}
		rel, err := filepath.Rel(s.Path, file)
		if err == nil {
			_, err = s.Load(context.Background(), filepath.ToSlash(rel))
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another process has removed it meanwhile
		}
		return err
	})
}

// certsOnDisk returns the certificates on disk.
func (s *storage) certsOnDisk(ctx context.Context) (leaves []*x509.Certificate) {
	files, _ := s.List(ctx, certsFolder, true) // an error: nothing was fetched yet
	for _, f := range files {
		if path.Ext(f) != ".crt" {
			continue
		}
		raw, err := s.Load(ctx, f)
		if err != nil {
			continue // it was removed meanwhile
		}
		if block, _ := pem.Decode(raw); block != nil {
			if leaf, err := x509.ParseCertificate(block.Bytes); err == nil {
				leaves = append(leaves, leaf)
			}
		}
	}
	return leaves
}
