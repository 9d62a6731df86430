package image

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/image/blobs"
)

// pin records that an owner needs an image.
type pin struct {
	Owner  string `json:"owner"`
	Digest string `json:"digest"`
}

func pinFile(owner, digest string) string { return hashOf([]byte(owner + "\n" + digest)).Hex }

// Pin keeps an image until its owner, for instance a machine, unpins it. The pin is on disk when Pin returns. Pinning
// again has no effect.
func (s *Store) Pin(ctx context.Context, name, owner string) error {
	if owner == "" || len(owner) > 256 {
		return fault.New(fault.Invalid, codeImagePin, "a pin needs an owner of 1 to 256 bytes, such as a machine's id")
	}
	return s.withStoreLock(ctx, func() error {
		r, err := s.findRecord(name)
		if err != nil {
			return err
		}
		s.touchImage(r.Digest)
		if _, err := os.Lstat(s.path(pinsDir, pinFile(owner, r.Digest))); err == nil {
			return nil
		}
		return s.writeFile(pinsDir, pinFile(owner, r.Digest), pin{Owner: owner, Digest: r.Digest})
	})
}

// PinOnly is Pin, and then removes the owner's other pins. At every moment the owner has one of them.
func (s *Store) PinOnly(ctx context.Context, name, owner string) error {
	if err := s.Pin(ctx, name, owner); err != nil {
		return err
	}
	return s.withStoreLock(ctx, func() error {
		r, err := s.findRecord(name)
		if err != nil {
			return err
		}
		return s.removePins(owner, r.Digest)
	})
}

// Unpin removes all pins of an owner. It is no error if there are none.
func (s *Store) Unpin(ctx context.Context, owner string) error {
	return s.withStoreLock(ctx, func() error { return s.removePins(owner, "") })
}

// removePins removes an owner's pins, except that of the digest but. The caller holds the store's lock.
func (s *Store) removePins(owner, but string) error {
	all, err := readDir[pin](s, pinsDir)
	if err != nil {
		return err
	}
	for file, p := range all {
		if p.Owner != owner || p.Digest == but {
			continue
		}
		if err := os.Remove(s.path(pinsDir, file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return blobs.Disk(err, "unpin an image of %s", owner)
		}
	}
	return nil
}
