package broker

import (
	"context"
	"maps"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// MetadataLike is the metadata key under which a machine that requests have made says after which it was made.
const MetadataLike = "souk_made_like"

// Another makes one more machine like one that is there, under a name, and has it started: with the same config, files
// of its own, and in the same region. One with a volume has none like it. It is placed as any launch is, and goes on
// when ctx is cancelled.
func (b *Broker) Another(ctx context.Context, app, like, name string) (*machine.Machine, error) {
	_, m, err := b.directory.Find(ctx, app, like)
	if err != nil {
		return nil, err
	}
	switch {
	case m.Config == nil || m.Config.Image == "":
		return nil, fault.New(fault.Unavailable, "config",
			"machine %s is not known well enough to make another like it: its worker cannot be asked", like)
	case len(m.Config.Mounts) > 0:
		return nil, fault.New(fault.Precondition, "mounts",
			"machine %s has a volume, which is its alone, so no other is made like it", like)
	}
	c := *m.Config
	c.Image = machine.Pinned(m) // the same files, whatever the name means by now
	c.Metadata = maps.Clone(m.Config.Metadata)
	if c.Metadata == nil {
		c.Metadata = map[string]string{}
	}
	delete(c.Metadata, MetadataMoved)
	delete(c.Metadata, machine.MetadataEpoch)
	c.Metadata[MetadataLike] = m.ID
	l := &machine.Launch{Name: name, Region: string(m.Region), Config: &c, Scheduling: m.Scheduling}
	placed, err := b.Place(ctx, Intent{App: app, Launch: l})
	if err != nil {
		return nil, err
	}
	return placed.Machines[0], nil
}
