package broker

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/backoff"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/machine"
)

// Peers are the members of a cluster, each of which decides some claims for all.
type Peers interface {
	// Deciders lists the members that may decide claims: those that are known and not removed.
	Deciders() []cluster.WorkerID
	// Claim asks another member.
	Claim(ctx context.Context, member cluster.WorkerID, c cluster.Claim) (cluster.Claimed, error)
}

// Bounds of how long a create asks for a claim that another create holds.
const (
	claimPatience = 15 * time.Second // for a name that a create elsewhere holds
	claimTime     = 2 * time.Second  // to report that a create has ended
)

// claimPause is the pause before a create asks again.
var claimPause = backoff.Doubling{Base: 2 * time.Millisecond, Most: 250 * time.Millisecond}

// Claimant is the Claims of one member. The name or key chooses the one member that decides a claim
// (cluster.Claim.Deciders), so all members ask the same one, and no quorum is needed. If it is unreachable, the next in
// the order decides: see docs/decisions/0024-names-and-keys.md.
type Claimant struct {
	self      cluster.WorkerID
	peers     Peers // nil: this process is alone
	decider   *Decider
	directory Directory
	locks     *keyLocks // creates of this process wait for each other here
}

// NewClaimant makes the Claimant of member self; decider decides the claims that fall to self.
func NewClaimant(self cluster.WorkerID, peers Peers, decider *Decider, d Directory) *Claimant {
	return &Claimant{self: self, peers: peers, decider: decider, directory: d, locks: newKeyLocks()}
}

// Name reserves a name for a machine while it is made. It waits for another create that holds the name.
func (c *Claimant) Name(ctx context.Context, app, name, id string) (func(*machine.Machine), error) {
	unlock, err := c.locks.lockKey(ctx, "name/"+app+"/"+name)
	if err != nil {
		return nil, err
	}
	claim := cluster.Claim{Kind: cluster.ClaimName, App: app, Value: name, Machine: id, Holder: c.holderName(id)}
	at, err := c.takeName(ctx, claim)
	if err != nil {
		unlock()
		return nil, err
	}
	return func(made *machine.Machine) {
		defer unlock()
		claim.Step = cluster.ClaimDrop
		if made != nil {
			claim.Step, claim.Machine = cluster.ClaimSettle, made.ID
		}
		c.endClaim(ctx, at, claim)
	}, nil
}

// takeName asks for a name until the create holds it, or an existing machine has it.
func (c *Claimant) takeName(ctx context.Context, claim cluster.Claim) (at cluster.WorkerID, err error) {
	began := time.Now()
	for tries := 0; ; tries++ {
		got, at, err := c.takeClaim(ctx, claim)
		switch {
		case err != nil || got.Granted:
			return at, err
		case got.Made && got.Machine != claim.Over && c.isDestroyed(ctx, claim.App, got.Machine):
			claim.Over = got.Machine // tell the decider, which does not know that this machine is destroyed
			continue
		case got.Made || time.Since(began) > claimPatience:
			return at, NameInUse(claim.Value, got.Machine)
		}
		if err := wait.For(ctx, claimPause.After(tries)); err != nil {
			return at, err
		}
	}
}

// isDestroyed reports whether a machine's own worker says that it is destroyed.
func (c *Claimant) isDestroyed(ctx context.Context, app, id string) bool {
	_, m, err := c.directory.Find(ctx, app, id)
	return fault.Is(err, fault.NotFound) || err == nil && m.State == machine.Destroyed
}

// Key binds a key. It waits for another create with the same key, whose machine may be the answer to this one.
func (c *Claimant) Key(ctx context.Context, claim cluster.Claim) (Bound, func(cluster.Creation), error) {
	unlock, err := c.locks.lockKey(ctx, "key/"+claim.App+"/"+claim.Value)
	if err != nil {
		return Bound{}, nil, err
	}
	claim.Kind, claim.Holder = cluster.ClaimKey, c.holderName(claim.Machine)
	for tries := 0; ; tries++ {
		got, at, err := c.takeClaim(ctx, claim)
		if err == nil && got.Granted {
			return Bound{got.Machine, got.Made, got.Bound, got.Other}, func(came cluster.Creation) {
				defer unlock()
				if claim.Step, claim.Came = cluster.ClaimSettle, came; came == cluster.NotMade {
					claim.Step = cluster.ClaimDrop
				}
				c.endClaim(ctx, at, claim)
			}, nil
		}
		if err == nil {
			err = wait.For(ctx, claimPause.After(tries))
		}
		if err != nil {
			unlock()
			return Bound{}, nil, err
		}
	}
}

// Spread waits until no other create places machines of an app that must be spread. It returns the machines that other
// creates placed in the last seconds, which the fleet may not know yet. release lets the next create go on; its
// argument is the machines that this create has placed.
func (c *Claimant) Spread(ctx context.Context, app string) ([]cluster.Placed, func([]cluster.Placed), error) {
	unlock, err := c.locks.lockKey(ctx, "spread/"+app)
	if err != nil {
		return nil, nil, err
	}
	claim := cluster.Claim{Kind: cluster.ClaimSpread, App: app, Holder: c.holderName("")}
	for tries := 0; ; tries++ {
		got, at, err := c.takeClaim(ctx, claim)
		if err == nil && got.Granted {
			return got.Placed, func(made []cluster.Placed) {
				defer unlock()
				claim.Step, claim.Placed = cluster.ClaimSettle, made[:min(len(made), cluster.MaxPlaced)]
				c.endClaim(ctx, at, claim)
			}, nil
		}
		if err == nil {
			err = wait.For(ctx, claimPause.After(tries))
		}
		if err != nil {
			unlock()
			return nil, nil, err
		}
	}
}

