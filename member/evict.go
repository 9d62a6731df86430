package member

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/mesh/gossip"
	"github.com/soukhq/souk/mesh/pki"
	"github.com/soukhq/souk/mesh/wire"
	"github.com/soukhq/souk/store/catalog"
)

// kindSecret is the kind of objects that are secrets, shared by the catalogs.
const (
	kindSecret    = registry.Kind("secret")
	kindOldSecret = registry.Kind("oldsecret")
)

// The steps of an eviction, in their order. Each looks at the present state and not at what earlier tries did, so
// asking again continues an interrupted eviction.
const (
	stepRemoved = "removed"
	stepTokens  = "tokens"
	stepKey     = "gossip-key"
	stepSecrets = "secrets"
)

// Evictions revoke all credentials on a member's stolen disk. Only the member with the CA makes them.
type Evictions struct {
	m       *Member
	tokens  *Tokens
	catalog *catalog.Catalog
}

// NewEvictions returns the evictions of a member's cluster.
func NewEvictions(m *Member, t *Tokens, c *catalog.Catalog) *Evictions { return &Evictions{m, t, c} }

// Evict does the steps that are due now, and reports its progress.
func (e *Evictions) Evict(ctx context.Context, id cluster.WorkerID, in api.EvictRequest) (api.MemberEviction, error) {
	out := api.MemberEviction{Member: id, Steps: []api.EvictionStep{}}
	if err := e.checkAuthority(); err != nil {
		return out, err
	}
	r, step, err := e.removeMember(id, in)
	if err != nil {
		return out, err
	}
	out.Steps = append(out.Steps, step)
	names := []string{}
	for _, t := range e.tokens.endedWith(id) {
		names = append(names, t.Name)
	}
	out.Steps = append(out.Steps, api.EvictionStep{Name: stepTokens, Done: true,
		Text: "its tokens are no longer accepted: " + listNames(names)})
	step, err = e.rotateKey(ctx, r, in.Force)
	if err != nil {
		return out, err
	}
	if out.Steps = append(out.Steps, step); !step.Done {
		return out, nil
	}
	all, anew, err := e.resealSecrets()
	if err != nil {
		return out, err
	}
	out.Steps = append(out.Steps, api.EvictionStep{Name: stepSecrets, Done: true,
		Text: fmt.Sprintf("%d secrets travel sealed with the new key, %d of them sealed anew now", all, anew)})
	out.Done = true
	return out, nil
}

