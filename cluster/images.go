package cluster

import "time"

// ImageStore describes the images on a worker's host.
type ImageStore struct {
	Worker WorkerID `json:"worker"`
	// Store is equal for workers that share a store, as those of one process do.
	Store  string        `json:"store"`
	Bytes  int64         `json:"bytes"`  // on disk, including unpacked layers and partial pulls
	Images []StoredImage `json:"images"` // most recently used first
}

// StoredImage is an image that a worker's host has.
type StoredImage struct {
	Digest string    `json:"digest"` // of its manifest
	Names  []string  `json:"names"`  // in full, sorted; none: only its digest names it
	Size   int64     `json:"size"`   // bytes to transfer
	Layers int       `json:"layers"`
	Used   time.Time `json:"used,omitzero"`
	Pins   []string  `json:"pins,omitempty"` // its users, such as machine ids; it is kept while there are any
}

// ImageProgress is the progress of one blob of a pull.
type ImageProgress struct {
	Blob string `json:"blob"`
	Done int64  `json:"done"` // bytes
	Size int64  `json:"size"`
	Here bool   `json:"here,omitempty"` // it was on the host already
}
