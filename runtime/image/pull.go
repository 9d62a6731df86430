package image

import (
	"context"
	"fmt"
	"slices"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/image/blobs"
)

// PullOptions are the options of one pull.
type PullOptions struct {
	Progress func(Progress) // called from one goroutine at a time; it must not block
}

// pull is one pull in progress.
type pull struct {
	s     *Store
	ref   machine.ImageRef
	o     PullOptions
	lease *lease
	mu    sync.Mutex // serializes calls of Progress
}

// Pull fetches the image that a name means at its registry. If the name has a digest and the image is here, it asks no
// registry. It continues an interrupted pull. If the disk is full, it removes everything it has fetched.
func (s *Store) Pull(ctx context.Context, name string, o PullOptions) (*Image, error) {
	i, err := s.pullImage(ctx, name, o)
	s.dropFailed(err)
	return i, err
}

func (s *Store) pullImage(ctx context.Context, name string, o PullOptions) (*Image, error) {
	ref, err := Parse(name)
	if err != nil {
		return nil, err
	}
	only, err := s.lockOne(ctx, "pull", hashOf([]byte(ref.String())).Hex)
	if err != nil {
		return nil, err
	}
	defer only.Release()
	if ref.Digest != "" {
		if i, err := s.wholeImage(name); i != nil || err != nil {
			return i, err
		}
	}
	l, err := s.newLease(ctx)
	defer l.endLease()
	if err != nil {
		return nil, err
	}
	p := &pull{s: s, ref: ref, o: o, lease: l}
	r, err := p.fetchMissing(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	if ref.Digest == "" {
		names = []string{ref.String()}
	}
	if err := s.keepImage(ctx, r, names); err != nil {
		return nil, err
	}
	s.touchImage(r.Digest)
	i, err := s.Get(r.Digest)
	if err == nil && s.o.Budget > 0 {
		_, err = s.Collect(ctx, s.o.Budget)
	}
	return i, err
}

// wholeImage returns an image if it is complete in the store, else nil.
func (s *Store) wholeImage(name string) (*Image, error) {
	i, err := s.Get(name)
	switch {
	case fault.Is(err, fault.NotFound) || fault.CodeOf(err) == blobs.CodeImageDamaged:
		return nil, nil //nolint:nilerr // it is pulled again
	case err != nil:
		return nil, err
	}
	for _, l := range i.manifest.Layers {
		if size, there := s.blobs.Size(l.Digest); !there || size != l.Size {
			return nil, nil
		}
	}
	s.touchImage(i.Digest)
	return i, nil
}

// fetchMissing fetches the missing parts of the image.
func (p *pull) fetchMissing(ctx context.Context) (r record, err error) {
	r.Source = p.ref.Registry + "/" + p.ref.Repository
	manifest, digest, err := p.resolveManifest(ctx, &r)
	if err != nil {
		return r, err
	}
	r.Digest = digest.String()
	all := []v1.Hash{digest, manifest.Config.Digest}
	for _, l := range manifest.Layers {
		all = append(all, l.Digest)
	}
	if err := p.lease.leaseAll(ctx, all...); err != nil {
		return r, err
	}
	// The config first: it says whether the image is for this host.
	if err := p.fetchBlob(ctx, manifest.Config); err != nil {
		return r, err
	}
	raw, err := p.s.blobs.Read(manifest.Config.Digest, maxDocument)
	if err != nil {
		return r, err
	}
	_, diffIDs, err := parseConfig(raw, manifest, p.s.o.Platform, p.ref.String())
	if err != nil {
		return r, err
	}
	lacks, err := p.s.lackingBytes(manifest, chainIDs(diffIDs))
	if err == nil {
		err = p.s.checkFits(ctx, lacks, "the image "+p.ref.String())
	}
	if err != nil {
		return r, err
	}
	for _, l := range manifest.Layers { // report all sizes first, so that the total is known from the start
		p.reportProgress(Progress{Blob: l.Digest.String(), Size: l.Size})
	}
	g, within := errgroup.WithContext(ctx)
	g.SetLimit(p.s.o.Parallel)
	for _, l := range slices.CompactFunc(slices.Clone(manifest.Layers), func(a, b v1.Descriptor) bool {
		return a.Digest == b.Digest
	}) {
		g.Go(func() error { return p.fetchBlob(within, l) })
	}
	return r, g.Wait()
}

// resolveManifest returns the manifest for this host's platform.
func (p *pull) resolveManifest(ctx context.Context, r *record) (*v1.Manifest, v1.Hash, error) {
	ref := p.ref
	for depth := 0; ; depth++ {
		raw, h, err := p.fetchDocument(ctx, ref)
		if err != nil {
			return nil, h, err
		}
		d, err := parseDocument(raw, p.ref.String())
		if err != nil {
			return nil, h, err
		}
		if d.manifest != nil {
			// Lease the manifest before it is stored, so that it is not collected in between.
			if err := p.lease.leaseAll(ctx, h); err != nil {
				return nil, h, err
			}
			_, err := p.s.blobs.Put(raw)
			return d.manifest, h, err
		}
		if depth == maxIndexes {
			return nil, h, fault.New(fault.Invalid, codeImageManifest,
				"%s is an index of indexes of indexes; push the image itself", p.ref)
		}
		if depth == 0 {
			r.Index = h.String()
		}
		chosen, err := choosePlatform(d.index, p.s.o.Platform, p.ref.String())
		if err != nil {
			return nil, h, err
		}
		ref = machine.ImageRef{Registry: ref.Registry, Repository: ref.Repository, Digest: chosen.Digest.String()}
	}
}

// fetchDocument returns a manifest or an index: from the store if the reference has a digest and it is there, else from
// the registry.
func (p *pull) fetchDocument(ctx context.Context, ref machine.ImageRef) ([]byte, v1.Hash, error) {
	want, pinned := parseDigest(ref.Digest)
	if pinned {
		if raw, err := p.s.blobs.Read(want, maxDocument); err == nil {
			return raw, want, nil
		}
	}
	doc, err := p.s.remote.Manifest(ctx, ref, maxDocument, manifestTypes)
	if err != nil {
		return nil, want, err
	}
	have := hashOf(doc.Raw)
	if pinned && have != want {
		return nil, want, fault.New(fault.Invalid, fault.CodeImageDigest,
			"the registry of %s sent another manifest than was asked for: it has the digest %s; nothing of it was "+
				"kept", ref, have)
	}
	return doc.Raw, have, nil
}

// fetchBlob fetches one blob unless it is in the store. Concurrent fetches of the same blob wait.
func (p *pull) fetchBlob(ctx context.Context, d v1.Descriptor) error {
	only, err := p.s.lockOne(ctx, "blob", d.Digest.Hex)
	if err != nil {
		return err
	}
	defer only.Release()
	if size, there := p.s.blobs.Size(d.Digest); there {
		if p.s.isSound(d, size) {
			p.reportProgress(Progress{Blob: d.Digest.String(), Done: d.Size, Size: d.Size, Here: true})
			return nil
		}
		if err := p.s.blobs.Remove(d.Digest); err != nil {
			return err
		}
	}
	to, err := p.s.blobs.Partial(d.Digest, d.Size)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := p.s.remote.Fetch(ctx, p.ref, d.Digest, d.Size, &counted{Partial: to, p: p, d: d}); err != nil {
		return err
	}
	p.reportProgress(Progress{Blob: d.Digest.String(), Done: d.Size, Size: d.Size})
	return nil
}

// isSound reports whether a stored blob is intact: small blobs are read and hashed; for large ones only the size is
// compared, as they are verified when they are unpacked.
func (s *Store) isSound(d v1.Descriptor, size int64) bool {
	if size != d.Size {
		return false
	}
	if size > maxDocument {
		return true
	}
	_, err := s.blobs.Read(d.Digest, maxDocument)
	return err == nil
}

func (p *pull) reportProgress(x Progress) {
	if p.o.Progress == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.o.Progress(x)
}

// counted is a partial blob that reports its progress.
type counted struct {
	*blobs.Partial
	p *pull
	d v1.Descriptor
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Partial.Write(b)
	c.p.reportProgress(Progress{Blob: c.d.Digest.String(), Done: c.Offset(), Size: c.d.Size})
	return n, err
}

// refetchBlob removes a damaged blob and fetches it again, if its source is known.
func (s *Store) refetchBlob(ctx context.Context, i *Image, d v1.Descriptor) error {
	if err := s.blobs.Remove(d.Digest); err != nil {
		return err
	}
	if i.source == "" {
		return fault.New(fault.Unavailable, blobs.CodeImageDamaged,
			"the blob %s of the image %s was damaged on disk and was removed; load the image from its file "+
				"again", d.Digest,
			i.Digest)
	}
	ref, err := Parse(fmt.Sprintf("%s@%s", i.source, i.Digest))
	if err != nil {
		return err
	}
	return (&pull{s: s, ref: ref}).fetchBlob(ctx, d)
}
