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

// Options is what a store is made of. Only Dir is needed.
type Options struct {
	Dir      string         // made when there is none
	Remote   remote.Options // registries, mirrors, credentials
	Platform v1.Platform    // of the images; the zero value is the host's
	Parallel int            // blobs of one pull at once; 0: 3
	Limits   layer.Limits   // of each layer
	Budget   int64          // bytes that are kept: what is over is collected after pulls and loads; 0: all
	KeepFree int64          // bytes that stay free on the disk: images that nobody uses give way, and pulls are refused
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
	imagesDir = "images" // a record for each image that is whole; its time is when it was last used
	namesDir  = "names"
	pinsDir   = "pins"
	leasesDir = "leases" // what pulls and unpackings under way need, each locked by its process
	locksDir  = "locks"  // for each thing that one at a time makes
	tmpDir    = "tmp"
	lockFile  = "lock" // whoever changes what is kept has it for a moment
)

// Open opens the store of a directory, and removes what was left there by processes that died.
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
	// There are programs with setuid bits below it, which are nobody's of this host.
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

// withStoreLock runs do while no other process changes what is kept.
func (s *Store) withStoreLock(ctx context.Context, do func() error) error {
	l, err := filelock.Acquire(ctx, s.path(lockFile))
	if err != nil {
		return lockError(ctx, err)
	}
	defer l.Release()
	return do()
}

// lockOne waits until it is this caller's to make a thing.
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

// writeFile puts a small file there at once and durably.
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

// readDir reads the small files of one directory. One that cannot be read is left out: what it said is lost, and what
// nobody refers to is collected.
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

// record is what the store knows of an image beyond its manifest.
type record struct {
	Digest string `json:"digest"`
	Index  string `json:"index,omitempty"`
	Source string `json:"source,omitempty"`
}

// named is a name and what it means.
type named struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
}

// keepImage makes an image known, under its names, once all of it is there.
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

// Get returns the image that a name or a digest means in this store. No registry is asked.
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

// known is what is kept of images by their digests.
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

// readImage returns the image of a record, its documents verified.
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

// List returns all images, those used last first.
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
				continue // it went meanwhile, or must be pulled again; Check says so
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

// touchImage says that an image was used now.
func (s *Store) touchImage(digest string) {
	now := s.o.Now()
	_ = os.Chtimes(s.path(imagesDir, hexOf(digest)), now, now) // gone meanwhile, or a disk that is read only
}
