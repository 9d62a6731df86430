package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/image/blobs"
	"github.com/soukhq/souk/runtime/image/filelock"
	"github.com/soukhq/souk/runtime/image/layer"
)

const (
	blobsDir   = "blobs/sha256"
	partialDir = "partial"
	// writing is how old an unlocked small file must be to count as abandoned.
	writing = time.Hour
)

// Collect removes data that no image needs, and then unpinned images, the least recently used first, until at most
// budget bytes are left. It returns the number of bytes freed.
func (s *Store) Collect(ctx context.Context, budget int64) (freed int64, err error) {
	return s.collectBy(ctx, budget, nil)
}

// Prune removes everything except pinned images, data in use, and the wanted images, given as names or names with a
// digest. Wanted images stay because a loaded image cannot be pulled again, and a registry may be unreachable.
func (s *Store) Prune(ctx context.Context, wanted []string) (freed int64, err error) {
	return s.collectBy(ctx, 0, func(all []candidate, k known) error {
		keep := map[string]bool{}
		for _, name := range wanted {
			r, err := s.findRecord(name)
			switch {
			case err == nil:
				keep[r.Digest] = true
			case !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Invalid):
				return err
			}
		}
		for i := range all {
			all[i].fixed = all[i].fixed || keep[all[i].digest]
		}
		return nil
	})
}

// Remove removes one name of an image, or the image if it was its last name or name is its digest. It fails if the
// image is pinned.
func (s *Store) Remove(ctx context.Context, name string) (freed int64, err error) {
	return s.collectBy(ctx, math.MaxInt64, func(all []candidate, k known) error {
		r, err := s.findRecord(name)
		if err != nil {
			return err
		}
		names := k.names[r.Digest]
		if ref, err := Parse(name); err == nil && ref.Digest == "" && len(names) > 1 {
			return s.removeFile(namesDir, hashOf([]byte(ref.String())).Hex)
		}
		if owners := k.pins[r.Digest]; len(owners) > 0 {
			return fault.New(fault.Conflict, codeImagePinned,
				"the image %s is in use by %s; destroy what uses it first", name, listSome(owners))
		}
		for i, c := range all {
			if c.digest == r.Digest && c.fixed {
				return fault.New(fault.Conflict, codeImagePinned,
					"the image %s is being pulled or unpacked; try again when that has ended", name)
			} else if c.digest == r.Digest {
				all[i].parts = nil
			}
		}
		return s.removeRecord(r.Digest, names)
	})
}

// listSome lists the first five, and how many more there are.
func listSome(all []string) string {
	if len(all) > 5 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:5], ", "), len(all)-5)
	}
	return strings.Join(all, ", ")
}

// collectBy removes images and parts by planCollection. Before that it calls first, which may change the candidates.
func (s *Store) collectBy(ctx context.Context, budget int64, first func([]candidate, known) error) (freed int64,
	err error) {
	w, err := s.newWorkshop()
	if err != nil {
		return 0, err
	}
	defer w.removeWorkshop() // deletes the removed layers after the store's lock is released
	return freed, s.withStoreLock(ctx, func() error {
		k, err := s.readKnown()
		if err != nil {
			return err
		}
		busy, err := s.leasedParts()
		if err != nil {
			return err
		}
		all, err := s.listCandidates(k, busy)
		if err != nil {
			return err
		}
		if first != nil {
			if err := first(all, k); err != nil {
				return err
			}
		}
		sizes, err := s.partSizes(busy)
		if err != nil {
			return err
		}
		kept := func(part string) bool { return busy[filepath.Base(part)] }
		images, parts := planCollection(all, sizes, kept, budget)
		for _, d := range images {
			if err := s.removeRecord(d, k.names[d]); err != nil {
				return err
			}
		}
		for _, p := range parts {
			if err := s.removePart(w, p); err != nil {
				return err
			}
			freed += sizes[p]
		}
		return nil
	})
}

