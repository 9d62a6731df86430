// Package images has the commands souk image: the images that workers keep.
package images

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// codeNoWorkers says that there is no worker.
const codeNoWorkers fault.Code = "no_workers"

// Images makes the command "souk image".
func Images(c *cli.Env) *cobra.Command {
	return cli.Parent(&cobra.Command{Use: "image", Aliases: []string{"images"},
		Short: "Pull, load, list and remove images of containers",
		Long: `Each worker that runs containers keeps the images it has pulled or was given. An image
is pulled by itself when a machine needs it; these commands bring it before, or
where no registry can be reached, and take it away again. The workers of one
process, as those of "souk dev", share what they keep.

Credentials are those of the worker's host (docker's config.json of the user who
runs souk). What one user had pulled with them, others can name, too.`,
		Example: "  souk image pull nginx:1.29\n  souk image load app.tar\n  souk image ls"},
		ls(c), pull(c), prefetch(c), load(c), rm(c), prune(c))
}

// store is an image store that one or more workers share: an action at the first worker affects all.
type store struct {
	cluster.ImageStore
	workers []string
}

func (s store) String() string { return strings.Join(s.workers, ", ") }

// at returns the worker to ask.
func (s store) at() string { return s.workers[0] }

// storesOf groups workers by the store that they share, in the order of the workers.
func storesOf(list api.ImageList) (out []store) {
	of := map[string]int{}
	for _, k := range list.Stores {
		key := cmp.Or(k.Store, "of "+string(k.Worker))
		i, known := of[key]
		if !known {
			i = len(out)
			of[key] = i
			out = append(out, store{ImageStore: k})
		}
		out[i].workers = append(out[i].workers, string(k.Worker))
	}
	return out
}

// named refuses a --worker that is empty, as "$W" is where W is not set: it would mean every worker.
func named(cmd *cobra.Command) error {
	f := cmd.Flags().Lookup("worker")
	if f != nil && f.Changed && (f.Value.String() == "" || f.Value.String() == "[]") {
		return cli.Usagef("--worker is empty; name a worker, or leave --worker out")
	}
	return nil
}

// stores asks the named workers, or all, for their stores. It prints a note for workers without one, and returns an
// error if none has one.
func stores(ctx context.Context, c *cli.Env, cl *client.Client, workers []string) ([]store, error) {
	done := c.Progress("asking the workers for their images")
	list, err := cl.Images(ctx, workers...)
	done()
	if err != nil {
		return nil, err
	}
	if len(list.Stores) == 0 {
		if len(list.Without) == 0 {
			return nil, fault.New(fault.Unavailable, codeNoWorkers,
				"there is no worker; \"souk node ls\" lists the hosts")
		}
		return nil, fault.New(fault.Precondition, fault.CodeImages, "%s", list.Without[0].Error)
	}
	const most = 3
	for i, w := range list.Without {
		if i == most {
			c.Note("%d more workers have told of no images", len(list.Without)-most)
			break
		}
		c.Note("%s", said(w))
	}
	return storesOf(list), nil
}

// said returns which worker has no image list, and why.
func said(w api.UnreachableWorker) string {
	if strings.Contains(w.Error, string(w.Worker)) {
		return w.Error
	}
	return fmt.Sprintf("worker %s: %s", w.Worker, w.Error)
}

// target returns the named worker as a store, or the only store that there is; several are an error.
func target(ctx context.Context, c *cli.Env, cl *client.Client, named, otherwise string) (store, error) {
	if named != "" {
		return store{workers: []string{named}}, nil
	}
	all, err := cl.Workers(ctx)
	if err != nil {
		return store{}, err
	}
	if len(all.Workers) == 1 && len(all.Unreachable) == 0 {
		return store{workers: []string{string(all.Workers[0].Worker)}}, nil
	}
	kept, err := stores(ctx, c, cl, nil)
	if err != nil {
		return store{}, err
	}
	if len(kept) > 1 {
		return store{}, cli.Usagef("%d workers keep images of their own (%s); say at which with --worker%s", len(kept),
			few(kept), otherwise)
	}
	return kept[0], nil
}

func few(all []store) string {
	var names []string
	for _, s := range all {
		if len(names) == 5 {
			return fmt.Sprintf("%s and %d more", strings.Join(names, ", "), len(all)-5)
		}
		names = append(names, s.at())
	}
	return strings.Join(names, ", ")
}

// short returns an image name without docker.io/ and library/.
func short(name string) string {
	name = strings.TrimPrefix(name, "docker.io/")
	return strings.TrimPrefix(name, "library/")
}

