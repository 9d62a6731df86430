package broker

import (
	"context"
	"maps"

	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Another copies a machine under a new name: same config, same region, its own files. A machine with a volume cannot be
// copied. The copy is placed like any launch; cancelling ctx does not stop that. A warm copy is not started: a request
// wakes it later.
func (b *Broker) Another(ctx context.Context, app, like, name string, warm bool) (*machine.Machine, error) {
	_, m, err := b.directory.Find(ctx, app, like)
	if err != nil {
		return nil, err
	}
	switch {
	case m.Config == nil || m.Config.Image == "":
		return nil, fault.New(fault.Unavailable, machine.CodeConfig,
			"no other machine like %s can be made now, because its config is unknown and its worker does not "+
				"answer; ask again when the worker is back", like)
	case len(m.Config.Mounts) > 0:
		return nil, fault.New(fault.Precondition, codeMounts,
			"no other machine like %s can be made, because it mounts a volume, which serves one machine only; make "+
				"one with a volume of its own", like)
	}
	c := *m.Config
	c.Image = machine.Pinned(m) // the same image, whatever its name means by now
	c.Metadata = maps.Clone(m.Config.Metadata)
	if c.Metadata == nil {
		c.Metadata = map[string]string{}
	}
	delete(c.Metadata, MetadataMoved)
	delete(c.Metadata, machine.MetadataEpoch)
	why := decision.Another
	c.Metadata[machine.MetadataLike], c.Metadata[machine.MetadataFor] = m.ID, machine.MadeForLoad
	if warm {
		why, c.Metadata[machine.MetadataFor] = decision.Warm, machine.MadeForWarm
	}
	l := &machine.Launch{Name: name, Region: string(m.Region), Config: &c, Scheduling: m.Scheduling,
		SkipLaunch: warm, UnixUser: m.UnixUser}
	placed, err := b.Place(ctx, Intent{App: app, Launch: l, why: why})
	if err != nil {
		return nil, err
	}
	return placed.Machines[0], nil
}
