package worker

import (
	"context"
	"slices"
	"time"

	"github.com/soukhq/souk/core/lifecycle"
)

// maxAnnounced bounds the names of images in a worker's record, which every member keeps.
const maxAnnounced = 50

// imageList publishes which images are here, so that machines with the same image are placed where it need not be
// pulled. It only influences preferences, and may be slightly late.
type imageList struct {
	l       *loop
	changed chan struct{} // has room for one
}

func newImageList(l *loop) *imageList { return &imageList{l, make(chan struct{}, 1)} }

// imagesChanged notes that the images in the store may have changed.
func (w *Worker) imagesChanged() { w.loop.images.lookAtImages() }

func (i *imageList) lookAtImages() {
	select {
	case i.changed <- struct{}{}:
	default: // a look is pending already
	}
}

// run publishes the list until ctx ends.
func (i *imageList) run(ctx context.Context) {
	if i.l.o.Images == nil {
		return
	}
	i.lookAtImages()
	for {
		select {
		case <-ctx.Done():
			return
		case <-i.changed:
		}
		names, err := i.recentNames()
		if err != nil {
			i.l.o.Log.Warn("the images that are here cannot be listed", "err", err)
			continue
		}
		i.l.postInput(func(now time.Time) lifecycle.Out { return i.l.sup.Images(now, names) })
	}
}

// recentNames lists, in order, the names of the most recently used images.
func (i *imageList) recentNames() (names []string, err error) {
	all, err := i.l.o.Images.List()
	for _, img := range all {
		for _, name := range img.Names {
			if len(names) < maxAnnounced {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names, err
}
