package cluster

import "time"

// ImageStore is what a worker's host keeps of images.
type ImageStore struct {
	Worker WorkerID `json:"worker"`
	// Store is the same for workers that share one, as those of one process do.
	Store  string        `json:"store"`
	Bytes  int64         `json:"bytes"`  // on disk, with unpacked layers and what is half pulled
	Images []StoredImage `json:"images"` // those used last first
}

// StoredImage is an image that a worker's host has.
type StoredImage struct {
	Digest string    `json:"digest"` // of its manifest
	Names  []string  `json:"names"`  // in full, sorted; none: only its digest names it
	Size   int64     `json:"size"`   // bytes, as it is sent
	Layers int       `json:"layers"`
	Used   time.Time `json:"used,omitzero"`
	Pins   []string  `json:"pins,omitempty"` // who needs it, such as the ids of machines; while there are any it stays
}

// ImageProgress says how far a pull is with one blob.
type ImageProgress struct {
	Blob string `json:"blob"`
	Done int64  `json:"done"` // bytes
	Size int64  `json:"size"`
	Here bool   `json:"here,omitempty"` // it was there already
}
