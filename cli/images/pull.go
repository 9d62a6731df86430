package images

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// brought is an image that a worker has now, in --json.
type brought struct {
	Workers []string `json:"workers"`
	cluster.StoredImage
	Error string `json:"error,omitempty"` // why it was not pulled
}

// nameOf refuses an invalid image name before any request.
func nameOf(text string) error {
	if err := machine.CheckImage(text); err != nil {
		return cli.Usagef("%s", fault.As(err).Text)
	}
	if machine.IsHostImage(text) {
		return cli.Usagef("%s is no image: it means the files of the host itself, which every worker has",
			machine.HostImage)
	}
	return nil
}

func pull(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "pull IMAGE", Short: "Have a worker pull an image from its registry",
		Long: `Have a worker pull an image from its registry. Where there is one worker, or all share what they keep,
none need be named. A pull that was interrupted goes on where it was. With a digest
(nginx@sha256:...) no registry is asked for what is there.`,
		Example: "  souk image pull nginx:1.29\n  souk image pull ghcr.io/me/app:v2 --worker fra-1",
		Args:    cli.Args(1, 1, "an image")}
	worker := cmd.Flags().String("worker", "", "the worker (default: the only one)")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if err := named(cmd); err != nil {
			return err
		}
		if err := nameOf(given[0]); err != nil {
			return err
		}
		cl, err := c.Client()
		if err != nil {
			return err
		}
		at, err := target(cmd.Context(), c, cl, *worker,
			fmt.Sprintf(", or pull at all of them: souk image prefetch %s", given[0]))
		if err != nil {
			return err
		}
		b := newBoard(c, "")
		i, text, err := pullAt(cmd.Context(), cl, at, given[0], b.lines[0])
		b.close()
		if err != nil {
			return err
		}
		if c.JSON {
			c.JSONLine(c.Out, brought{Workers: at.workers, StoredImage: i})
			return nil
		}
		c.Printf("%s is at %s (%s): %s\n", given[0], at, shortDigest(i.Digest), text)
		return nil
	}
	return cmd
}

// pullAt pulls an image at a store, and returns a text on what was transferred.
func pullAt(ctx context.Context, cl *client.Client, at store, name string, l *line) (i cluster.StoredImage, text string,
	err error) {
	begun := time.Now()
	if i, err = cl.PullImage(ctx, at.at(), name, l.tell); err != nil {
		return i, "", err
	}
	_, _, sent, _ := l.sums()
	if sent == 0 {
		return i, fmt.Sprintf("all of its %s were there", cli.Bytes(i.Size)), nil
	}
	return i, fmt.Sprintf("%s of %s pulled in %.1f s", cli.Bytes(sent), cli.Bytes(i.Size),
		time.Since(begun).Seconds()), nil
}

// atOnce bounds how many workers pull side by side: all of them ask one registry.
const atOnce = 16

func prefetch(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "prefetch IMAGE", Short: "Have all workers pull an image, or those that are named",
		Long: `Have workers pull an image side by side, so that machines start at once wherever they go: all that run
containers, or those that are named. What fails at one does not keep the others from it.`,
		Example: "  souk image prefetch nginx:1.29\n  souk image prefetch nginx:1.29 --worker fra-1,fra-2",
		Args:    cli.Args(1, 1, "an image")}
	workers := cmd.Flags().StringSlice("worker", nil, "only these workers (default: all)")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if err := named(cmd); err != nil {
			return err
		}
		if err := nameOf(given[0]); err != nil {
			return err
		}
		cl, err := c.Client()
		if err != nil {
			return err
		}
		all, err := stores(cmd.Context(), c, cl, *workers)
		if err != nil {
			return err
		}
		return pullAll(cmd.Context(), c, cl, all, given[0])
	}
	return cmd
}

func pullAll(ctx context.Context, c *cli.Env, cl *client.Client, all []store, name string) error {
	names := make([]string, len(all))
	for n, s := range all {
		names[n] = s.String()
	}
	b := newBoard(c, names...)
	images, texts, errs := make([]cluster.StoredImage, len(all)), make([]string, len(all)), make([]error, len(all))
	places := make(chan struct{}, atOnce)
	var each sync.WaitGroup
	for n, s := range all {
		each.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			images[n], texts[n], errs[n] = pullAt(ctx, cl, s, name, b.lines[n])
			if errs[n] != nil {
				b.lines[n].end("failed")
			} else {
				b.lines[n].end(texts[n])
			}
		})
	}
	each.Wait()
	b.close()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return pulled(c, all, name, images, texts, errs)
}

// pulled prints the result of each pull, and returns the error of all.
func pulled(c *cli.Env, all []store, name string, images []cluster.StoredImage, texts []string, errs []error) error {
	var failed []error
	var out []brought
	digests := map[string]bool{}
	have, of := 0, 0
	for n, s := range all {
		of += len(s.workers)
		x := brought{Workers: s.workers, StoredImage: images[n]}
		if errs[n] != nil {
			x.Error = fault.As(errs[n]).Text
			failed = append(failed, at(s, errs[n]))
		} else {
			digests[images[n].Digest], have = true, have+len(s.workers)
			if !c.JSON {
				c.Printf("%s: %s\n", s, texts[n])
			}
		}
		out = append(out, x)
	}
	if c.JSON {
		cli.JSONList(c, out)
	} else {
		c.Printf("%s is at %d of %s\n", name, have, cli.NumberOf(of, "worker", "workers"))
	}
	if len(digests) > 1 {
		c.Note("the registry gave %d different images for %s, as one was pushed meanwhile; prefetch it again, or by "+
			"its digest", len(digests), name)
	}
	return several(c, failed)
}
