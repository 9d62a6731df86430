// Package image stores the images of one worker's host: it pulls them from registries or loads them from files, stores
// their content under its digest, unpacks each layer once into a directory that overlayfs can mount, and keeps to a
// disk budget by removing the least recently used images first.
//
// A Store is a directory. Several processes may have it open; each change is one rename, so that a killed process
// leaves the previous state, and leftovers that are ignored. Images, archives and registries are not trusted: see
// packages blobs (everything read is hashed), layer (no layer writes outside of its directory) and remote.
package image

import (
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Image is a complete image in a store.
type Image struct {
	Digest string   // of its manifest; launches are pinned to it
	Index  string   // of the index it was chosen from; "" without an index
	Names  []string // its full names in this store, sorted
	Config Config
	Layers []Layer // the lowest first
	Size   int64   // bytes of its blobs
	Used   time.Time
	Pins   []string // owners of its pins, sorted

	manifest *v1.Manifest
	chains   []v1.Hash
	source   string // the name it was pulled by; "" if it was loaded
}

// Layer is one layer of an image.
type Layer struct {
	Digest string // of the blob
	DiffID string // of the uncompressed tar
	Chain  string // of this layer with those below it
	Size   int64  // bytes of the blob
}

// Progress reports how much of one blob a pull has.
type Progress struct {
	Blob       string
	Done, Size int64
	Here       bool // the blob was in the store already
}
