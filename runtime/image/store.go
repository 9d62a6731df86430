package image

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/image/blobs"
	"github.com/soukhq/souk/runtime/image/filelock"
	"github.com/soukhq/souk/runtime/image/layer"
	"github.com/soukhq/souk/runtime/image/remote"
)

// Options configure a store. Only Dir is required.
type Options struct {
	Dir      string         // made if it does not exist
	Remote   remote.Options // registries, mirrors, credentials
	Platform v1.Platform    // of the images; zero: the host's
	Parallel int            // blobs of one pull at once; 0: 3
	Limits   layer.Limits   // of each layer
	Budget   int64          // bytes to keep: pulls and loads collect what exceeds it; 0: unlimited
	// bytes to keep free on the disk: unpinned images are removed, and pulls refused, to keep them free
	KeepFree int64
	Now      func() time.Time
}

// Store is a directory of images. Its methods may be called from many goroutines and processes.
type Store struct {
	o      Options
	blobs  *blobs.Dir
	remote *remote.Client

	mu     sync.Mutex
	probed *layer.Form
}

// The directories of a store.
const (
	imagesDir = "images" // a record for each complete image; the file's time is the image's last use
	namesDir  = "names"
	pinsDir   = "pins"
	leasesDir = "leases" // data that running pulls and unpackings need; each file is locked by its process
	locksDir  = "locks"  // a lock for each object that is made by one process at a time
	tmpDir    = "tmp"
	lockFile  = "lock" // held for a moment by a process that changes the records
)

// Open opens the store in a directory, and removes what dead processes have left there.
func Open(o Options) (*Store, error) {
	if o.Platform.OS == "" {
		o.Platform = HostPlatform()
	}
	if o.Parallel == 0 {
		o.Parallel = 3
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	// It contains setuid programs from images, which no user of this host may run.
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, blobs.Disk(err, "make the directory of images")
	}
	if err := os.Chmod(o.Dir, 0o700); err != nil {
		return nil, blobs.Disk(err, "close the directory of images to others")
	}
	for _, d := range []string{imagesDir, namesDir, pinsDir, leasesDir, locksDir, tmpDir} {
		if err := os.MkdirAll(filepath.Join(o.Dir, d), 0o700); err != nil {
			return nil, blobs.Disk(err, "make the directory of images")
		}
	}
	b, err := blobs.Open(o.Dir)
	if err != nil {
		return nil, err
	}
	s := &Store{o: o, blobs: b, remote: remote.New(o.Remote)}
	return s, s.sweepLeftovers(context.Background())
}

// Dir returns the store's directory.
func (s *Store) Dir() string { return s.o.Dir }

// Close closes the connections to registries.
func (s *Store) Close() error {
	s.remote.Close()
	return nil
}

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.o.Dir}, parts...)...)
}

// withStoreLock runs do under the store's lock.
func (s *Store) withStoreLock(ctx context.Context, do func() error) error {
	l, err := filelock.Acquire(ctx, s.path(lockFile))
	if err != nil {
		return lockError(ctx, err)
	}
	defer l.Release()
	return do()
}

// lockOne waits for the lock of one object, which only its holder may make.
func (s *Store) lockOne(ctx context.Context, kind, name string) (*filelock.Lock, error) {
	l, err := filelock.AcquireNamed(ctx, s.path(locksDir, kind+"-"+name))
	if err != nil {
		return nil, lockError(ctx, err)
	}
	return l, nil
}

func lockError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fault.Wrap(err, fault.Timeout, fault.CodeImageCanceled,
			"waiting for others who use the same images was "+
				"given up")
	}
	return blobs.Disk(err, "lock the directory of images")
}

// writeFile writes a small file atomically and durably.
func (s *Store) writeFile(dir, name string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(s.path(tmpDir), "file-")
	if err != nil {
		return blobs.Disk(err, "write in the directory of images")
	}
	defer f.Close()
	_, err = f.Write(raw)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(f.Name(), s.path(dir, name))
	}
	if err == nil {
		err = blobs.SyncDir(s.path(dir))
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return blobs.Disk(err, "write in the directory of images")
	}
	return nil
}

// readDir reads the small files of one directory. It skips a file that cannot be parsed: its content is lost, and the
// data that it referred to will be collected.
func readDir[T any](s *Store, dir string) (map[string]T, error) {
	entries, err := os.ReadDir(s.path(dir))
	if err != nil {
		return nil, blobs.Disk(err, "read the directory of images")
	}
	out := map[string]T{}
	for _, e := range entries {
		v, err := readJSON[T](s.path(dir, e.Name()))
		if err == nil {
			out[e.Name()] = v
		} else if !errors.Is(err, fs.ErrNotExist) && !isSyntax(err) {
			return nil, blobs.Disk(err, "read %s", s.path(dir, e.Name()))
		}
	}
	return out, nil
}

func readJSON[T any](path string) (v T, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal(raw, &v)
}

func isSyntax(err error) bool {
	_, syntax := errors.AsType[*json.SyntaxError](err)
	_, kind := errors.AsType[*json.UnmarshalTypeError](err)
	return syntax || kind
}

// record is the store's information about an image beyond its manifest.
type record struct {
	Digest string `json:"digest"`
	Index  string `json:"index,omitempty"`
	Source string `json:"source,omitempty"`
}

// named is a name and the digest of its image.
type named struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
}

// keepImage records an image under its names, once the image is complete.
func (s *Store) keepImage(ctx context.Context, r record, names []string) error {
	return s.withStoreLock(ctx, func() error {
		if err := s.writeFile(imagesDir, hexOf(r.Digest), r); err != nil {
			return err
		}
		for _, n := range names {
			if err := s.writeFile(namesDir, hashOf([]byte(n)).Hex, named{Name: n, Digest: r.Digest}); err != nil {
				return err
			}
		}
		return nil
	})
}