// listCandidates lists the images. An image with damaged documents keeps only its manifest, because it must be pulled
// again.
func (s *Store) listCandidates(k known, busy map[string]bool) (out []candidate, err error) {
	records, err := readDir[record](s, imagesDir)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		c := candidate{digest: r.Digest, fixed: len(k.pins[r.Digest]) > 0 || busy[hexOf(r.Digest)]}
		i, err := s.readImage(r, k)
		code := fault.CodeOf(err)
		switch {
		case err == nil:
			c.used, c.parts = i.Used, s.partsNeeded(i)
		case code == blobs.CodeImageDamaged || code == blobs.CodeImageBlob || code == codeImagePlatform:
			c.parts = []string{filepath.Join(blobsDir, hexOf(r.Digest))}
		default:
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

func (s *Store) partsNeeded(i *Image) []string {
	blob := func(h v1.Hash) string { return filepath.Join(blobsDir, h.Hex) }
	out := []string{filepath.Join(blobsDir, hexOf(i.Digest)), blob(i.manifest.Config.Digest)}
	for n, l := range i.manifest.Layers {
		out = append(out, blob(l.Digest), filepath.Join(layersDir, i.chains[n].Hex),
			filepath.Join(userLayers, i.chains[n].Hex))
	}
	return out
}

// partSizes returns the disk use of each part of the store.
func (s *Store) partSizes(busy map[string]bool) (map[string]int64, error) {
	out := map[string]int64{}
	for _, dir := range []string{blobsDir, partialDir, layersDir, userLayers} {
		entries, err := os.ReadDir(s.path(dir))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, blobs.Disk(err, "read the directory of images")
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil || dir == partialDir && s.isUnderWay(info, busy) {
				continue // it is gone, or still being written
			}
			size := info.Size()
			if e.IsDir() {
				u, err := readJSON[unpacked](s.path(dir, e.Name(), layerRecord))
				if size = u.Tally.Bytes; err != nil {
					size = 0
				}
			}
			out[filepath.Join(dir, e.Name())] = size
		}
	}
	return out, nil
}

// isUnderWay reports whether a file in the directory partial is still being written.
func (s *Store) isUnderWay(info fs.FileInfo, busy map[string]bool) bool {
	if busy[info.Name()] {
		return true
	}
	if _, is := parseDigest("sha256:" + info.Name()); !is {
		return s.o.Now().Sub(info.ModTime()) < writing
	}
	l, err := filelock.Try(s.path(locksDir, "blob-"+info.Name()))
	if err != nil || l == nil {
		return true
	}
	_ = os.Remove(l.File().Name())
	l.Release()
	return false
}

func (s *Store) removePart(w *workshop, part string) error {
	if strings.HasPrefix(part, "layers") {
		err := os.Rename(s.path(part), filepath.Join(w.dir, strings.ReplaceAll(part, "/", "-")))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return blobs.Disk(err, "remove %s", part)
		}
		return nil
	}
	return s.removeFile(filepath.Split(part))
}

func (s *Store) removeRecord(digest string, names []string) error {
	for _, n := range names {
		if err := s.removeFile(namesDir, hashOf([]byte(n)).Hex); err != nil {
			return err
		}
	}
	return s.removeFile(imagesDir, hexOf(digest))
}

func (s *Store) removeFile(dir, name string) error {
	if err := os.Remove(s.path(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return blobs.Disk(err, "remove %s", filepath.Join(dir, name))
	}
	return nil
}

// Bytes returns how many bytes the images use: blobs, unpacked layers and unfinished pulls.
func (s *Store) Bytes() (total int64, err error) {
	sizes, err := s.partSizes(map[string]bool{})
	for _, n := range sizes {
		total += n
	}
	return total, err
}

// Check verifies all stored data and returns a sentence for each damaged part. It removes damaged blobs, so that the
// next pull fetches them.
func (s *Store) Check(ctx context.Context) (wrong []string, err error) {
	sizes, err := s.partSizes(map[string]bool{})
	if err != nil {
		return nil, err
	}
	for p := range sizes {
		if ctx.Err() != nil {
			return wrong, fault.Wrap(ctx.Err(), fault.Timeout, fault.CodeImageCanceled,
				"checking the images was given up")
		}
		var err error
		switch dir, name := filepath.Split(p); filepath.Clean(dir) {
		case blobsDir:
			err = s.checkBlob(v1.Hash{Algorithm: "sha256", Hex: name})
		case layersDir, userLayers:
			err = s.checkLayer(p)
		}
		if f := fault.As(err); f != nil {
			if f.Code != blobs.CodeImageDamaged && f.Code != fault.CodeImageDigest {
				return wrong, err
			}
			wrong = append(wrong, f.Text)
		}
	}
	slices.Sort(wrong)
	return wrong, nil
}

func (s *Store) checkBlob(h v1.Hash) error {
	r, err := s.blobs.Open(h)
	if fault.Is(err, fault.NotFound) {
		return nil // collected meanwhile
	}
	if err != nil {
		return err
	}
	defer r.Close()
	err = r.Verify()
	if fault.CodeOf(err) == blobs.CodeImageDamaged {
		if err := s.blobs.Remove(h); err != nil {
			return err
		}
	}
	return err
}

func (s *Store) checkLayer(part string) error {
	u, err := readJSON[unpacked](s.path(part, layerRecord))
	if errors.Is(err, fs.ErrNotExist) || isSyntax(err) {
		return nil //nolint:nilerr // unfinished, or collected meanwhile
	}
	if err != nil {
		return blobs.Disk(err, "read %s", part)
	}
	have, err := layer.Count(s.path(part, diffDir))
	if err != nil {
		return err
	}
	if have != u.Tally {
		return fault.New(fault.Unavailable, blobs.CodeImageDamaged,
			"the unpacked layer %s has %d entries and %d bytes, and was unpacked with %d and %d; remove the images "+
				"that "+
				"use it, and pull them "+
				"again", filepath.Base(part), have.Entries, have.Bytes, u.Tally.Entries, u.Tally.Bytes)
	}
	return nil
}
