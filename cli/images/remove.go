package images

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// removed is what was done at one store, in --json.
type removed struct {
	Image   string   `json:"image,omitempty"`
	Workers []string `json:"workers"`
	Bytes   int64    `json:"bytes"`
}

func rm(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "rm IMAGE...", Short: "Remove images, or names of theirs",
		Long: `Remove an image wherever it is, or at the workers that are named. Where it has several names,
a name takes only that name away, and its digest all of them. An image that a machine needs
is not removed.`,
		Example: "  souk image rm nginx:1.28\n  souk image rm 4f53cda18c2b --worker fra-1",
		Args:    cli.Args(1, -1, "at least one image")}
	workers := cmd.Flags().StringSlice("worker", nil, "only at these workers")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if err := named(cmd); err != nil {
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
		var failed []error
		for _, ref := range given {
			failed = append(failed, removeOne(cmd.Context(), c, cl, all, ref)...)
		}
		return several(c, failed)
	}
	return cmd
}

// several prints the errors of a command that continued after them; a single one is returned as the command's own.
func several(c *cli.Env, failed []error) error {
	switch len(failed) {
	case 0:
		return nil
	case 1:
		return failed[0]
	}
	for _, err := range failed {
		c.PrintError(err)
	}
	return cli.Several{Errs: failed}
}

// removeOne removes an image from each store that has it.
func removeOne(ctx context.Context, c *cli.Env, cl *client.Client, all []store, ref string) (failed []error) {
	there := false
	for _, s := range all {
		name := meant(ref, s)
		if name == "" {
			continue
		}
		there = true
		bytes, err := cl.RemoveImage(ctx, s.at(), name)
		if err != nil {
			failed = append(failed, at(s, err))
			continue
		}
		if c.JSON {
			c.JSONLine(c.Out, removed{name, s.workers, bytes})
			continue
		}
		c.Printf("%s is removed at %s: %s freed\n", ref, s, cli.Bytes(bytes))
	}
	if !there {
		failed = append(failed, fault.New(fault.NotFound, machine.CodeImage,
			"no worker that was asked has the image %s; \"souk image ls\" lists those there are", ref))
	}
	return failed
}

// at adds the store to an error.
func at(s store, err error) error { return fmt.Errorf("%s: %w", s, err) }

func prune(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "prune", Short: "Remove all images that no machine needs",
		Long: `Remove all images that no machine needs, and what was half pulled. Those of the release that is wanted of a service, and
of the one that an undo returns to, stay. Those that were loaded from a file must be loaded again if they are wanted later.
Without --yes nothing is done.`,
		Example: "  souk image prune --yes\n  souk image prune --worker fra-1 --yes",
		Args:    cli.Args(0, 0, "no argument")}
	workers := cmd.Flags().StringSlice("worker", nil, "only at these workers")
	yes := cmd.Flags().Bool("yes", false, "do it")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := named(cmd); err != nil {
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
		if !*yes {
			return ask(all)
		}
		var failed []error
		for _, s := range all {
			bytes, err := cl.PruneImages(cmd.Context(), s.at())
			switch {
			case err != nil:
				failed = append(failed, at(s, err))
			case c.JSON:
				c.JSONLine(c.Out, removed{"", s.workers, bytes})
			default:
				c.Printf("%s: %s freed\n", s, cli.Bytes(bytes))
			}
		}
		return several(c, failed)
	}
	return cmd
}

// ask returns a question that says what a prune would remove.
func ask(all []store) error {
	images, bytes := 0, int64(0)
	for _, s := range all {
		for _, i := range s.Images {
			if len(i.Pins) == 0 {
				images, bytes = images+1, bytes+i.Size
			}
		}
	}
	return cli.Usagef("%s of %s, which no machine needs, would be removed; say --yes",
		cli.NumberOf(images, "image", "images"), cli.Bytes(bytes))
}
