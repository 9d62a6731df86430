package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/member"
	"github.com/soukhq/souk/mesh/pki"
	"github.com/soukhq/souk/node"
)

// removeFlags make a souk destroy all that it has, instead of running.
type removeFlags struct {
	remove bool
	yes    bool
}

func (o *removeFlags) add(f *pflag.FlagSet) {
	f.BoolVar(&o.remove, "remove", false, "do not run, but end all machines, tasks and volumes of this "+
		"host's souk and its reapers, and say what is left")
	f.BoolVar(&o.yes, "yes", false, "with --remove: really; what is on the volumes and in the machines is lost")
}

// check refuses --yes without --remove.
func (o *removeFlags) check() error {
	if o.yes && !o.remove {
		return cli.Usagef("--yes goes with --remove; nothing else is asked")
	}
	return nil
}

// removal is what --remove prints in --json.
type removal struct {
	Removed  string   `json:"removed"` // the directory, which stays; nothing runs in it
	Machines int      `json:"machines"`
	Tasks    int      `json:"tasks"`
	Volumes  []string `json:"volumes"`
}

// doRemove destroys what the workers of a directory have. left lists other things that stay, one per line.
func (o *removeFlags) doRemove(ctx context.Context, c *cli.Env, options node.Options, left ...string) error {
	options.Emptying = true
	n, err := node.New(ctx, options)
	if err != nil {
		return err
	}
	h, err := n.Holdings(ctx)
	if err == nil && !o.yes && h.Machines+h.Tasks+len(h.Volumes) > 0 {
		err = cli.Usagef("%s of %s would be ended for good; say --yes", holdingsText(h), options.Dir)
	}
	if err == nil {
		done := c.Progress("ending %s", holdingsText(h))
		err = n.Empty(ctx)
		done()
	}
	if err := errors.Join(err, n.Close()); err != nil {
		return err
	}
	if c.JSON {
		c.JSONLine(c.Out, removal{options.Dir, h.Machines, h.Tasks, volumeNames(h.Volumes)})
		return nil
	}
	fmt.Fprintf(c.Out, "ended: %s; nothing of %s runs any more\n", holdingsText(h), options.Dir)
	for _, l := range append([]string{fmt.Sprintf("the directory, with its journals, images and token; a souk "+
		"that is started with it makes again what its services and jobs want: rm -r %s", options.Dir)}, left...) {
		fmt.Fprintf(c.Out, "  left  %s\n", l)
	}
	return nil
}

func holdingsText(h node.Holdings) string {
	text := cli.NumberOf(h.Machines, "machine", "machines")
	if h.Tasks > 0 {
		text += ", " + cli.NumberOf(h.Tasks, "task", "tasks")
	}
	if len(h.Volumes) > 0 {
		text += fmt.Sprintf(" and %s (%s)", cli.NumberOf(len(h.Volumes), "volume", "volumes"),
			strings.Join(volumeNames(h.Volumes), ", "))
	}
	return text
}

func volumeNames(vs []machine.Volume) []string {
	names := make([]string, len(vs))
	for i, v := range vs {
		names[i] = v.App + "/" + cmp.Or(v.Name, v.ID)
	}
	return names
}

// removeMember destroys what the worker of a member has. Its agent must not run, and the cluster is not asked.
func removeMember(ctx context.Context, c *cli.Env, o *agentFlags, dir string, log *slog.Logger) error {
	token, err := tokenOf(dir)
	if err != nil {
		return err
	}
	identity, err := pki.Load(filepath.Join(dir, member.IdentityDir))
	if err != nil {
		return err
	}
	id := cluster.WorkerID(identity.Name().ID)
	plan := node.Worker{ID: id, Dir: filepath.Join(dir, "worker")}
	if plan.Capacity, err = capacityOf(dir, &devFlags{cpus: o.CPUs, memory: o.Memory}); err != nil {
		return err
	}
	containers, err := o.containerFlags.plan(dir)
	if err != nil {
		return err
	}
	return o.doRemove(ctx, c, node.Options{Dir: dir, Token: token, Region: cluster.Region(o.Region), Log: log,
		Workers: []node.Worker{plan}, Containers: containers.how, Build: cli.ThisBuild()},
		"its service and its settings, if any: souk agent uninstall, rm -r /etc/souk",
		fmt.Sprintf("its place in the cluster: souk node rm %s --yes, at another member", id))
}
