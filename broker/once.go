package broker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// keyPatience is how long a key's machine may still be missing if the outcome of its create is unknown: as long as a
// create may take.
const keyPatience = createTimeout

// orderOnce binds the order's key, and returns the existing machine with its id, if any: a create that is repeated,
// after a lost answer or at the same time, finds the first one's machine. Orders of the same id run one at a time. A
// machine that was made once is never made again while its key is kept, even if it is gone: the binding decides this,
// not a worker.
func (b *Broker) orderOnce(ctx context.Context, o *Order) (*machine.Machine, error) {
	p := o.Purchases[0]
	if o.Gang != nil || o.Key == "" && p.fresh {
		return nil, nil // no other order can have the id
	}
	bound, err := b.bindOrder(ctx, o, p)
	if err != nil {
		return nil, err
	}
	unlock, err := b.creates.lockKey(ctx, "id/"+o.App+"/"+p.Launch.ID)
	if err != nil {
		return nil, err
	}
	o.releases = append(o.releases, unlock)
	w, old, err := b.directory.Find(ctx, o.App, p.Launch.ID)
	switch {
	case err == nil && old.LaunchFailed():
		p.came = cluster.MayBeMade // the program may have run for a moment
		return nil, old.LaunchError()
	case err == nil:
		p.came = cluster.IsMade
		return answerAgain(ctx, w, old, p)
	case fault.Is(err, fault.NotFound):
		return bound.answerUnknown(o.App, p.Launch)
	case p.fresh && fault.Is(err, fault.Unavailable):
		// A machine with a fresh id can only have been made here, while this order waited.
	default:
		return nil, err
	}
	return nil, nil
}

// bindOrder binds the order's key, and its machine's id where the client chose that.
func (b *Broker) bindOrder(ctx context.Context, o *Order, p *Purchase) (bound Bound, err error) {
	raw, err := json.Marshal(o.Launch) // with the client's own id in it, if any
	if err != nil {
		return bound, fault.Wrap(err, fault.Internal, fault.CodeLaunch, "the launch could not be written as JSON")
	}
	sum := sha256.Sum256(raw)
	hash, drawn, own := hex.EncodeToString(sum[:]), p.Launch.ID, !p.fresh && o.Replaces == nil
	if o.Key != "" {
		if bound, err = b.bindKey(ctx, o, p, o.Key, hash); err != nil {
			return bound, err
		}
		p.fresh, p.keyed = p.fresh && bound.Machine == drawn, true
		p.renameMachine(bound.Machine)
		at := bound.At
		if at.IsZero() {
			at = time.Now()
		}
		p.mark = cluster.MarkKey(o.App, o.Key, hash, at)
	}
	if own && !bound.Made {
		return b.bindKey(ctx, o, p, cluster.OwnID(drawn), hash)
	}
	return bound, nil
}

func (b *Broker) bindKey(ctx context.Context, o *Order, p *Purchase, key, hash string) (Bound, error) {
	bound, release, err := b.claims.Key(ctx, cluster.Claim{App: o.App, Value: key, Hash: hash, Machine: p.Launch.ID,
		New: o.NewKey, Age: ageOf(o.Drawn)})
	if err == nil {
		o.releases = append(o.releases, func() { release(p.creationOutcome(o.err)) })
	}
	return bound, err
}

// ageOf returns the age of a key; 0: unknown. Members exchange ages, since their clocks differ.
func ageOf(drawn time.Time) time.Duration {
	if drawn.IsZero() {
		return 0
	}
	return max(time.Since(drawn), 1)
}

// creationOutcome returns whether the purchase made a machine, given the order's error.
func (p *Purchase) creationOutcome(err error) cluster.Creation {
	switch {
	case p.Machine != nil || p.came == cluster.IsMade:
		return cluster.IsMade
	case isRefused(err) || p.came == cluster.NotMade:
		return cluster.NotMade
	}
	return cluster.MayBeMade
}

