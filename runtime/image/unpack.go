package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/image/blobs"
	"github.com/soukhq/souk/runtime/image/layer"
)

// Root is the source of a machine's root file system.
type Root struct {
	Image  *Image
	Lower  []string // overlayfs lower directories, the topmost first
	Xattrs bool     // overlayfs needs its option userxattr
}

// unpacked is the record of an unpacked layer. A layer without it is incomplete.
type unpacked struct {
	Tally      layer.Tally `json:"tally"`
	OpaqueRoot bool        `json:"opaque_root,omitempty"`
}

const (
	layersDir   = "layers"      // by chain id
	userLayers  = "layers.user" // the same, unpacked by a process that is not root
	diffDir     = "diff"
	layerRecord = "layer.json"
)

// Unpack unpacks the layers of an image that are not unpacked yet. The caller must have the image pinned, or it may be
// collected. If the disk is full, unpinned images are removed to make room.
func (s *Store) Unpack(ctx context.Context, name string) (*Root, error) {
	r, err := s.unpackImage(ctx, name)
	if f := fault.As(err); f == nil || f.Code != fault.CodeImageDisk || f.Kind != fault.Exhausted {
		return r, err
	}
	_, l, uerr := s.useImage(ctx, name) // protects this image from the collection
	defer l.endLease()
	if uerr != nil {
		return r, err
	}
	if freed, perr := s.Collect(ctx, 0); freed == 0 || perr != nil {
		return r, err
	}
	return s.unpackImage(ctx, name)
}

func (s *Store) unpackImage(ctx context.Context, name string) (*Root, error) {
	form, err := s.layerForm()
	if err != nil {
		return nil, err
	}
	i, l, err := s.useImage(ctx, name)
	defer l.endLease()
	if err != nil {
		return nil, err
	}
	out := &Root{Image: i, Xattrs: form.User()}
	for n := range i.Layers {
		u, err := s.makeLayer(ctx, i, n, out.Lower, form)
		if err != nil {
			return nil, err
		}
		if u.OpaqueRoot {
			out.Lower = nil
		}
		out.Lower = append([]string{filepath.Join(s.layerPath(form, i.chains[n]), diffDir)}, out.Lower...)
	}
	s.touchImage(i.Digest)
	return out, nil
}

// useImage returns an image and a lease that protects it from being collected. The lease must be ended even on an
// error.
func (s *Store) useImage(ctx context.Context, name string) (*Image, *lease, error) {
	l, err := s.newLease(ctx)
	if err != nil {
		return nil, l, err
	}
	i, err := s.Get(name)
	if err != nil {
		return nil, l, err
	}
	all := append([]v1.Hash{i.manifest.Config.Digest, {Hex: hexOf(i.Digest)}}, i.chains...)
	for _, d := range i.manifest.Layers {
		all = append(all, d.Digest)
	}
	if err := l.leaseAll(ctx, all...); err != nil {
		return nil, l, err
	}
	i, err = s.Get(name) // again: it may have been collected before the lease
	return i, l, err
}

// layerForm returns the form of layers in this store.
func (s *Store) layerForm() (layer.Form, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.probed != nil {
		return *s.probed, nil
	}
	w, err := s.newWorkshop() // a workshop, because it is swept if this process is killed
	if err != nil {
		return layer.Form{}, err
	}
	defer w.removeWorkshop()
	f, err := layer.Probe(w.dir)
	if err != nil {
		return f, err
	}
	s.probed = &f
	return f, nil
}

func (s *Store) layerPath(f layer.Form, chain v1.Hash) string {
	if f.User() {
		return s.path(userLayers, chain.Hex)
	}
	return s.path(layersDir, chain.Hex)
}

// makeLayer unpacks one layer on top of those below it, unless it is unpacked already.
func (s *Store) makeLayer(ctx context.Context, i *Image, n int, lower []string, form layer.Form) (unpacked, error) {
	dir := s.layerPath(form, i.chains[n])
	only, err := s.lockOne(ctx, "layer", i.chains[n].Hex)
	if err != nil {
		return unpacked{}, err
	}
	defer only.Release()
	u, err := readJSON[unpacked](filepath.Join(dir, layerRecord))
	if err == nil {
		return u, nil
	}
	if !errors.Is(err, fs.ErrNotExist) && !isSyntax(err) {
		return u, blobs.Disk(err, "read %s", dir)
	}
	w, err := s.newWorkshop()
	if err != nil {
		return u, err
	}
	defer w.removeWorkshop()
	tmp := filepath.Join(w.dir, diffDir)
	err = s.withLayerTar(ctx, i, n, func(in *layer.Stream) error {
		removeTree(tmp) // from an attempt with a damaged blob
		if err := os.Mkdir(tmp, 0o755); err != nil {
			return blobs.Disk(err, "make a layer's directory")
		}
		r, err := layer.Unpack(ctx, in, tmp, lower, layer.Options{Limits: s.o.Limits, Form: form})
		u = unpacked{Tally: r.Tally, OpaqueRoot: r.OpaqueRoot}
		return err
	})
	if err != nil {
		return u, err
	}
	return u, s.settleLayer(w, dir, u)
}

