package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/image"
)

// tellPull is how often a pull's progress is reported.
const tellPull = 100 * time.Millisecond

// imageStore returns the store of images, or an error if there is none.
func (w *Worker) imageStore() (*image.Store, error) {
	if w.o.Images == nil {
		return nil, fault.New(fault.Precondition, fault.CodeImages,
			"worker %s keeps no images, because its souk cannot run containers: that takes root and runc; install "+
				"runc there and start souk as root, or ask another worker", w.o.ID)
	}
	return w.o.Images, nil
}

// imageStoreForNew returns the store for a new image, or an error if there is no room.
func (w *Worker) imageStoreForNew() (*image.Store, error) {
	s, err := w.imageStore()
	if err == nil {
		err = w.o.Full()
	}
	return s, err
}

// Images lists the images on the worker's host, the most recently used first.
func (w *Worker) Images(context.Context) (out cluster.ImageStore, err error) {
	s, err := w.imageStore()
	if err != nil {
		return out, err
	}
	out = cluster.ImageStore{Worker: w.o.ID, Store: storeName(w.o.Boot, s.Dir()), Images: []cluster.StoredImage{}}
	all, err := s.List()
	if err != nil {
		return out, err
	}
	for _, i := range all {
		out.Images = append(out.Images, storedImage(i))
	}
	out.Bytes, err = s.Bytes()
	return out, err
}

// storeName names a directory: by the boot of its kernel, and within that by its device and inode. A path would not be
// unique: hosts that share a kernel (containers used as hosts, mount namespaces) may have different directories at one
// path.
func storeName(boot, dir string) string {
	name := dir
	var at unix.Stat_t
	if unix.Stat(dir, &at) == nil {
		name = fmt.Sprintf("%d:%d", at.Dev, at.Ino)
	} else if abs, err := filepath.Abs(dir); err == nil {
		name = abs
	}
	sum := sha256.Sum256([]byte(boot + "\n" + name))
	return hex.EncodeToString(sum[:6])
}

func storedImage(i *image.Image) cluster.StoredImage {
	return cluster.StoredImage{Digest: i.Digest, Names: append([]string{}, i.Names...), Size: i.Size,
		Layers: len(i.Layers), Used: i.Used.UTC(), Pins: i.Pins}
}

// PullImage pulls an image from its registry, and calls tell with its progress, blob by blob, now and then. An error
// of tell ends the pull; what has arrived is kept, and the next pull continues there.
func (w *Worker) PullImage(ctx context.Context, name string,
	tell func(cluster.ImageProgress) error) (out cluster.StoredImage, err error) {
	s, err := w.imageStoreForNew()
	if err != nil {
		return out, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var n news
	over, told := make(chan struct{}), make(chan error, 1)
	go func() {
		err := n.reportProgress(over, tell)
		if err != nil {
			cancel()
		}
		told <- err
	}()
	i, err := s.Pull(ctx, name, image.PullOptions{Progress: n.noteProgress})
	close(over)
	if gone := <-told; gone != nil {
		return out, gone
	}
	if err != nil {
		return out, err
	}
	w.imagesChanged()
	return storedImage(i), nil
}

// news is the unreported progress of a pull, by blob.
type news struct {
	mu    sync.Mutex
	order []string
	of    map[string]cluster.ImageProgress
}

// noteProgress stores the newest progress of a blob. It never waits for the receiver.
func (n *news) noteProgress(p image.Progress) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.of == nil {
		n.of = map[string]cluster.ImageProgress{}
	}
	if _, waits := n.of[p.Blob]; !waits {
		n.order = append(n.order, p.Blob)
	}
	n.of[p.Blob] = cluster.ImageProgress{Blob: p.Blob, Done: p.Done, Size: p.Size, Here: p.Here}
}

func (n *news) takeAll() []cluster.ImageProgress {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make([]cluster.ImageProgress, 0, len(n.order))
	for _, blob := range n.order {
		out = append(out, n.of[blob])
	}
	n.order, n.of = nil, nil
	return out
}

// reportProgress forwards progress until the pull ends, then once more.
func (n *news) reportProgress(over <-chan struct{}, to func(cluster.ImageProgress) error) error {
	every := time.NewTicker(tellPull)
	defer every.Stop()
	for last := false; !last; {
		select {
		case <-every.C:
		case <-over:
			last = true
		}
		for _, p := range n.takeAll() {
			if err := to(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// LoadImages stores the images of an archive (docker save, an OCI layout; also compressed), which it reads once. what
// names the archive in errors.
func (w *Worker) LoadImages(ctx context.Context, what string, in io.Reader) ([]cluster.StoredImage, error) {
	s, err := w.imageStoreForNew()
	if err != nil {
		return nil, err
	}
	all, err := s.Load(ctx, in, what)
	if err != nil {
		return nil, err
	}
	w.imagesChanged()
	out := make([]cluster.StoredImage, 0, len(all))
	for _, i := range all {
		out = append(out, storedImage(i))
	}
	return out, nil
}

// RemoveImage removes a name from an image, or, by its last name or its digest, the image itself, and returns how many
// bytes that freed. It refuses while a machine needs the image.
func (w *Worker) RemoveImage(ctx context.Context, name string) (freed int64, err error) {
	s, err := w.imageStore()
	if err != nil {
		return 0, err
	}
	if freed, err = s.Remove(ctx, name); err == nil {
		w.imagesChanged()
	}
	return freed, err
}

// PruneImages removes all images that are not needed by a machine, an operation in progress or a wanted service
// (Options.Wanted), and returns how many bytes that freed.
func (w *Worker) PruneImages(ctx context.Context) (freed int64, err error) {
	s, err := w.imageStore()
	if err != nil {
		return 0, err
	}
	var wanted []string
	if w.o.Wanted != nil {
		wanted = w.o.Wanted()
	}
	if freed, err = s.Prune(ctx, wanted); err == nil {
		w.imagesChanged()
	}
	return freed, err
}
