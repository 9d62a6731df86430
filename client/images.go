package client

import (
	"context"
	"io"
	"net/url"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// ImageCalls are the client's calls on images.
type ImageCalls struct{ transport }

// Images lists the images of the named workers, or of all.
func (c ImageCalls) Images(ctx context.Context, workers ...string) (list api.ImageList, err error) {
	k := newCall(api.ListImages)
	if len(workers) > 0 {
		k = k.withQuery(url.Values{"worker": workers})
	}
	err = c.doCall(ctx, k, &list)
	return list, err
}

// PullImage lets a worker pull an image from its registry, and calls tell (may be nil) with the progress of each blob.
// Ending ctx cancels the pull; the next one continues it.
func (c ImageCalls) PullImage(ctx context.Context, worker, image string,
	tell func(cluster.ImageProgress)) (i cluster.StoredImage, err error) {
	resp, err := c.sendCall(ctx, newCall(api.PullImage, worker).withBody(api.NewPull{Image: image}))
	if err != nil {
		return i, err
	}
	defer resp.Body.Close()
	there := false
	err = eachLine(ctx, resp.Body, func(l api.PullLine) error {
		switch {
		case l.Image != nil:
			i, there = *l.Image, true
		case l.Progress != nil && tell != nil:
			tell(*l.Progress)
		}
		return nil
	})
	if err == nil && !there {
		err = fault.New(fault.Unavailable, CodeBrokenOff,
			"the connection ended before the pull did; pull again, and the pull continues where it stopped")
	}
	return i, err
}

// LoadImages gives a worker the images of an archive (docker save, OCI layout; also compressed). name stands for it in
// errors. The archive is sent as it is read.
func (c ImageCalls) LoadImages(ctx context.Context, worker, name string,
	archive io.Reader) ([]cluster.StoredImage, error) {
	k := newCall(api.LoadImages, worker).withBody(archive).withHeader("Content-Type", api.Tar)
	if name != "" {
		k = k.withQuery(url.Values{"name": {name}})
	}
	var out api.LoadedImages
	err := c.doCall(ctx, k, &out)
	return out.Images, err
}

// RemoveImage removes an image of a worker by a name or its digest, and returns how many bytes that freed. If the image
// has several names only the given name is removed.
func (c ImageCalls) RemoveImage(ctx context.Context, worker, image string) (bytes int64, err error) {
	return c.removeImages(ctx, worker, url.Values{"image": {image}})
}

// PruneImages removes all images of a worker that nothing needs, and returns how many bytes that freed.
func (c ImageCalls) PruneImages(ctx context.Context, worker string) (bytes int64, err error) {
	return c.removeImages(ctx, worker, url.Values{"unused": {"true"}})
}

func (c ImageCalls) removeImages(ctx context.Context, worker string, q url.Values) (int64, error) {
	var out api.Freed
	err := c.doCall(ctx, newCall(api.RemoveImages, worker).withQuery(q), &out)
	return out.Bytes, err
}
