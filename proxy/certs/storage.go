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

// storage is certmagic's own storage of files, but for two things: keys are sealed where there is a key from outside,
// and locks are of this process, so none is left behind by one that was killed.
type storage struct {
	*certmagic.FileStorage

	mu     sync.Mutex
	locked map[string]chan struct{} // closed when the lock is free again
}

func newStorage(dir string) *storage {
	return &storage{FileStorage: &certmagic.FileStorage{Path: dir}, locked: map[string]chan struct{}{}}
}

// Lock waits until nobody else has a lock, and takes it.
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

// TryLock takes a lock that nobody has.
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

// Unlock gives a lock back.
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

// Store keeps what a file is to hold.
func (s *storage) Store(ctx context.Context, file string, data []byte) (err error) {
	if isKey(file) {
		if data, err = atrest.Seal(s.Filename(file), data); err != nil {
			return err
		}
	}
	return s.FileStorage.Store(ctx, file, data)
}

// Load returns what a file holds.
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

// openKeys makes the directory where there is none, and opens the keys that are there, which are sealed anew where that
// is due. So a key from outside that is missing is told at the start.
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
			return nil // a process that ends has removed it
		}
		return err
	})
}

// certsOnDisk returns those on disk.
func (s *storage) certsOnDisk(ctx context.Context) (leaves []*x509.Certificate) {
	files, _ := s.List(ctx, certsFolder, true) // none: nothing was got yet
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
