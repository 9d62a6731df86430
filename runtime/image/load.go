package image

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/image/blobs"
	"github.com/soukhq/souk/runtime/image/layer"
)

// LoadPath loads the images of a file (docker-archive or OCI layout, also compressed) or of an OCI layout's directory.
func (s *Store) LoadPath(ctx context.Context, path string) ([]*Image, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fault.Wrap(err, fault.NotFound, fault.CodeImageFile,
			"there is no image in %s that souk can read", path)
	}
	if info.IsDir() {
		return s.loadOnce(ctx, path, func(w *workshop) (*archive, error) { return copyLayout(ctx, w.dir, path) })
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fault.Wrap(err, fault.Denied, fault.CodeImageFile, "the image in %s cannot be read", path)
	}
	defer f.Close()
	return s.loadOnce(ctx, path, func(w *workshop) (*archive, error) { return readArchive(ctx, w.dir, f, path) })
}

// Load loads the images of an archive (docker-archive or OCI layout, also compressed), which is read once. what names
// the archive in errors.
func (s *Store) Load(ctx context.Context, r io.Reader, what string) ([]*Image, error) {
	return s.loadOnce(ctx, what, func(w *workshop) (*archive, error) { return readArchive(ctx, w.dir, r, what) })
}

// loadOnce is loadAll; if the disk is full, it removes everything it has stored.
func (s *Store) loadOnce(ctx context.Context, what string, read func(*workshop) (*archive, error)) ([]*Image, error) {
	all, err := s.loadAll(ctx, what, read)
	s.dropFailed(err)
	return all, err
}

// loadAll stores the images of an archive.
func (s *Store) loadAll(ctx context.Context, what string, read func(*workshop) (*archive, error)) ([]*Image, error) {
	w, err := s.newWorkshop()
	if err != nil {
		return nil, err
	}
	defer w.removeWorkshop()
	a, err := read(w)
	if err != nil {
		return nil, err
	}
	l, err := s.newLease(ctx)
	defer l.endLease()
	if err != nil {
		return nil, err
	}
	in := &loading{s: s, a: a, what: what, lease: l}
	var found []loaded
	switch {
	case a.hasFile("index.json"):
		found, err = in.loadLayout(ctx)
	case a.hasFile("manifest.json"):
		found, err = in.loadDocker(ctx)
	default:
		err = fault.New(fault.Invalid, fault.CodeImageFile,
			"%s has neither an index.json (OCI layout) nor a manifest.json (docker save); is it an image?", what)
	}
	if err != nil {
		return nil, err
	}
	var out []*Image
	for _, f := range found {
		if err := s.keepImage(ctx, f.record, f.names); err != nil {
			return nil, err
		}
		s.touchImage(f.record.Digest)
		i, err := s.Get(f.record.Digest)
		if err != nil {
			return nil, err
		}
		out = append(out, i)
	}
	if s.o.Budget > 0 {
		_, err = s.Collect(ctx, s.o.Budget)
	}
	return out, err
}

type loaded struct {
	record record
	names  []string
}

// loading is one load in progress.
type loading struct {
	s     *Store
	a     *archive
	what  string
	lease *lease
}

func (in *loading) wrongArchive(format string, args ...any) error {
	return fault.New(fault.Invalid, fault.CodeImageFile, "%s is not whole: %s; save the image again", in.what,
		fmt.Sprintf(format, args...))
}

// loadLayout loads the images of an OCI layout that are for this host.
func (in *loading) loadLayout(ctx context.Context) ([]loaded, error) {
	raw, err := in.a.readDocument("index.json")
	if err != nil {
		return nil, err
	}
	d, err := parseDocument(raw, in.what)
	if err != nil {
		return nil, err
	}
	if d.index == nil {
		return nil, in.wrongArchive("its index.json is no index")
	}
	var out []loaded
	var foreign error
	at := map[string]int{}
	for _, m := range d.index.Manifests {
		l, err := in.loadDescribed(ctx, m)
		if fault.CodeOf(err) == codeImagePlatform {
			foreign = err // another image may be for this host
			continue
		}
		if err != nil {
			return nil, err
		}
		if i, again := at[l.record.Digest]; again {
			out[i].names = append(out[i].names, l.names...)
			continue
		}
		at[l.record.Digest] = len(out)
		out = append(out, l)
	}
	if len(out) == 0 && foreign == nil {
		return nil, in.wrongArchive("it lists no image")
	}
	if len(out) == 0 {
		return nil, foreign
	}
	return out, nil
}

