package broker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/placement"
)

// once binds the order's key, and returns the machine that there is of its id already: a create that is repeated, after
// a lost answer or at the same time, finds the first one's machine. One order at a time goes on for each id.
func (b *Broker) once(ctx context.Context, o *Order) (*machine.Machine, error) {
	p := o.Purchases[0]
	if o.Gang != nil || o.Bid != nil || o.Key == "" && p.fresh {
		return nil, nil // nobody else has the id, or the worker itself knows it
	}
	if o.Key != "" {
		if err := b.bindKey(ctx, o, p); err != nil {
			return nil, err
		}
	}
	unlock, err := b.creates.lock(ctx, "id/"+o.App+"/"+p.Launch.ID)
	if err != nil {
		return nil, err
	}
	o.releases = append(o.releases, unlock)
	w, old, err := b.directory.Find(ctx, o.App, p.Launch.ID)
	switch {
	case err == nil:
		return again(ctx, w, old, p)
	case fault.Is(err, fault.NotFound):
	case p.fresh && fault.Is(err, fault.Unavailable):
		// A machine of a fresh id can only have been made here, while this waited.
	default:
		return nil, err
	}
	return nil, nil
}

// bindKey gives the purchase the id that the order's key is bound to.
func (b *Broker) bindKey(ctx context.Context, o *Order, p *Purchase) error {
	raw, err := json.Marshal(o.Launch) // with the client's own id in it, if any
	if err != nil {
		return fault.Wrap(err, fault.Internal, "launch", "the launch could not be written as JSON")
	}
	sum := sha256.Sum256(raw)
	drawn := p.Launch.ID
	bound, release, err := b.claims.Key(ctx, o.App, o.Key, hex.EncodeToString(sum[:]), drawn)
	if err != nil {
		return err
	}
	o.releases = append(o.releases, func() { release(p.Machine == nil && refused(o.err)) })
	p.fresh = p.fresh && bound == drawn
	p.rename(bound)
	return nil
}

// refused reports whether an error of an order says that no machine was made, and none is being made. Of other errors
// that is not sure: a machine whose program is not there is made, and fails.
func refused(err error) bool {
	return fault.Is(err, fault.Exhausted) || fault.CodeOf(err) == "name_taken"
}

// again answers a create whose machine is there. The grant is repeated at its worker, which makes nothing, waits for
// the start as it did the first time, and knows the lease that the first answer told.
func again(ctx context.Context, w Granter, old *machine.Machine, p *Purchase) (*machine.Machine, error) {
	if old.State == machine.Destroyed {
		return old, nil // it was made, and is over
	}
	return w.Grant(ctx, lifecycle.Grant{Request: placement.Request{App: old.App, Machine: p.Launch.ID},
		Launch: p.Launch, Region: old.Region, Source: "user"})
}

// claimNames keeps the names of the order's machines until it is over. Among several workers a machine without a name
// is given one that none has; a single worker sees to it by itself.
func (b *Broker) claimNames(ctx context.Context, o *Order) error {
	if o.Replaces != nil {
		return nil // the name is that of the machine that it replaces, whose mover keeps it
	}
	byName := slices.SortedFunc(slices.Values(o.Purchases),
		func(x, y *Purchase) int { return strings.Compare(x.Launch.Name, y.Launch.Name) })
	for _, p := range byName { // in one order, so that two gangs never wait for each other
		var err error
		switch {
		case p.Launch.Name != "":
			err = b.claimName(ctx, o, p)
		case b.fleet.Workers() > 1:
			err = b.drawName(ctx, o, p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *Broker) claimName(ctx context.Context, o *Order, p *Purchase) error {
	release, err := b.claims.Name(ctx, o.App, p.Launch.Name, p.Launch.ID)
	if err == nil {
		o.releases = append(o.releases, func() { release(p.Machine) })
	}
	return err
}

// drawName gives a machine a name that no other of its app has. Two that draw at the same moment differ, as there are
// millions.
func (b *Broker) drawName(ctx context.Context, o *Order, p *Purchase) error {
	for p.Launch.Name == "" {
		name := machine.NewName(entropy{b.rand})
		id, err := b.directory.Named(ctx, o.App, name)
		if err != nil {
			return err
		}
		if id == "" {
			p.Launch.Name = name
		}
	}
	return nil
}

// NameInUse is the error of a name that another machine has.
func NameInUse(name, id string) error {
	return &fault.Error{Kind: fault.Conflict, Code: "name_taken", Detail: id,
		Text: fmt.Sprintf("already_exists: unique machine name violation, machine ID %s already exists with name %q",
			id, name)}
}
