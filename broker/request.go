package broker

import (
	"cmp"
	"context"
	"slices"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// resolveRequest makes the placement request of an order: its launch's demands, with all names resolved.
func (b *Broker) resolveRequest(ctx context.Context, o *Order) error {
	p := o.Purchases[0]
	launch, req := p.Launch, &p.Request
	req.AskFor(launch.Config)
	req.Start = !launch.SkipLaunch
	sched := b.schedulingTerms(o)
	if sched != nil {
		req.Scheduling = *sched
	}
	for _, x := range o.Purchases {
		x.Launch.Scheduling = sched
	}
	if err := checkStrategy(req.Scheduling.Strategy); err != nil {
		return err
	}
	req.AskForRuntime(launch.Config)
	req.AskForUser(launch.UnixUser)
	if o.Replaces != nil {
		elsewhere := cluster.Requirement{Attribute: "worker", Op: cluster.Unequal,
			Values: []cluster.Value{cluster.Text(string(o.Replaces.Worker))}}
		req.Scheduling.Require = append(slices.Clone(req.Scheduling.Require), elsewhere)
	}
	if v := launch.MinSecretsVersion; v != nil {
		if err := b.apps.SecretsReach(o.App, *v); err != nil {
			return err
		}
	}
	var err error
	if req.Volumes, err = b.mountedVolumes(ctx, o.App, launch, o.gone); err != nil {
		return err
	}
	if err := b.FreeOutside(o.App, launch.Config); err != nil {
		return err
	}
	if len(req.Volumes) == 0 || launch.Region != "" { // otherwise the volume decides the region
		if req.Regions, err = b.Regions(ctx, launch.Region); err != nil {
			return err
		}
	}
	*req = b.fleet.Resolve(ctx, *req)
	if o.At != "" { // after Resolve: a mandatory spread must count the other workers, too
		there := cluster.Requirement{Attribute: "worker", Op: cluster.Equal,
			Values: []cluster.Value{cluster.Text(string(o.At))}}
		req.Scheduling.Require = append(slices.Clone(req.Scheduling.Require), there)
	}
	o.shareOut()
	return nil
}

// schedulingTerms returns the scheduling of the order's launch, with its app's eviction budget if the launch names
// none. nil is the default. The client's launch is not changed.
func (b *Broker) schedulingTerms(o *Order) *machine.Scheduling {
	given := o.Launch.Scheduling
	if given != nil && given.EvictionBudget != nil {
		return given
	}
	budget := b.apps.EvictionBudget(o.App)
	if budget == nil {
		return given
	}
	var with machine.Scheduling
	if given != nil {
		with = *given
	}
	with.EvictionBudget = budget
	return &with
}

// MountedVolumes returns the ids of the volumes that a launch mounts, which must be the app's own and free.
func (b *Broker) MountedVolumes(ctx context.Context, app string, launch *machine.Launch) ([]string, error) {
	return b.mountedVolumes(ctx, app, launch, nil)
}

// mountedVolumes is MountedVolumes as if the machines in gone did not exist.
func (b *Broker) mountedVolumes(ctx context.Context, app string, launch *machine.Launch,
	gone []string) ([]string, error) {
	if len(launch.Config.Mounts) == 0 {
		return nil, nil
	}
	volumes, err := b.directory.Volumes(ctx, app) // the mounted ones may be known despite an error
	var ids []string
	for _, m := range launch.Config.Mounts {
		i := slices.IndexFunc(volumes, func(v machine.Volume) bool { return v.ID == m.Volume })
		if i < 0 && err != nil {
			return nil, err
		}
		if i < 0 {
			return nil, fault.New(fault.NotFound, fault.CodeVolumeNotFound,
				"volume not found: this app has no volume %s; create it first", clipText(m.Volume, 80))
		}
		if holder := volumes[i].AttachedMachine; holder != nil && *holder != launch.ID &&
			!slices.Contains(gone, *holder) {
			return nil, fault.New(fault.Precondition, lifecycle.CodeVolumeAttached,
				"volume %s is attached to machine %s; mount another, or destroy that machine "+
					"first", m.Volume, *holder)
		}
		ids = append(ids, m.Volume)
	}
	return ids, nil
}

// FreeOutside refuses a config with a service whose host name or outside port another app has already: one of the two
// would lose its requests.
func (b *Broker) FreeOutside(app string, c *machine.Config) error {
	host, port, by := b.fleet.InUse(app, c.RoutedServices())
	switch {
	case by == "":
		return nil
	case host == "":
		return fault.New(fault.Conflict, fault.CodePortInUse,
			"port %d of the proxies is app %s's; choose another, or destroy its machines first",
			port, by)
	}
	return fault.New(fault.Conflict, api.CodeHostInUse,
		"requests for %s go to app %s; choose another name, or destroy its machines first",
		clipText(host, 100), by)
}

// chooseStrategy sets an order's policy and strategy: the launch's own strategy, else its policy's.
func (b *Broker) chooseStrategy(o *Order) error {
	first := o.Purchases[0]
	switch {
	case o.Bid != nil:
		first.Policy = placement.Policy{Name: bidPolicy}
		o.name, o.strategy = BidStrategy, Strategy(bid{b})
		if mustSpread(o.Purchases) {
			o.strategy = alone{b, o.strategy}
		}
		return nil
	case o.Gang != nil:
		o.name, o.strategy = GangStrategy, b.gang
	}
	policy, err := b.policies.PolicyFor(&first.Request)
	if err != nil {
		return err
	}
	for _, p := range o.Purchases {
		p.Policy = policy
	}
	if o.strategy == nil {
		o.name = cmp.Or(first.Request.Scheduling.Strategy, policy.Strategy)
		o.strategy = b.strategies[o.name]
		switch {
		case o.name == "" && len(first.Request.Scheduling.Spread) > 0:
			o.name, o.strategy = Batching, b.spread
		case o.name == "":
			o.name, o.strategy = Direct, b.strategies[Direct]
		case mustSpread(o.Purchases[:1]):
			o.strategy = alone{b, o.strategy}
		}
	}
	if o.name != Direct && o.Gang == nil {
		first.Request.Scheduling.Strategy = o.name // as the decision records it
	}
	return nil
}

// checkStrategy refuses unknown strategy names.
func checkStrategy(name string) error {
	switch name {
	case "", Direct, Race, Shared, Batching, FairShare:
		return nil
	}
	return fault.New(fault.Invalid, codeStrategy, "there is no strategy %q; use %s, %s, %s, %s or %s",
		clipText(name, 60),
		Direct, Race, Shared, Batching, FairShare)
}

// addFunds enters in an order's request which namespace pays and how much it has left, for all its machines together.
// If that is not enough it asks on lent terms, if the namespace's budget allows it; otherwise the judge will refuse.
func (b *Broker) addFunds(ctx context.Context, o *Order) error {
	namespace, account, err := b.funds.Account(ctx, o.App)
	if err != nil {
		return err
	}
	req := &o.Purchases[0].Request
	req.Namespace, req.Funds, req.Scheduling.Lent = namespace, nil, false
	if o.capped = ""; account != nil && (req.Start || len(account.Max) > 0) {
		if len(account.Max) > 0 {
			o.capped = namespace
		}
		rate, more := 0.0, req.Resources.Scale(int64(len(o.Purchases)), 1)
		own := *account // a copy that counts the rehearsal's machines as used
		own.Used = own.Used.Add(o.occupied)
		account = &own
		if req.Start {
			rate = b.funds.Price().Rate(req.Resources, req.Scheduling)*float64(len(o.Purchases)) + o.ahead
		}
		req.Funds = account.Means(namespace, rate, more)
		if !req.Funds.Enough() && req.Funds.Beyond() == nil && account.Budget.Lend {
			req.Scheduling.Lent, req.Funds = true, account.Means(namespace, 0, more)
		}
	}
	o.setLent(req.Scheduling.Lent)
	o.shareOut()
	return nil
}

// setLent sets on what terms the order's machines are to run. The client's launch is not changed.
func (o *Order) setLent(lent bool) {
	terms := o.Purchases[0].Launch.Scheduling
	if terms == nil && !lent || terms != nil && terms.Lent == lent {
		return
	}
	var with machine.Scheduling
	if terms != nil {
		with = *terms
	}
	with.Lent = lent
	for _, p := range o.Purchases {
		p.Launch.Scheduling = &with
	}
}

// explainUnpaid prefixes an error with the fact that the namespace cannot pay, if that is the case.
func explainUnpaid(err error, req *placement.Request) error {
	f := fault.As(err)
	if f == nil || f.Kind != fault.Exhausted {
		return err
	}
	e := *f
	switch {
	case !req.Funds.Enough():
		wanted, had := req.Funds.Clause()
		e.Code, e.Scope, e.RetryAfter = fault.CodeQuota, fault.ScopeQuota, req.Funds.Wait
		less := "ask for less or a cheaper band"
		if req.Funds.Beyond() != nil {
			less = "ask for less"
		}
		e.Text = "over the allowed quota: wanted " + wanted + ", had " + had + "; " + less +
			", stop something, or have the quota raised (souk quota show " + req.Namespace + ")"
	case req.Scheduling.Lent:
		e.Text += "; namespace " + req.Namespace + " cannot pay for it now (souk quota show " + req.Namespace +
			"), so it may only have room that is idle"
	default:
		return err
	}
	return &e
}
