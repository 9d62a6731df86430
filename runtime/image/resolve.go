package image

import (
	"cmp"
	"context"

	"github.com/soukhq/souk/fault"
)

// Resolved is the current meaning of a name.
type Resolved struct {
	Digest string // of the manifest, or of the index of several platforms
	// Here means that the image in this store is used: it was loaded from a file under the name, or the registry does
	// not answer.
	Here bool
}

// Resolve finds out which image a name means now, and fetches nothing. Its registry is asked, unless the name has a
// digest or belongs to an image that was loaded here. If the registry cannot be reached, the local image of that name
// is used.
func (s *Store) Resolve(ctx context.Context, name string) (Resolved, error) {
	ref, err := Parse(name)
	if err != nil {
		return Resolved{}, err
	}
	if ref.Digest != "" {
		return Resolved{Digest: ref.Digest}, nil
	}
	here, loaded, there := s.hereBy(name)
	if loaded {
		return here, nil
	}
	doc, err := s.remote.Manifest(ctx, ref, maxDocument, manifestTypes)
	switch {
	case err == nil:
		if _, err := parseDocument(doc.Raw, ref.String()); err != nil {
			return Resolved{}, err
		}
		return Resolved{Digest: hashOf(doc.Raw).String()}, nil
	case there && !fault.Is(err, fault.NotFound):
		return here, nil
	}
	return Resolved{}, err
}

// Known returns the stored image of a name, and whether there is one.
func (s *Store) Known(name string) (Resolved, bool) {
	here, _, there := s.hereBy(name)
	return here, there
}

// hereBy returns the stored image of a name, and whether it was loaded from a file rather than pulled.
func (s *Store) hereBy(name string) (here Resolved, loaded, there bool) {
	x, err := s.Get(name)
	if err != nil {
		return here, false, false
	}
	if x.source == "" {
		return Resolved{Digest: x.Digest, Here: true}, true, true
	}
	return Resolved{Digest: cmp.Or(x.Index, x.Digest), Here: true}, false, true
}