// isRefused reports whether an order's error proves that no machine was or will be made. After other errors one may
// exist once a worker was asked: a machine whose program is missing is made, and then fails.
func isRefused(err error) bool {
	return fault.Is(err, fault.Exhausted) || fault.CodeOf(err) == fault.CodeNameInUse
}

// answerUnknown answers a create whose machine no worker knows. If it was made and has been forgotten, it returns what
// the binding knows of it; nil: make it now.
func (bound Bound) answerUnknown(app string, l *machine.Launch) (*machine.Machine, error) {
	at := bound.At.UTC().Format(time.RFC3339)
	switch {
	case bound.Made && bound.Other:
		return nil, fault.New(fault.Conflict, fault.CodeIDInUse,
			"machine id %s was used at %s for another machine, which no longer exists; choose another id", l.ID, at)
	case bound.Made:
		return &machine.Machine{ID: l.ID, Name: l.Name, App: app, State: machine.Destroyed, Region: l.Region,
			ImageRef: machine.ParseImage(l.Config.Image), CreatedAt: at, UpdatedAt: at, Config: l.Config,
			HostStatus: "ok", Events: []machine.Event{}, Scheduling: l.Scheduling}, nil
	case !bound.At.IsZero() && time.Since(bound.At) > keyPatience:
		return nil, fault.New(fault.Conflict, codeKeyOpen,
			"a create with this key began at %s, and its result is unknown: no worker has its machine %s, which may "+
				"have run and ended; check what the machine has done, and use a new key to make another", at, l.ID)
	}
	return nil, nil
}

// answerAgain answers a create whose machine exists. It repeats the grant at the machine's worker, which makes nothing,
// waits for the start as before, and knows the lease of the first answer.
func answerAgain(ctx context.Context, w Granter, old *machine.Machine, p *Purchase) (*machine.Machine, error) {
	if old.State == machine.Destroyed {
		return old, nil // the machine was made, and is over
	}
	return w.Grant(ctx, lifecycle.Grant{Request: placement.Request{App: old.App, Machine: p.Launch.ID},
		Launch: p.Launch, Region: old.Region, Source: machine.SourceUser})
}

// claimNames reserves the names of the order's machines until the order is over. With several workers it draws a free
// name for a machine without one; a single worker does that by itself.
func (b *Broker) claimNames(ctx context.Context, o *Order) error {
	if o.Replaces != nil || o.Replica != nil {
		return nil // the replaced machine's name, reserved by the mover, or one derived from the id
	}
	byName := slices.SortedFunc(slices.Values(o.Purchases),
		func(x, y *Purchase) int { return strings.Compare(x.Launch.Name, y.Launch.Name) })
	for _, p := range byName { // sorted, so that two gangs never deadlock
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

// drawName gives a machine a random name that no other of its app has. Two concurrent draws hardly collide, among
// millions of names; see redrawName.
func (b *Broker) drawName(ctx context.Context, o *Order, p *Purchase) error {
	for p.Launch.Name == "" {
		name := machine.NewName(entropy{b.rand})
		id, err := b.directory.Named(ctx, o.App, name)
		if err != nil {
			return err
		}
		if id == "" {
			p.Launch.Name, p.drawn = name, true
		}
	}
	return nil
}

// maxDraws bounds how often a name is drawn for one order.
const maxDraws = 8

// redrawName gives the order's machine another name if the drawn one turned out to be taken, and reports whether it
// did: a client that sent no name must not get a name conflict.
func (b *Broker) redrawName(ctx context.Context, o *Order, bought error) bool {
	p := o.Purchases[0]
	if fault.CodeOf(bought) != fault.CodeNameInUse || !p.drawn || len(o.Purchases) > 1 {
		return false
	}
	p.Launch.Name = ""
	return b.drawName(ctx, o, p) == nil
}

// NameInUse is the error of a name that another machine has.
func NameInUse(name, id string) error {
	return &fault.Error{Kind: fault.Conflict, Code: fault.CodeNameInUse, Detail: id,
		Text: fmt.Sprintf("unique machine name violation, machine ID %s already exists with name %q",
			id, name)}
}