// settleLayer syncs an unpacked layer and moves it into place with its record.
func (s *Store) settleLayer(w *workshop, dir string, u unpacked) error {
	removeTree(dir) // a damaged layer without a record
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return blobs.Disk(err, "make the directory of layers")
	}
	raw, err := json.Marshal(u)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(w.dir, layerRecord), raw, 0o600); err != nil {
		return blobs.Disk(err, "unpack a layer")
	}
	f, err := os.Open(w.dir)
	if err != nil {
		return blobs.Disk(err, "unpack a layer")
	}
	defer f.Close()
	// sync all files: after a power loss, a layer with a record must be complete
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return blobs.Disk(err, "unpack a layer")
	}
	if err := os.Rename(w.dir, dir); err != nil {
		return blobs.Disk(err, "unpack a layer")
	}
	if err := blobs.SyncDir(filepath.Dir(dir)); err != nil {
		return blobs.Disk(err, "unpack a layer")
	}
	return nil
}

// withLayerTar calls use with a layer's tar, and then verifies the tar's digest. A damaged blob is fetched again, once.
func (s *Store) withLayerTar(ctx context.Context, i *Image, n int, use func(*layer.Stream) error) error {
	err := s.tarOnce(ctx, i, n, use)
	if code := fault.CodeOf(err); code != blobs.CodeImageDamaged && code != blobs.CodeImageBlob {
		return err
	}
	if err := s.refetchBlob(ctx, i, i.manifest.Layers[n]); err != nil {
		return err
	}
	return s.tarOnce(ctx, i, n, use)
}

// mendLayer fetches a layer's blob again if it is damaged.
func (s *Store) mendLayer(ctx context.Context, i *Image, n int) error {
	blob, err := s.blobs.Open(i.manifest.Layers[n].Digest)
	if err == nil {
		err = blob.Verify()
		_ = blob.Close()
	}
	if code := fault.CodeOf(err); code == blobs.CodeImageDamaged || code == blobs.CodeImageBlob {
		return s.refetchBlob(ctx, i, i.manifest.Layers[n])
	}
	return err
}

func (s *Store) tarOnce(ctx context.Context, i *Image, n int, use func(*layer.Stream) error) error {
	blob, err := s.blobs.Open(i.manifest.Layers[n].Digest)
	if err != nil {
		return err
	}
	defer blob.Close()
	in := layer.NewStream(ctx, blob, s.o.Limits, blob.Count)
	err = use(in)
	_ = in.Close()
	if k := fault.KindOf(err); err != nil && k != fault.Invalid {
		return err
	}
	// An invalid layer may come from a damaged disk, so verify the blob.
	if err := blob.Verify(); err != nil {
		return err
	}
	if err != nil {
		f := *fault.As(err)
		f.Text = fmt.Sprintf("the image %s cannot be unpacked: %s", i.displayName(), f.Text)
		return &f
	}
	if have := in.DiffID(); have.String() != i.Layers[n].DiffID {
		return fault.New(fault.Invalid, layer.CodeImageLayer,
			"the image %s cannot be unpacked: the tar of its layer %s has the digest %s, and its config says %s; "+
				"build or push it again",
			i.displayName(), i.Layers[n].Digest, have, i.Layers[n].DiffID)
	}
	return nil
}

// displayName returns a name of the image, else its digest.
func (i *Image) displayName() string {
	if len(i.Names) > 0 {
		return i.Names[0]
	}
	return i.Digest
}

// Flatten unpacks a whole image into a new directory: for file systems and kernels without overlayfs. It removes what
// an earlier attempt has left beside that directory.
func (s *Store) Flatten(ctx context.Context, name, dir string) (*Image, error) {
	i, l, err := s.useImage(ctx, name)
	defer l.endLease()
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(dir); err == nil {
		return nil, fault.New(fault.Conflict, codeImageDirectory,
			"%s is there already; name a directory that is not", dir)
	}
	part := dir + ".part"
	removeTree(part)
	if err := os.Mkdir(part, 0o755); err != nil {
		return nil, blobs.Disk(err, "make the directory %s", part)
	}
	done := false
	defer func() {
		if !done {
			removeTree(part)
		}
	}()
	form := layer.Form{Owners: os.Geteuid() == 0}
	for n := range i.Layers {
		// Check the blob first: a layer must not be applied twice, as it would be if the blob proved damaged halfway.
		if err := s.mendLayer(ctx, i, n); err != nil {
			return nil, err
		}
		if err := s.tarOnce(ctx, i, n, func(in *layer.Stream) error {
			_, err := layer.Apply(ctx, in, part, layer.Options{Limits: s.o.Limits, Form: form})
			return err
		}); err != nil {
			return nil, err
		}
	}
	f, err := os.Open(part)
	if err == nil {
		err = unix.Syncfs(int(f.Fd()))
		_ = f.Close()
	}
	if err == nil {
		err = os.Rename(part, dir)
	}
	if err == nil {
		err = blobs.SyncDir(filepath.Dir(dir))
	}
	if err != nil {
		return nil, blobs.Disk(err, "flatten the image into %s", dir)
	}
	done = true
	s.touchImage(i.Digest)
	return i, nil
}