// loadDescribed loads the image that a descriptor of an OCI layout names.
func (in *loading) loadDescribed(ctx context.Context, d v1.Descriptor) (out loaded, err error) {
	out.names = in.fullNames(d.Annotations["io.containerd.image.name"],
		d.Annotations["org.opencontainers.image.ref.name"])
	if p := d.Platform; p != nil && p.OS != "unknown" && platformFit(*p, in.s.o.Platform) == 0 {
		return out, foreignPlatform(in.what, []string{p.String()}, in.s.o.Platform)
	}
	for depth := 0; depth <= maxIndexes; depth++ {
		raw, err := in.a.readDocument("blobs/sha256/" + d.Digest.Hex)
		if err != nil {
			return out, err
		}
		if have := hashOf(raw); have != d.Digest {
			return out, in.wrongArchive("the blob %s has the digest %s", d.Digest, have)
		}
		doc, err := parseDocument(raw, in.what)
		if err != nil {
			return out, err
		}
		if doc.manifest != nil {
			out.record.Digest = d.Digest.String()
			return out, in.addImage(ctx, raw, d.Digest, doc.manifest)
		}
		if out.record.Index == "" {
			out.record.Index = d.Digest.String()
		}
		if d, err = choosePlatform(doc.index, in.s.o.Platform, in.what); err != nil {
			return out, err
		}
	}
	return out, in.wrongArchive("it is an index of indexes of indexes")
}

// fullNames returns the valid names, in full. The last one may be a bare tag, as in OCI layouts, which is ignored.
func (in *loading) fullNames(all ...string) (out []string) {
	for i, n := range all {
		if i == len(all)-1 && !strings.ContainsAny(n, ":/") {
			continue
		}
		if ref, err := Parse(n); err == nil && ref.Digest == "" {
			out = append(out, ref.String())
		}
	}
	return out
}

// addImage moves an image's blobs into the store. Each must be in the archive or in the store already.
func (in *loading) addImage(ctx context.Context, raw []byte, h v1.Hash, m *v1.Manifest) error {
	all := []v1.Hash{h, m.Config.Digest}
	for _, l := range m.Layers {
		all = append(all, l.Digest)
	}
	if err := in.lease.leaseAll(ctx, all...); err != nil {
		return err
	}
	for _, d := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		f, there := in.a.files["blobs/sha256/"+d.Digest.Hex]
		if !there {
			if size, here := in.s.blobs.Size(d.Digest); here && in.s.isSound(d, size) {
				continue
			}
			return in.wrongArchive("the blob %s is missing", d.Digest)
		}
		if f.digest != d.Digest || f.size != d.Size {
			return in.wrongArchive("the blob %s of %d bytes has the digest %s and %d bytes", d.Digest, d.Size, f.digest,
				f.size)
		}
		if err := in.moveBlob(ctx, f); err != nil {
			return err
		}
	}
	config, err := in.s.blobs.Read(m.Config.Digest, maxDocument)
	if err != nil {
		return err
	}
	if _, _, err := parseConfig(config, m, in.s.o.Platform, in.what); err != nil {
		return err
	}
	_, err = in.s.blobs.Put(raw)
	return err
}

// moveBlob moves a file of the archive into the store as a blob, under the blob's lock.
func (in *loading) moveBlob(ctx context.Context, f *archived) error {
	if f.moved {
		return nil
	}
	only, err := in.s.lockOne(ctx, "blob", f.digest.Hex)
	if err != nil {
		return err
	}
	defer only.Release()
	if err := in.s.blobs.Add(f.path, f.digest); err != nil {
		return err
	}
	f.moved, f.path = true, in.s.blobs.Path(f.digest)
	return nil
}