func listNames(names []string) string {
	if len(names) == 0 {
		return "none are known"
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

// checkAuthority returns an error unless this member has the CA; the error says which member has it.
func (e *Evictions) checkAuthority() error { return lacksAuthority(e.m) }

// lacksAuthority returns an error if a member does not hold the cluster's CA.
func lacksAuthority(m *Member) error {
	if m.issuer != nil {
		return nil
	}
	var ids []string
	for _, o := range m.cluster.Objects().List(KindIssuer) {
		ids = append(ids, o.Key)
	}
	return fault.New(fault.Precondition, codeAuthority,
		"member %s does not hold the cluster's CA, which this needs; ask a member that holds it: %s", m.ID(),
		listNames(ids))
}

// removeMember writes the member's removal, unless it was removed already.
func (e *Evictions) removeMember(id cluster.WorkerID, in api.EvictRequest) (r cluster.Removal, s api.EvictionStep,
	err error) {
	r, removed := e.m.removalOf(string(id))
	switch {
	case removed && r.Rejoined.IsZero() && e.m.removedFor(id):
	case removed && !in.Again && id != e.m.ID():
		return r, s, fault.New(fault.Precondition, codeRejoined,
			"%s was removed on %s and has joined again since; to evict it once more, pass --again", id,
			r.At.UTC().Format(time.RFC3339))
	default:
		r = cluster.Removal{Member: id, By: in.By, Reason: in.Reason, At: e.m.o.Now().UTC()}
		if err := e.m.Remove(r, true); err != nil {
			return r, s, err
		}
		r, _ = e.m.removalOf(string(id))
	}
	since := r.At.UTC().Format(time.RFC3339)
	return r, api.EvictionStep{Name: stepRemoved, Done: true,
		Text: fmt.Sprintf("%s is removed since %s; its certificate is refused", id, since)}, nil
}

// rotateKey rotates the gossip key until it is one made after the removal. A key of a rotation that began before may
// have reached the evicted member, so it first completes that rotation and then begins another.
func (e *Evictions) rotateKey(ctx context.Context, r cluster.Removal, force bool) (api.EvictionStep, error) {
	ca, s := e.m.issuer, api.EvictionStep{Name: stepKey}
	k, err := ca.Gossip()
	if err == nil && force && k.Step != "" {
		k, err = ca.AdvanceGossip(k.Generation)
	}
	after := k.Made.After(r.At)
	if err == nil && k.Step == "" && !after {
		made := e.m.o.Now()
		if !made.After(r.At) { // by the remover's clock
			made = r.At.Add(time.Millisecond)
		}
		k, err = ca.RotateGossip(made)
		after = true
	}
	if fault.Is(err, fault.Conflict) { // another process has taken the step
		k, err = ca.Gossip()
	}
	if err != nil {
		return s, err
	}
	select {
	case e.m.keysDue <- struct{}{}:
	default:
	}
	taken := e.m.identity.GossipKeys().Generation >= k.Generation
	if taken && k.Step == "" { // reachable members drop the old key now
		gossipKeys{e.m}.allHaveKeys(ctx, k)
	}
	s.Waiting = e.m.holders.waiting(k.Generation)
	switch {
	case k.Step == "" && after && taken && (len(s.Waiting) == 0 || force):
		s.Done, s.Text = true, "the old key of gossip opens nothing any more"
	case !after:
		s.Text = "another key, made before the removal, is on its way: that rotation is ended first"
	case k.Step == pki.StepInstalled:
		s.Text = "the new key of gossip is made; members learn to read it"
	case k.Step == pki.StepUsed:
		s.Text = "every member reads the new key; now they write with it"
	default:
		s.Text = "every member writes with the new key; now they forget the old one"
	}
	return s, nil
}

// resealSecrets seals the secrets' objects with the current gossip key. A concurrent update of a secret wins.
func (e *Evictions) resealSecrets() (all, anew int, err error) {
	objects := e.m.cluster.Objects()
	for _, o := range append(objects.List(kindSecret), objects.List(kindOldSecret)...) {
		sealed, changed, failed := e.catalog.Secrets.Resealed(o.Key, o.Payload)
		if fault.Is(failed, fault.NotFound) {
			continue // its app is gone
		}
		if all++; failed == nil && changed {
			anew++
			failed = objects.Amend(o, sealed)
		}
		err = errors.Join(err, failed)
	}
	return all, anew, err
}

// Check tests which credentials on a removed member's disk still work: at every member it tries the tokens, a
// certificate like the removed one, and the old gossip keys.
func (e *Evictions) Check(ctx context.Context, id cluster.WorkerID) (api.EvictionCheck, error) {
	out := api.EvictionCheck{Member: id, OK: true, Left: []string{}}
	if err := e.checkAuthority(); err != nil {
		return out, err
	}
	r, removed := e.m.removalOf(string(id))
	if !removed {
		return out, fault.New(fault.Precondition, codeNotRemoved, "%s was not removed; evict it first", id)
	}
	thief, err := e.m.issuer.Imitate(pki.Name{ID: string(id), Roles: []pki.Role{pki.Gateway, pki.Worker}}, r.At)
	if err != nil {
		return out, err
	}
	t := tryer{e.m, id, wire.NewClient(thief, e.m.o.Now), e.tokens.endedWith(id)}
	states := gossipKeys{e.m}.certified()
	states[e.m.ID()] = cluster.Member{ID: e.m.ID(), State: cluster.MemberAlive, API: e.m.Address(),
		Addr: e.m.GossipAddress()}
	var all errgroup.Group
	all.SetLimit(16)
	found := make(chan []api.EvictionTry, len(states))
	for _, x := range states {
		all.Go(func() error { found <- t.tryAt(ctx, x); return nil })
	}
	_ = all.Wait() // each result has its own error
	close(found)
	for tries := range found {
		out.Tries = append(out.Tries, tries...)
	}
	slices.SortStableFunc(out.Tries, func(a, b api.EvictionTry) int { return cmp.Compare(a.At, b.At) })
	out.OK = !slices.ContainsFunc(out.Tries, func(x api.EvictionTry) bool { return !x.Refused })
	out.Left = append(out.Left, e.leftToDo(r)...)
	return out, nil
}

// leftToDo lists the steps that no command can do.
func (e *Evictions) leftToDo(r cluster.Removal) (left []string) {
	if _, was := e.m.cluster.Objects().Get(KindIssuer, string(r.Member)); was {
		left = append(left, fmt.Sprintf("the disk of %s held the cluster's authority: who has it can make members; "+
			"make a new one, and let every member join anew (docs/break-glass.md)", r.Member))
	}
	var read []string
	for _, o := range e.m.cluster.Objects().List(kindSecret) {
		var row struct {
			UpdatedAt time.Time `json:"updated_at"`
		}
		if json.Unmarshal(o.Payload, &row) == nil && row.UpdatedAt.Before(r.At) {
			read = append(read, o.Key)
		}
	}
	if len(read) > 0 {
		left = append(left,
			fmt.Sprintf("the values of %d secrets were on its disk: set them anew (souk secrets set): %s", len(read),
				listNames(read)))
	}
	return left
}

// tryer tries what the holder of a member's disk could try.
type tryer struct {
	m      *Member
	id     cluster.WorkerID
	thief  *wire.Client
	tokens []api.Token
}

// tryAt tries everything at one member.
func (t tryer) tryAt(ctx context.Context, x cluster.Member) (out []api.EvictionTry) {
	for _, what := range []struct {
		name string
		try  func(context.Context, cluster.Member) (refused bool, have string)
	}{{"tokens", t.tryTokens}, {"certificate", t.tryCertificate}, {"gossip-key", t.tryKeys}} {
		try := api.EvictionTry{At: x.ID, What: what.name}
		if !x.Heard() {
			try.Have = fmt.Sprintf(
				"not tried: %s cannot be heard; it refuses once it hears of the removal, so try again", x.ID)
		} else {
			try.Refused, try.Have = what.try(ctx, x)
		}
		out = append(out, try)
	}
	return out
}

func (t tryer) tryTokens(ctx context.Context, x cluster.Member) (refused bool, have string) {
	digests := make([]string, len(t.tokens))
	for i, k := range t.tokens {
		digests[i] = k.Digest
	}
	in := t.m.tokens.Load().letIn(digests)
	if x.ID != t.m.ID() {
		f, known := t.m.Other(x.ID)
		if !known {
			return false, "not tried: nothing is known of how to reach it"
		}
		var err error
		if in, err = f.LetsIn(ctx, digests); err != nil {
			return false, "not tried: " + err.Error()
		}
	}
	if len(in) > 0 {
		return false, fmt.Sprintf("%d of %d tokens are let in", len(in), len(digests))
	}
	return true, fmt.Sprintf("%d tokens are refused", len(digests))
}

func (t tryer) tryCertificate(ctx context.Context, x cluster.Member) (refused bool, have string) {
	_, err := t.thief.WhoIs(ctx, x.API, string(x.ID))
	switch {
	case err == nil:
		return false, "a certificate of before the removal is taken"
	case fault.CodeOf(err) == fault.CodeRemoved:
		return true, "a certificate of before the removal is refused"
	}
	return false, "not tried: " + err.Error()
}

// mostKeys bounds how many old gossip keys are tried, the newest first.
const mostKeys = 4

func (t tryer) tryKeys(ctx context.Context, x cluster.Member) (refused bool, have string) {
	k := t.m.identity.GossipKeys()
	if ours, err := gossip.Knock(ctx, x.Addr, k.Keys[0]); !ours {
		return false, fmt.Sprintf("not tried: it does not answer who has the new key (%v)", err)
	}
	old := k.All()[1:]
	old = old[:min(len(old), mostKeys)]
	for _, key := range old {
		if answered, _ := gossip.Knock(ctx, x.Addr, key); answered {
			return false, "a key of before opens its gossip"
		}
	}
	return true, fmt.Sprintf("the newest %d keys of before open nothing", len(old))
}
