package wire

import (
	"bufio"
	"context"
	"io"
	"net/http"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Operations on a worker's images.
const (
	imagesList   = "list"
	imagesPull   = "pull"
	imagesLoad   = "load"
	imagesRemove = "remove"
	imagesPrune  = "prune"
)

// imageOrder is the first frame of the body. For a load the archive follows, in frames as exec's stdin.
type imageOrder struct {
	Do string `json:"do"`
	// Image is a name or a digest; for a load it is the archive's name in errors.
	Image string `json:"image,omitempty"`
}

func (o *imageOrder) check() error {
	if len(o.Image) > maxPath {
		return fault.New(fault.Invalid, machine.CodeImage,
			"the name of an image has %d bytes; at most %d", len(o.Image), maxPath)
	}
	switch o.Do {
	case imagesList, imagesPull, imagesLoad, imagesRemove, imagesPrune:
		return nil
	}
	return fault.New(fault.Unimplemented, fault.CodeImages,
		"this member knows no operation %q on images; upgrade its souk", clipText(o.Do, 40))
}

// imageNews is a line of the answer; one field is set.
type imageNews struct {
	Store    *cluster.ImageStore    `json:"store,omitempty"` // without its images, which follow as lines
	Image    *cluster.StoredImage   `json:"image,omitempty"`
	Progress *cluster.ImageProgress `json:"progress,omitempty"`
	Freed    *int64                 `json:"freed,omitempty"`
}

func (s *Server) images(w http.ResponseWriter, r *http.Request, _ Peer) error {
	in := bufio.NewReader(r.Body)
	o := &out{w: w, control: http.NewResponseController(w)}
	var order imageOrder
	if err := s.readOrder(o.control, in, &order); err != nil {
		return err
	}
	writeLines(o, func(emit func(imageNews) error) error {
		return order.carryOut(r.Context(), s.o.Worker, &stdinReader{from: in}, emit)
	})
	return nil
}

func (o *imageOrder) carryOut(ctx context.Context, k Served, from io.Reader, emit func(imageNews) error) error {
	switch o.Do {
	case imagesList:
		store, err := k.Images(ctx)
		if err != nil {
			return err
		}
		images := store.Images
		store.Images = nil
		if err := emit(imageNews{Store: &store}); err != nil {
			return err
		}
		return emitImages(images, emit)
	case imagesPull:
		i, err := k.PullImage(ctx, o.Image, func(p cluster.ImageProgress) error {
			return emit(imageNews{Progress: &p})
		})
		if err != nil {
			return err
		}
		return emit(imageNews{Image: &i})
	case imagesLoad:
		all, err := k.LoadImages(ctx, o.Image, from)
		if err != nil {
			return err
		}
		return emitImages(all, emit)
	}
	var freed int64
	var err error
	if o.Do == imagesRemove {
		freed, err = k.RemoveImage(ctx, o.Image)
	} else {
		freed, err = k.PruneImages(ctx)
	}
	if err != nil {
		return err
	}
	return emit(imageNews{Freed: &freed})
}

func emitImages(all []cluster.StoredImage, emit func(imageNews) error) error {
	for _, i := range all {
		if err := emit(imageNews{Image: &i}); err != nil {
			return err
		}
	}
	return nil
}

// imagesOf sends an order and calls f with each line of the answer. from is nil except for a load. If from blocks when
// the worker has answered already, the goroutine reading it stays until from returns, as in exec; its data is then
// discarded.
func (l *Link) imagesOf(ctx context.Context, order imageOrder, from io.Reader, f func(imageNews) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	raw, err := marshal(order)
	if err != nil {
		return err
	}
	body, feed := io.Pipe() // body.Close ends a blocked Read, which from may not support
	defer body.Close()
	// the transport ignores ctx while it reads a body
	defer context.AfterFunc(ctx, func() { body.Close() })()
	broke := make(chan error, 1)
	go func() {
		err := writeFrame(feed, frameOrder, raw)
		if err == nil && from != nil {
			source := &failing{r: from}
			err = sendStdin(feed, source)
			if source.err != nil {
				broke <- source.err
			}
		}
		feed.CloseWithError(err)
	}()
	r := l.newRequest(ctx, pathImages, nil)
	r.Body, r.GetBody, r.ContentLength = body, nil, -1
	res, err := l.sendRequest(ctx, l.currentWires().streams, r)
	if err == nil {
		defer res.Body.Close()
		err = readLines(ctx, l, res.Body, f)
	}
	select {
	case cause := <-broke:
		return cause // the caller's own reader failed, so the archive was incomplete
	default:
		return err
	}
}

// Images lists the images stored on the worker's host.
func (w *Worker) Images(ctx context.Context) (out cluster.ImageStore, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, pullTime, errSlow(pullTime))
	defer cancel()
	err = w.imagesOf(ctx, imageOrder{Do: imagesList}, nil, func(n imageNews) error {
		switch {
		case n.Store != nil: // the first line
			out = *n.Store
			out.Images = []cluster.StoredImage{}
		case n.Image != nil && len(out.Images) < maxItems:
			out.Images = append(out.Images, *n.Image)
		}
		return nil
	})
	return out, err
}

// PullImage pulls an image from its registry, and reports its progress to tell.
func (w *Worker) PullImage(ctx context.Context, name string,
	tell func(cluster.ImageProgress) error) (out cluster.StoredImage, err error) {
	err = w.imagesOf(ctx, imageOrder{imagesPull, name}, nil, func(n imageNews) error {
		switch {
		case n.Progress != nil:
			return tell(*n.Progress)
		case n.Image != nil:
			out = *n.Image
		}
		return nil
	})
	return out, err
}

// LoadImages stores the images of an archive; what names the archive in errors.
func (w *Worker) LoadImages(ctx context.Context, what string, in io.Reader) (out []cluster.StoredImage, err error) {
	err = w.imagesOf(ctx, imageOrder{imagesLoad, what}, in, func(n imageNews) error {
		if n.Image != nil && len(out) < maxItems {
			out = append(out, *n.Image)
		}
		return nil
	})
	return out, err
}

// RemoveImage removes one name of an image, or the image. It returns the bytes freed.
func (w *Worker) RemoveImage(ctx context.Context, name string) (int64, error) {
	return w.freeImages(ctx, imageOrder{imagesRemove, name})
}

// PruneImages removes all unused images. It returns the bytes freed.
func (w *Worker) PruneImages(ctx context.Context) (int64, error) {
	return w.freeImages(ctx, imageOrder{Do: imagesPrune})
}

func (w *Worker) freeImages(ctx context.Context, order imageOrder) (bytes int64, err error) {
	err = w.imagesOf(ctx, order, nil, func(n imageNews) error {
		if n.Freed != nil {
			bytes = *n.Freed
		}
		return nil
	})
	return bytes, err
}