// loadDocker loads an archive in docker save's old format. Such an archive has no manifest, so loadDocker makes one,
// which is always the same for the same image.
func (in *loading) loadDocker(ctx context.Context) ([]loaded, error) {
	raw, err := in.a.readDocument("manifest.json")
	if err != nil {
		return nil, err
	}
	var list []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal(raw, &list); err != nil || len(list) == 0 {
		return nil, in.wrongArchive("its manifest.json is not a list of images")
	}
	var out []loaded
	for _, e := range list {
		if len(e.Layers) > maxLayers {
			return nil, in.wrongArchive("it has %d layers, and no more than %d can be mounted", len(e.Layers),
				maxLayers)
		}
		m := &v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1}
		config, err := in.a.readDocument(e.Config)
		if err != nil {
			return nil, err
		}
		m.Config = v1.Descriptor{MediaType: types.OCIConfigJSON, Size: int64(len(config)), Digest: hashOf(config)}
		named := strings.TrimSuffix(e.Config[strings.LastIndexByte(e.Config, '/')+1:], ".json")
		if want, ok := parseDigest("sha256:" + named); ok && want != m.Config.Digest {
			return nil, in.wrongArchive("its config %s has the digest %s", e.Config, m.Config.Digest)
		}
		in.a.files["blobs/sha256/"+m.Config.Digest.Hex] = in.a.files[in.a.resolveLink(e.Config)]
		if m.Layers, err = in.dockerLayers(ctx, e.Layers, config); err != nil {
			return nil, err
		}
		raw, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		l := loaded{record: record{Digest: hashOf(raw).String()}}
		for _, t := range e.RepoTags {
			l.names = append(l.names, in.fullNames(t, "")...)
		}
		if err := in.addImage(ctx, raw, hashOf(raw), m); err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}

// dockerLayers describes the layers of a docker-archive. Only the config states their digests, so dockerLayers verifies
// them now.
func (in *loading) dockerLayers(ctx context.Context, names []string, config []byte) ([]v1.Descriptor, error) {
	c, err := v1.ParseConfigFile(bytes.NewReader(config))
	if err != nil || len(c.RootFS.DiffIDs) != len(names) {
		return nil, in.wrongArchive("its config and its manifest.json do not agree on the layers")
	}
	out := make([]v1.Descriptor, 0, len(names))
	for i, n := range names {
		f, there := in.a.files[in.a.resolveLink(n)]
		if !there {
			return nil, in.wrongArchive("the layer %q is missing", fault.Clip(n, 200))
		}
		have, mediaType, err := diffIDOf(ctx, f)
		if err != nil {
			return nil, err
		}
		if have != c.RootFS.DiffIDs[i] {
			return nil, in.wrongArchive("the layer %q is not %s but %s", fault.Clip(n, 200), c.RootFS.DiffIDs[i], have)
		}
		out = append(out, v1.Descriptor{MediaType: mediaType, Size: f.size, Digest: f.digest})
		in.a.files["blobs/sha256/"+f.digest.Hex] = f
	}
	return out, nil
}

// diffIDOf returns the digest of the uncompressed tar in a file of an archive, and its media type.
func diffIDOf(ctx context.Context, f *archived) (v1.Hash, types.MediaType, error) {
	if f.diffID.Hex == "" {
		in, err := os.Open(f.path)
		if err != nil {
			return v1.Hash{}, "", blobs.Disk(err, "read %s", f.path)
		}
		defer in.Close()
		tar, kind, err := layer.Decompress(in)
		if err != nil {
			return v1.Hash{}, "", err
		}
		defer tar.Close()
		if f.diffID, err = layer.Digest(ctx, tar, layer.Limits{}.Or(), f.size); err != nil {
			return v1.Hash{}, "", err
		}
		f.mediaType = map[layer.Compression]types.MediaType{layer.Plain: types.OCIUncompressedLayer,
			layer.Gzip: types.OCILayer, layer.Zstd: types.OCILayerZStd}[kind]
	}
	return f.diffID, f.mediaType, nil
}