func hexOf(digest string) string { return strings.TrimPrefix(digest, "sha256:") }

// Get returns the stored image of a name or a digest. It asks no registry.
func (s *Store) Get(name string) (*Image, error) {
	r, err := s.findRecord(name)
	if err != nil {
		return nil, err
	}
	k, err := s.readKnown()
	if err != nil {
		return nil, err
	}
	return s.readImage(r, k)
}

// known is the names and pin owners of images, by digest.
type known struct{ names, pins map[string][]string }

func (s *Store) readKnown() (k known, err error) {
	names, err := readDir[named](s, namesDir)
	if err != nil {
		return k, err
	}
	pins, err := readDir[pin](s, pinsDir)
	if err != nil {
		return k, err
	}
	k = known{names: map[string][]string{}, pins: map[string][]string{}}
	for _, n := range names {
		k.names[n.Digest] = append(k.names[n.Digest], n.Name)
	}
	for _, p := range pins {
		k.pins[p.Digest] = append(k.pins[p.Digest], p.Owner)
	}
	for _, m := range []map[string][]string{k.names, k.pins} {
		for _, all := range m {
			slices.Sort(all)
		}
	}
	return k, nil
}

func (s *Store) findRecord(name string) (record, error) {
	digest := name
	if _, ok := parseDigest(name); !ok {
		ref, err := Parse(name)
		if err != nil {
			return record{}, err
		}
		digest = ref.Digest
		if digest == "" {
			n, err := readJSON[named](s.path(namesDir, hashOf([]byte(ref.String())).Hex))
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !isSyntax(err) {
				return record{}, blobs.Disk(err, "read the name %s", ref)
			}
			if digest = n.Digest; digest == "" {
				return record{}, absentError(name)
			}
		}
	}
	r, err := readJSON[record](s.path(imagesDir, hexOf(digest)))
	if err == nil {
		return r, nil
	}
	if !errors.Is(err, fs.ErrNotExist) && !isSyntax(err) {
		return record{}, blobs.Disk(err, "read what is known of %s", name)
	}
	all, err := readDir[record](s, imagesDir)
	if err != nil {
		return record{}, err
	}
	for _, r := range all {
		if r.Index == digest {
			return r, nil
		}
	}
	return record{}, absentError(name)
}

func absentError(name string) error {
	return fault.New(fault.NotFound, machine.CodeImage,
		"the image %s is not on this host; pull it from its registry or load it from a file", name)
}

// readImage returns the image of a record, with its documents verified.
func (s *Store) readImage(r record, k known) (*Image, error) {
	h, ok := parseDigest(r.Digest)
	if !ok {
		return nil, absentError(r.Digest)
	}
	m, c, diffIDs, err := s.readDocuments(h, r.Digest)
	if err != nil {
		return nil, err
	}
	i := &Image{Digest: r.Digest, Index: r.Index, Config: c, Names: k.names[r.Digest],
		Pins: k.pins[r.Digest], manifest: m, chains: chainIDs(diffIDs), source: r.Source}
	for n, l := range m.Layers {
		i.Layers = append(i.Layers, Layer{Digest: l.Digest.String(), DiffID: diffIDs[n].String(),
			Chain: i.chains[n].String(), Size: l.Size})
		i.Size += l.Size
	}
	i.Size += m.Config.Size
	if size, there := s.blobs.Size(h); there {
		i.Size += size
	}
	if info, err := os.Stat(s.path(imagesDir, h.Hex)); err == nil {
		i.Used = info.ModTime()
	}
	return i, nil
}

// readDocuments reads an image's manifest and config.
func (s *Store) readDocuments(h v1.Hash, what string) (*v1.Manifest, Config, []v1.Hash, error) {
	raw, err := s.blobs.Read(h, maxDocument)
	if err != nil {
		return nil, Config{}, nil, err
	}
	d, err := parseDocument(raw, what)
	if err != nil {
		return nil, Config{}, nil, err
	}
	if d.manifest == nil {
		return nil, Config{}, nil, fault.New(fault.Invalid, codeImageManifest,
			"%s is an index of images, not an image; build or push the image again", what)
	}
	if raw, err = s.blobs.Read(d.manifest.Config.Digest, maxDocument); err != nil {
		return nil, Config{}, nil, err
	}
	c, diffIDs, err := parseConfig(raw, d.manifest, s.o.Platform, what)
	return d.manifest, c, diffIDs, err
}

// List returns all images, the last used first.
func (s *Store) List() ([]*Image, error) {
	all, err := readDir[record](s, imagesDir)
	if err != nil {
		return nil, err
	}
	k, err := s.readKnown()
	if err != nil {
		return nil, err
	}
	var out []*Image
	for _, r := range all {
		i, err := s.readImage(r, k)
		if err != nil {
			if k := fault.KindOf(err); k == fault.NotFound || fault.CodeOf(err) == blobs.CodeImageDamaged {
				continue // gone meanwhile, or damaged; Check reports it
			}
			return nil, err
		}
		out = append(out, i)
	}
	slices.SortFunc(out, func(a, b *Image) int {
		if c := b.Used.Compare(a.Used); c != 0 {
			return c
		}
		return strings.Compare(a.Digest, b.Digest)
	})
	return out, nil
}

// touchImage sets an image's last use to now.
func (s *Store) touchImage(digest string) {
	now := s.o.Now()
	_ = os.Chtimes(s.path(imagesDir, hexOf(digest)), now, now) // fails if the image is gone, or the disk is read-only
}
