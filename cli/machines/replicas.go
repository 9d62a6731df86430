package machines

import (
	"context"
	"reflect"
	"slices"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cli/releases"
	"github.com/soukhq/souk/cli/services"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// replicaFlags are the flags of a run that makes a release instead of a machine.
type replicaFlags struct {
	count int
	group string
	note  string
}

func (o *RunFlags) addReplicas(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&o.replicas.count, "replicas", 0,
		"have the app keep so many machines like this, and make a release of it; 0: none for now")
	f.StringVar(&o.replicas.group, "group", "app", "with --replicas: the group of the app that the machines are")
	f.StringVar(&o.replicas.note, "note", "", "with --replicas: what the release is for")
}

// meantReplicas refuses flags that conflict with --replicas, or that need it.
func (o *RunFlags) meantReplicas() error {
	if !o.set.Changed("replicas") {
		for _, flag := range []string{"group", "note"} {
			if o.set.Changed(flag) {
				return cli.Usagef("--%s says something of the machines that --replicas keeps; give both", flag)
			}
		}
		return nil
	}
	for _, flag := range []string{"name", "id", "count", "attach", "tty", "interactive", "rm", "no-start"} {
		if o.set.Changed(flag) {
			return cli.Usagef("--%s is of one machine, and --replicas has souk keep several: leave one of them out",
				flag)
		}
	}
	if o.replicas.count < 0 || o.replicas.count > machine.MaxReplicas {
		return cli.Usagef("--replicas is 0 to %d, not %d", machine.MaxReplicas, o.replicas.count)
	}
	if !machine.ValidGroup(o.replicas.group) {
		return cli.Usagef("--group is 1 to 48 lower-case letters, digits and dashes, not %q", o.replicas.group)
	}
	return nil
}

// deployed is what run --replicas prints in --json.
type deployed struct {
	api.ReleaseMade
	Service   *api.ServiceStatus `json:"service,omitempty"` // if the command waited for it
	Addresses []services.Address `json:"addresses,omitempty"`
}

// runReplicas makes a release in which the launch is one group, and waits until its machines are ready.
func runReplicas(ctx context.Context, c *cli.Env, cl *client.Client, app string, l *machine.Launch,
	o *RunFlags) error {
	if !reflect.DeepEqual(l, &machine.Launch{Config: l.Config, Region: l.Region, Scheduling: l.Scheduling}) {
		return cli.Usagef("--replicas takes of a launch its config, region and scheduling; leave the rest out of %s: "+
			"souk names the machines and starts them", o.from)
	}
	group := api.NewGroup{Replicas: &o.replicas.count, Group: release.Group{Name: o.replicas.group, Config: l.Config,
		Scheduling: l.Scheduling, Region: l.Region}}
	made, err := deploy(ctx, cl, app, group, o.replicas.note)
	if err != nil {
		return err
	}
	releases.Warn(c, made.Warnings)
	out := deployed{ReleaseMade: made}
	if !o.detach {
		s, err := releases.Await(ctx, c, cl, app, group.Name, &made.Head)
		if err != nil && s.App != "" && ctx.Err() == nil && !c.JSON {
			return releases.Failed(ctx, c, cl, &s, err)
		}
		if err != nil {
			return err
		}
		out.Service, out.Addresses = &s, services.AddressesOrNote(ctx, c, cl, app)
	}
	switch {
	case c.JSON:
		c.JSONLine(c.Out, out)
	case o.detach:
		releases.Made(c, app, &made)
	default:
		releases.Show(c, out.Service)
		services.ShowAddresses(c, out.Addresses)
	}
	return nil
}

// deploy makes a release in which a group replaces the one of its name; the other groups stay. It creates the app if
// there is none.
func deploy(ctx context.Context, cl *client.Client, app string, group api.NewGroup,
	note string) (api.ReleaseMade, error) {
	in, err := releaseWith(ctx, cl, app, group)
	if err != nil {
		return api.ReleaseMade{}, err
	}
	in.Note = note
	made, err := cl.Deploy(ctx, app, in)
	if err != nil {
		return made, err
	}
	// A count set by "souk scale" survives a release with an unchanged count. Here the user gave a count, so set it.
	if n, scaled := made.Head.Counts[group.Name]; scaled && n != *group.Replicas {
		var back api.RolledBack
		back, err = cl.Change(ctx, app, release.Change{Why: release.WhyScale,
			Counts: map[string]int{group.Name: *group.Replicas}, Parent: &made.Head.ID})
		made.Head = back.Head
	}
	return made, err
}

// releaseWith returns the release that is wanted now, with a group changed.
func releaseWith(ctx context.Context, cl *client.Client, app string,
	group api.NewGroup) (in api.NewRelease, err error) {
	none := ""
	s, err := cl.Service(ctx, app)
	switch {
	case fault.CodeOf(err) == fault.CodeAppNotFound:
		return api.NewRelease{Groups: []api.NewGroup{group}, Parent: &none}, releases.MakeApp(ctx, cl, app)
	case fault.CodeOf(err) == fault.CodeNoService:
		return api.NewRelease{Groups: []api.NewGroup{group}, Parent: &none}, nil
	case err != nil:
		return in, err
	case s.Head == nil:
		return in, fault.New(fault.Precondition, fault.CodeSchema, "%s", s.Why)
	}
	r, err := cl.Release(ctx, app, s.Head.Release)
	if err != nil {
		return in, err
	}
	in = api.NewRelease{Groups: r.Groups, Parent: &s.Head.ID, ReleaseCommand: r.ReleaseCommand,
		ReleaseCommandGroup: r.ReleaseCommandGroup, ReleaseCommandTimeout: r.ReleaseCommandTimeout}
	at := slices.IndexFunc(in.Groups, func(g api.NewGroup) bool { return g.Name == group.Name })
	if at < 0 {
		in.Groups = append(in.Groups, group)
	} else {
		in.Groups[at] = group
	}
	return in, nil
}