// ending shortens a name to at most most columns (0: no limit), keeping its end, where names differ.
func ending(name string, most int) string {
	if most <= 0 || len(name) <= most {
		return name
	}
	return "…" + name[len(name)-max(most, 2)+1:]
}

// digestDigits is how many digits of a digest are shown, and the least that identify an image: fewer may be a name.
const digestDigits = 12

func shortDigest(d string) string {
	hex := strings.TrimPrefix(d, "sha256:")
	return hex[:min(len(hex), digestDigits)]
}

// label returns what to call an image in a sentence.
func label(i cluster.StoredImage) string {
	if len(i.Names) == 0 {
		return shortDigest(i.Digest)
	}
	names := make([]string, len(i.Names))
	for n, x := range i.Names {
		names[n] = short(x)
	}
	return strings.Join(names, ", ")
}

// row is one image under one name, and who has it.
type row struct {
	name    string
	image   cluster.StoredImage
	workers []string
	pins    int
}

// rowsOf lists all names of all images, those used last first.
func rowsOf(all []store) []row {
	var out []row
	at := map[string]int{}
	for _, s := range all {
		for _, i := range s.Images {
			for _, name := range append(slices.Clone(i.Names), "")[:max(1, len(i.Names))] {
				key := name + "@" + i.Digest
				n, known := at[key]
				if !known {
					n = len(out)
					at[key] = n
					out = append(out, row{name: name, image: i})
				}
				r := &out[n]
				r.workers, r.pins = append(r.workers, s.workers...), r.pins+len(i.Pins)
				if i.Used.After(r.image.Used) {
					r.image.Used = i.Used
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b row) int {
		return cmp.Or(b.image.Used.Compare(a.image.Used), strings.Compare(a.name, b.name))
	})
	return out
}

func ls(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List the images that workers have, those used last first",
		Long: `List the images that workers have, those used last first. MACHINES is how many machines
need an image: such a one is not removed.`,
		Example: "  souk image ls\n  souk image ls --worker fra-1\n  souk image ls --json | jq -r " +
			"'.stores[].images[].digest'",
		Args: cli.Args(0, 0, "no argument")}
	workers := cmd.Flags().StringSlice("worker", nil, "only those of these workers")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := named(cmd); err != nil {
			return err
		}
		cl, err := c.Client()
		if err != nil {
			return err
		}
		if c.JSON {
			list, err := cl.Images(cmd.Context(), *workers...)
			if err == nil {
				c.JSONLine(c.Out, list)
			}
			return err
		}
		all, err := stores(cmd.Context(), c, cl, *workers)
		if err != nil {
			return err
		}
		total := 0
		for _, s := range all {
			total += len(s.workers)
		}
		var rows [][]cli.Cell
		for _, r := range rowsOf(all) {
			name := ending(cmp.Or(short(r.name), "-"), c.Columns()*9/20)
			rows = append(rows, cli.Cells(name, shortDigest(r.image.Digest), cli.Bytes(r.image.Size),
				used(r.image.Used), fmt.Sprint(r.pins), whose(r.workers, total)))
		}
		c.Table([]cli.Column{cli.Keep("NAME"), cli.Drop("DIGEST", 2), cli.Keep("SIZE"), cli.Drop("USED", 3),
			cli.Drop("MACHINES", 1), cli.Drop("WORKERS", 4).Cut(7)}, rows)
		return nil
	}
	return cmd
}

func used(at time.Time) string { return cli.Age(at.Format(time.RFC3339Nano), time.Now()) }

// whose names workers out of a total number.
func whose(workers []string, of int) string {
	switch {
	case of > 1 && len(workers) == of:
		return fmt.Sprintf("all %d", of)
	case len(workers) > 3:
		return fmt.Sprintf("%d of %d", len(workers), of)
	}
	return strings.Join(workers, ",")
}

// meant resolves a reference to an image in a store, to a full name or a digest; "": not there. A prefix of a digest is
// enough.
func meant(ref string, s store) string {
	full := ""
	if machine.CheckImage(ref) == nil {
		full = machine.ParseImage(ref).String()
	}
	digits := strings.TrimPrefix(ref, "sha256:")
	for _, i := range s.Images {
		if slices.Contains(i.Names, full) {
			return full
		}
	}
	for _, i := range s.Images {
		_, digest, pinned := strings.Cut(ref, "@")
		if pinned && digest == i.Digest ||
			len(digits) >= digestDigits && strings.HasPrefix(strings.TrimPrefix(i.Digest, "sha256:"), digits) {
			return i.Digest
		}
	}
	return ""
}
