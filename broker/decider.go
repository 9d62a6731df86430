package broker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/catalog"
)

// Keys remembers durably which machines Idempotency-Keys are bound to. The catalog implements it.
type Keys interface {
	Claim(app, key, hash, machineID string) (*catalog.Claim, error)
	// BoundKey returns the machine that a key is bound to here; "": none.
	BoundKey(app, key string) string
	// BoundKeys calls f with every key that is bound here, until it returns false.
	BoundKeys(f func(app, key, machine string) bool)
}

// maxClaims bounds the creates under way whose claims one member keeps.
const maxClaims = 65536

// Decider decides the claims that members ask it for. It keeps running creates, of names and of keys, in memory until
// they expire; key bindings are durable. The directory says which names machines have, once their workers have reported
// them.
type Decider struct {
	directory Directory
	keys      Keys

	mu   sync.Mutex
	held map[string]*heldClaim // by kind, app and value
	// by app: the machines of spreads made within the last cluster.KeepClaim, oldest first
	placed map[string][]placedAt
	swept  time.Time
}

// placedAt is a machine of a spread, with the time at which its create reported it.
type placedAt struct {
	cluster.Placed
	at time.Time
}

// heldClaim is a claim that was granted.
type heldClaim struct {
	holder  string
	machine string
	made    bool // of a name: its machine was made
	until   time.Time
	key     *catalog.Claim
}

// NewDecider makes the decider of this member.
func NewDecider(d Directory, k Keys) *Decider {
	return &Decider{directory: d, keys: k, held: map[string]*heldClaim{},
		placed: map[string][]placedAt{}}
}

// Decide answers a claim.
func (d *Decider) Decide(ctx context.Context, c cluster.Claim) (cluster.Claimed, error) {
	switch c.Step {
	case cluster.ClaimTake:
		return d.takeClaim(ctx, c)
	case cluster.ClaimSettle, cluster.ClaimDrop:
		return d.endClaim(c), nil
	case cluster.ClaimLook:
		return cluster.Claimed{Machine: d.keys.BoundKey(c.App, c.Value)}, nil
	}
	return cluster.Claimed{}, fault.New(fault.Unimplemented, cluster.CodeClaim, "this souk does not know the step "+
		"%q of a claim; upgrade it",
		clipText(string(c.Step), 40))
}

func claimKey(c cluster.Claim) string { return string(c.Kind) + "/" + c.App + "/" + c.Value }

