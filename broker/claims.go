package broker

import (
	"context"

	"github.com/soukhq/souk/catalog"
	"github.com/soukhq/souk/machine"
)

// Keys remembers what Idempotency-Keys are bound to, durably: see Claims.Key.
type Keys interface {
	Claim(app, key, hash, machineID string) (*catalog.Claim, error)
}

// Alone decides claims by itself: it is the Claims of a souk that is no member of a cluster.
type Alone struct {
	directory Directory
	keys      Keys
	names     *keyLocks
}

// NewAlone makes claims that are decided here.
func NewAlone(d Directory, k Keys) *Alone {
	return &Alone{directory: d, keys: k, names: newKeyLocks()}
}

// Name waits until no other create here is about to take the name, and looks who has it.
func (a *Alone) Name(ctx context.Context, app, name, machineID string) (func(*machine.Machine), error) {
	unlock, err := a.names.lock(ctx, app+"/"+name)
	if err != nil {
		return nil, err
	}
	id, err := a.directory.Named(ctx, app, name)
	if err == nil && id != "" && id != machineID {
		err = NameTaken(name, id)
	}
	if err != nil {
		unlock()
		return nil, err
	}
	return func(*machine.Machine) { unlock() }, nil
}

// Key binds a key here.
func (a *Alone) Key(_ context.Context, app, key, hash, machineID string) (string, func(refused bool), error) {
	claim, err := a.keys.Claim(app, key, hash, machineID)
	if err != nil {
		return "", nil, err
	}
	return claim.Machine, claim.End, nil
}
