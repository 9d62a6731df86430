package remote

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Sink receives a blob.
type Sink interface {
	io.Writer
	Offset() int64 // bytes received so far
	Resumed() bool // some of them are from an earlier attempt
	Reset() error  // discards everything
	Commit() error // verifies the content; on image_digest it has discarded everything
}

// Fetch fetches the missing bytes of a blob: from the mirrors, then from the registry. At each it retries as long as it
// makes progress, up to the time that the blob takes at the slowest acceptable rate.
func (c *Client) Fetch(ctx context.Context, ref machine.ImageRef, h v1.Hash, size int64, to Sink) error {
	return c.eachEndpoint(ctx, ref, func(e endpoint) error {
		q := question{endpoint: e, repository: ref.Repository, path: "/blobs/" + h.String(),
			what: fmt.Sprintf("the blob %s of %s", h, ref)}
		ctx, cancel := context.WithTimeoutCause(ctx, c.blobPatience(size), errSlow)
		defer cancel()
		return c.retryWhile(ctx, func() (bool, error) {
			before := to.Offset()
			if err := c.streamBlob(ctx, q, size, to); err != nil {
				return to.Offset() > before, err
			}
			resumed := to.Resumed()
			err := to.Commit()
			if fault.CodeOf(err) != fault.CodeImageDigest || !resumed {
				return false, err
			}
			// The bytes on disk may have been wrong, so fetch once from the start.
			if err := c.streamBlob(ctx, q, size, to); err != nil {
				return to.Offset() > 0, err
			}
			return false, to.Commit()
		})
	})
}

// blobPatience returns the time limit for a blob at one endpoint, including the waits between attempts.
func (c *Client) blobPatience(size int64) time.Duration {
	const most = 1 << 40 // bytes; prevents an overflow
	return c.o.Whole + attempts*longestWait + time.Duration(min(size, most)/slowest)*time.Second
}

// streamBlob writes the rest of a blob to a sink.
func (c *Client) streamBlob(ctx context.Context, q question, size int64, to Sink) error {
	if to.Offset() == size {
		return nil
	}
	if q.from, q.to = to.Offset(), 0; q.from > 0 {
		q.to = size
	}
	a, err := c.askRegistry(ctx, q)
	if err != nil {
		// for instance 416: the registry does not support ranges
		if fault.CodeOf(err) == codeRegistryAnswer && q.from > 0 {
			if err := to.Reset(); err != nil {
				return err
			}
			return c.streamBlob(ctx, q, size, to)
		}
		return err
	}
	defer a.body.Close()
	if a.status == http.StatusPartialContent {
		var first, last, all int64
		got := a.header.Get("Content-Range")
		if n, _ := fmt.Sscanf(got, "bytes %d-%d/%d", &first, &last, &all); n < 2 || first != q.from || q.to == 0 {
			if err := to.Reset(); err != nil { // the next attempt requests the whole blob
				return err
			}
			return fault.New(fault.Unavailable, fault.CodeImageCut,
				"the registry %s was asked for %s from byte %d on and sent %q; souk asks for all of it", q.name, q.what,
				q.from, got)
		}
	} else if q.from > 0 { // the registry sent the whole blob
		if err := to.Reset(); err != nil {
			return err
		}
	}
	if _, err := io.CopyBuffer(to, struct{ io.Reader }{a.body}, make([]byte, 128<<10)); err != nil {
		return err
	}
	if to.Offset() < size {
		return fault.New(fault.Unavailable, fault.CodeImageCut,
			"the registry %s sent %d of the %d bytes of %s; pull again, and the pull continues there",
			q.name, to.Offset(), size, q.what)
	}
	return nil
}
