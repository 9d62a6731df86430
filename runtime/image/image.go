// Package image keeps the images of one worker's host: it pulls them from registries or loads them from files, keeps
// their content under its digest, unpacks each layer once into a directory that overlayfs can mount, and gives the disk
// back by a budget, the least recently used first.
//
// A Store is a directory. Several processes may have it open; each change is one rename, so that whatever is killed
// leaves what was before it, and leftovers that count for nothing. Nothing that an image, an archive or a registry says
// is believed: see packages blobs (what is read is hashed), layer (no layer writes outside of its directory) and
// remote.
package image

import (
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Image is an image that is whole in a store.
type Image struct {
	Digest string   // of its manifest: what a launch is pinned to
	Index  string   // of the index it was chosen from; "" without one
	Names  []string // under which it is known here, in full, sorted
	Config Config
	Layers []Layer // the lowest first
	Size   int64   // bytes of its blobs
	Used   time.Time
	Pins   []string // who has it pinned, sorted

	manifest *v1.Manifest
	chains   []v1.Hash
	source   string // the name it was pulled by; "" when it was loaded
}

// Layer is one of an image's layers.
type Layer struct {
	Digest string // of what is stored and sent
	DiffID string // of the tar in it
	Chain  string // of this layer on those below it
	Size   int64  // bytes as stored and sent
}

// Progress says how far a pull is with one blob.
type Progress struct {
	Blob       string
	Done, Size int64
	Here       bool // it was in the store already
}