func (d *Decider) takeClaim(ctx context.Context, c cluster.Claim) (cluster.Claimed, error) {
	var known string // the machine that has the name
	if c.Kind == cluster.ClaimName {
		var err error
		if known, err = d.directory.Named(ctx, c.App, c.Value); err != nil {
			return cluster.Claimed{}, err
		}
	}
	made, err := d.madeUnderKey(ctx, c)
	if err != nil {
		return cluster.Claimed{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.sweepClaims(now)
	h := d.held[claimKey(c)]
	if h != nil && (h.isOver(now, c) || h.made && d.directory.Gone(h.machine)) {
		d.dropClaim(claimKey(c), h, cluster.MayBeMade)
		h = nil
	}
	switch {
	case h != nil && h.holder != c.Holder:
		return cluster.Claimed{Machine: h.machine, Made: h.made}, nil
	case known != "" && known != c.Machine && known != c.Over:
		return cluster.Claimed{Machine: known, Made: true}, nil
	case h != nil:
		h.until = now.Add(cluster.ClaimLife) // the create asks again: the first answer was lost
		return d.grantedClaim(h, c, now), nil
	case len(d.held) >= maxClaims:
		return cluster.Claimed{}, &fault.Error{Kind: fault.Exhausted, Code: codeTooManyClaims, RetryAfter: time.Second,
			Text: "65536 named creates are under way or just over, the most that are remembered; try again in a second"}
	}
	h = &heldClaim{holder: c.Holder, machine: c.Machine, until: now.Add(cluster.ClaimLife)}
	if c.Kind == cluster.ClaimKey {
		if made != nil {
			c.Machine = made.Machine
		}
		if h.key, err = d.keys.Claim(c.App, c.Value, c.Hash, c.Machine); err != nil {
			return cluster.Claimed{}, err
		}
		if h.machine = h.key.Machine; made != nil {
			h.key.Made, h.key.Bound = true, made.Mark.Bound()
		}
	}
	d.held[claimKey(c)] = h
	return d.grantedClaim(h, c, now), nil
}

// madeUnderKey returns the machine that was made under a key which is not bound here; nil where none is known. Another
// member may have decided the key before, if this one has just joined or the other is unreachable. Workers may not have
// reported that machine yet, so it asks them, unless the client says that the key is new. A worker that was dead before
// the key was drawn is not asked.
func (d *Decider) madeUnderKey(ctx context.Context, c cluster.Claim) (*Keyed, error) {
	if c.Kind != cluster.ClaimKey || cluster.IsOwnID(c.Value) || d.keys.BoundKey(c.App, c.Value) != "" {
		return nil, nil
	}
	var drawn time.Time
	if c.Age > 0 {
		drawn = time.Now().Add(-c.Age)
	}
	made, err := d.directory.Keyed(ctx, c.App, cluster.HashKey(c.App, c.Value), c.Instead && !c.New, drawn)
	switch {
	case err != nil:
		return nil, &fault.Error{Kind: fault.Unavailable, Code: codeKeyOpen, RetryAfter: time.Second,
			Text: fmt.Sprintf("a machine may have been made with this key already, which cannot be checked now: %s; "+
				"ask again, or see what runs (souk ps) and use a new key", fault.As(err).Text)}
	case made == nil || time.Since(made.Mark.Bound()) >= catalog.KeyLife:
		return nil, nil
	case !made.Mark.Of(c.Hash):
		return nil, catalog.OtherRequest()
	}
	return made, nil
}

// grantedClaim is the answer to the create that has the claim.
func (d *Decider) grantedClaim(h *heldClaim, c cluster.Claim, now time.Time) cluster.Claimed {
	out := cluster.Claimed{Granted: true, Machine: h.machine}
	if h.key != nil {
		out.Made, out.Bound, out.Other = h.key.Made, h.key.Bound, h.key.Other
	}
	if c.Kind == cluster.ClaimSpread {
		d.forgetPlaced(c.App, now)
		for _, p := range d.placed[c.App] {
			out.Placed = append(out.Placed, p.Placed)
		}
	}
	return out
}

// notePlaced remembers machines that were made for a spread, for the next create of the app.
func (d *Decider) notePlaced(c cluster.Claim, now time.Time) {
	for _, p := range c.Placed {
		d.placed[c.App] = append(d.placed[c.App], placedAt{p, now})
	}
	if n := len(d.placed[c.App]) - cluster.MaxPlaced; n > 0 {
		d.placed[c.App] = d.placed[c.App][n:]
	}
}

// forgetPlaced drops machines after cluster.KeepClaim: by then their workers have reported them.
func (d *Decider) forgetPlaced(app string, now time.Time) {
	list := d.placed[app]
	n := 0
	for n < len(list) && now.Sub(list[n].at) >= cluster.KeepClaim {
		n++
	}
	if d.placed[app] = list[n:]; len(list) == n {
		delete(d.placed, app)
	}
}

// isOver reports whether a held claim blocks no other create any more. A key's claim is over when the same member
// claims the key for another create: a member runs one create of a key at a time (Claimant.Key), so its report that the
// previous one ended was lost.
func (h *heldClaim) isOver(now time.Time, c cluster.Claim) bool {
	next := c.Kind == cluster.ClaimKey && h.holder != c.Holder && memberOf(h.holder) == memberOf(c.Holder)
	return next || now.After(h.until) || h.made && h.machine == c.Over
}

// memberOf returns the member that a holder names: see Claimant.holderName.
func memberOf(holder string) string { return holder[strings.LastIndexByte(holder, '@')+1:] }

// endClaim enters how a create ended. The claim of a name stays for a while, since the directory may not know the
// machine yet.
func (d *Decider) endClaim(c cluster.Claim) cluster.Claimed {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := claimKey(c)
	h := d.held[key]
	if h == nil || h.holder != c.Holder {
		return cluster.Claimed{}
	}
	if c.Step == cluster.ClaimSettle && c.Kind == cluster.ClaimName {
		h.machine, h.made, h.until = c.Machine, true, time.Now().Add(cluster.KeepClaim)
		return cluster.Claimed{}
	}
	d.notePlaced(c, time.Now())
	came := c.Came
	if c.Step == cluster.ClaimDrop {
		came = cluster.NotMade
	}
	d.dropClaim(key, h, came)
	return cluster.Claimed{}
}

func (d *Decider) dropClaim(key string, h *heldClaim, came cluster.Creation) {
	h.key.End(came)
	delete(d.held, key)
}

// sweepClaims forgets expired claims. It walks all claims, once a second at most.
func (d *Decider) sweepClaims(now time.Time) {
	if now.Sub(d.swept) < time.Second {
		return
	}
	d.swept = now
	for app := range d.placed {
		d.forgetPlaced(app, now)
	}
	for key, h := range d.held {
		if now.After(h.until) {
			d.dropClaim(key, h, cluster.MayBeMade)
		}
	}
}