// holderName names a create, as the holder of a claim.
func (c *Claimant) holderName(machine string) string { return machine + "@" + string(c.self) }

// takeClaim asks the first of the claim's deciders that can be asked.
func (c *Claimant) takeClaim(ctx context.Context, claim cluster.Claim) (cluster.Claimed, cluster.WorkerID, error) {
	claim.Step = cluster.ClaimTake
	for _, id := range c.decidersOf(claim) {
		got, err := c.askDecider(ctx, id, claim)
		if id != c.self && passedOver(err) && ctx.Err() == nil {
			claim.Instead = claim.Instead || fault.Is(err, fault.Unavailable) || fault.Is(err, fault.Timeout)
			continue
		}
		return got, id, err
	}
	got, err := c.decider.Decide(ctx, claim) // the list is empty, so this member decides
	return got, c.self, err
}

// passedOver reports whether the next member must decide, since the one asked is unreachable or decides nothing.
func passedOver(err error) bool {
	switch fault.KindOf(err) {
	case fault.Unavailable, fault.Timeout:
		return fault.CodeOf(err) != codeKeyOpen // the member is reachable, only the machine's worker is not
	case fault.Unimplemented, fault.Precondition, fault.Denied, fault.NotFound:
		return true
	}
	return false
}

func (c *Claimant) decidersOf(claim cluster.Claim) []cluster.WorkerID {
	if c.peers == nil {
		return nil
	}
	return claim.Deciders(c.peers.Deciders())
}

func (c *Claimant) askDecider(ctx context.Context, id cluster.WorkerID, claim cluster.Claim) (cluster.Claimed, error) {
	if id == c.self || c.peers == nil {
		return c.decider.Decide(ctx, claim)
	}
	return c.peers.Claim(ctx, id, claim)
}

// Decide answers another member's claim.
func (c *Claimant) Decide(ctx context.Context, claim cluster.Claim) (cluster.Claimed, error) {
	if claim.Step == cluster.ClaimStood {
		return cluster.Claimed{Stood: c.standInClaims()}, nil
	}
	return c.decider.Decide(ctx, claim)
}

// standInClaims lists the keys that this member decided while their own decider was unreachable.
func (c *Claimant) standInClaims() (out []cluster.Claim) {
	c.decider.keys.BoundKeys(func(app, key, machine string) bool {
		claim := cluster.Claim{Kind: cluster.ClaimKey, App: app, Value: key, Machine: machine}
		if order := c.decidersOf(claim); len(order) > 0 && order[0] != c.self {
			out = append(out, claim)
		}
		return len(out) < cluster.MaxStood
	})
	return out
}

// Pair is a name or key that several machines of an app have, though it must be unique.
type Pair struct {
	Kind     cluster.ClaimKind
	App      string
	Value    string   // the name, or the key
	Machines []string // ids
}

// KeyPairs asks all members for keys that a network partition has left bound to several machines. Those machines may be
// gone.
func (c *Claimant) KeyPairs(ctx context.Context) (out []Pair) {
	if c.peers == nil {
		return nil
	}
	pairs := map[string]*Pair{}
	for _, id := range c.peers.Deciders() {
		got, err := c.askStood(ctx, id)
		if err != nil {
			continue // its pairs are found once it is reachable
		}
		for _, claim := range got.Stood {
			key := claim.App + "/" + claim.Value
			if pairs[key] == nil {
				pairs[key] = &Pair{Kind: cluster.ClaimKey, App: claim.App, Value: claim.Value}
			}
			claim.Step = cluster.ClaimLook
			pairs[key].addMachine(claim.Machine)
			if first, err := c.askDecider(ctx, c.decidersOf(claim)[0], claim); err == nil {
				pairs[key].addMachine(first.Machine)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		if len(pairs[key].Machines) > 1 {
			out = append(out, *pairs[key])
		}
	}
	return out
}

func (c *Claimant) askStood(ctx context.Context, id cluster.WorkerID) (cluster.Claimed, error) {
	if id == c.self {
		return cluster.Claimed{Stood: c.standInClaims()}, nil
	}
	return c.peers.Claim(ctx, id, cluster.Claim{Kind: cluster.ClaimKey, Step: cluster.ClaimStood})
}

func (p *Pair) addMachine(machine string) {
	if machine != "" && !slices.Contains(p.Machines, machine) {
		p.Machines = append(p.Machines, machine)
	}
}

// endClaim tells the decider how the create ended. If that fails, the claim expires by itself.
func (c *Claimant) endClaim(ctx context.Context, at cluster.WorkerID, claim cluster.Claim) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTime)
	defer cancel()
	_, _ = c.askDecider(ctx, at, claim)
}
