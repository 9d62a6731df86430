package catalog

import (
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/policy"
	"github.com/soukhq/souk/fault"
)

// PolicyChoice is the policies that apply unless an app chooses another.
type PolicyChoice struct {
	Default string `json:"default,omitempty"` // stored as "" for policy.DefaultName
	Shadow  string `json:"shadow,omitempty"`  // "": none
}

// Policy is a policy as it applies now.
type Policy struct {
	Name        string
	Version     int // 0: it comes with souk
	Description string
	Summary     string // its filters, and its scores with their weights
	Cost        uint64 // of its expressions on one worker at most, in CEL's units
	Default     bool
	Shadow      bool
	Apps        []string // apps that chose it
	At          time.Time
	Of          int    // of a rollback: the version that was restored
	Broken      string // why this souk cannot load its text, so that the default applies instead
}

// Policies stores the placement policies, and the choice of those that apply.
type Policies struct {
	*engine
	table  *policyTable
	choice *rows[PolicyChoice]
	apps   *Apps
}

func newPolicies(e *engine) *Policies {
	c := &Policies{engine: e, table: newPolicyTable(),
		choice: newRows(bucketSetting, onlyKey[PolicyChoice](keyPolicies))}
	e.add(bucketPolicy, bucket{table: c.table})
	e.add(bucketSetting, bucket{table: c.choice})
	return c
}

// PolicyChoice returns the default and the shadow.
func (c *Policies) PolicyChoice() PolicyChoice {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.policyChoice()
}

func (c *Policies) policyChoice() PolicyChoice {
	out := c.choice.all[keyPolicies]
	if out.Default == "" {
		out.Default = policy.DefaultName
	}
	return out
}

// ChoosePolicies sets the default and the shadow; nil keeps one as it is, "" resets it.
func (c *Policies) ChoosePolicies(def, shadow *string) error {
	c.write.Lock()
	defer c.write.Unlock()
	choice := c.choice.all[keyPolicies]
	for _, set := range []struct {
		to  *string
		row *string
	}{{def, &choice.Default}, {shadow, &choice.Shadow}} {
		if set.to == nil {
			continue
		}
		if err := c.table.usable(*set.to); err != nil {
			return err
		}
		*set.row = *set.to
	}
	return c.commit(c.choice.put(keyPolicies, choice))
}

// SetPolicy sets the placement policy of an app; "" is the default.
func (c *Policies) SetPolicy(app, name string) error {
	return c.apps.updateApp(app, func(a *App) error {
		a.Policy = name
		return c.table.usable(name)
	})
}

// BoundPolicy returns a policy for use by one goroutine. If its file can no longer be loaded, it is the default policy
// instead.
func (c *Policies) BoundPolicy(name string) (placement.Policy, error) {
	c.mu.RLock()
	found, v, there := c.table.find(name)
	c.mu.RUnlock()
	switch {
	case !there:
		return placement.Policy{}, fault.New(fault.Invalid, codePolicyUnknown,
			"there is no policy %q; \"souk policy ls\" lists them", fault.Clip(name, 80))
	case found.source == nil:
		p := placement.Default()
		p.Name, p.Version = name, v.Number
		return p, nil
	}
	var e *policy.Evaluator // only expressions need it
	if !found.source.Shared() {
		e = policy.NewEvaluator()
	}
	p := found.source.Bind(e)
	p.Version = v.Number
	return p, nil
}

// AllPolicies returns the policies by name.
func (c *Policies) AllPolicies() []Policy {
	c.mu.RLock()
	defer c.mu.RUnlock()
	names := slices.AppendSeq(slices.Collect(maps.Keys(c.table.shipped)), maps.Keys(c.table.live))
	slices.Sort(names)
	out := make([]Policy, 0, len(names))
	for _, name := range slices.Compact(names) {
		p, _ := c.policy(name)
		out = append(out, p)
	}
	return out
}

// Policy returns a policy as it applies now.
func (c *Policies) Policy(name string) (Policy, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.policy(name)
}

// policy returns a policy. The caller holds mu or write.
func (c *Policies) policy(name string) (Policy, error) {
	choice := c.policyChoice()
	found, v, there := c.table.find(name)
	if !there {
		return Policy{}, noPolicy(name)
	}
	out := Policy{Name: name, Version: v.Number, At: v.At, Of: v.Of, Broken: found.broken, Apps: []string{},
		Default: name == choice.Default, Shadow: name == choice.Shadow}
	if s := found.source; s != nil {
		out.Description, out.Summary, out.Cost = s.Description, s.Summary(), s.Cost
	}
	for _, a := range c.apps.rows.all {
		if a.Policy == name {
			out.Apps = append(out.Apps, a.Name)
		}
	}
	slices.Sort(out.Apps)
	return out, nil
}

// PolicyVersion returns a version of a policy, 0 for the newest, and the kept versions, oldest first. A policy that
// comes with souk has a text but no versions.
func (c *Policies) PolicyVersion(name string, number int) (v policy.Version, kept []policy.Version, err error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if s := c.table.shipped[name]; s != nil {
		if number != 0 {
			return v, nil, fault.New(fault.NotFound, policy.CodePolicyVersion,
				"policy %s comes with souk and has no versions", name)
		}
		return policy.Version{Policy: name, Text: s.Text}, nil, nil
	}
	v, err = c.table.store.Get(name, number)
	return v, c.table.store.Versions(name), err
}

// ApplyPolicy makes a file the next version of its policy. changed is false if the policy has this text already.
func (c *Policies) ApplyPolicy(text []byte) (name string, changed bool, err error) {
	s, err := policy.Load(text)
	if err != nil {
		return "", false, err
	}
	c.write.Lock()
	defer c.write.Unlock()
	if c.table.shipped[s.Name] != nil {
		return s.Name, false, shippedPolicy(s.Name)
	}
	v, changed, err := c.table.store.Next(s, time.Now().UTC())
	if err != nil || !changed {
		return s.Name, false, err
	}
	return s.Name, true, c.putVersion(v, s)
}

// RollbackPolicy restores an earlier version of a policy as the newest; to 0 is the previous one.
func (c *Policies) RollbackPolicy(name string, to int) error {
	c.write.Lock()
	defer c.write.Unlock()
	v, err := c.earlier(name, to, time.Now().UTC())
	if err != nil {
		return err
	}
	s, err := policy.Load([]byte(v.Text))
	if err != nil {
		return err
	}
	return c.putVersion(v, s)
}

// EarlierPolicy returns the text that RollbackPolicy would restore.
func (c *Policies) EarlierPolicy(name string, to int) (string, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	v, err := c.earlier(name, to, time.Time{})
	return v.Text, err
}

// earlier returns the version that restores an earlier one. The caller holds a lock.
func (c *Policies) earlier(name string, to int, at time.Time) (policy.Version, error) {
	if c.table.shipped[name] != nil {
		return policy.Version{}, fault.New(fault.Precondition, codePolicyShipped,
			"policy %s comes with souk and has no earlier version", name)
	}
	return c.table.store.Rollback(name, to, at)
}

// putVersion commits a version, and removes the oldest versions beyond the limit. The caller holds write.
func (c *Policies) putVersion(v policy.Version, s *policy.Source) error {
	batch := []change{c.table.put(v, compiled{source: s})}
	for _, old := range c.table.store.Excess(v.Policy) {
		batch = append(batch, c.table.remove(policyKey(old)))
	}
	return c.commit(batch...)
}

// PolicyInUse reports whether a policy is the default, the shadow or an app's.
func (c *Policies) PolicyInUse(name string) bool {
	p, err := c.Policy(name)
	return err == nil && p.inUse()
}

func (p Policy) inUse() bool { return p.Default || p.Shadow || len(p.Apps) > 0 }

// DeletePolicy removes a policy with all its versions. It refuses if the policy is in use.
func (c *Policies) DeletePolicy(name string) error {
	c.write.Lock()
	defer c.write.Unlock()
	if c.table.shipped[name] != nil {
		return fault.New(fault.Precondition, codePolicyShipped, "policy %s comes with souk and stays", name)
	}
	p, err := c.policy(name)
	switch {
	case err != nil:
		return err
	case p.inUse():
		return fault.New(fault.Precondition, codePolicyInUse,
			"policy %s is the default, the shadow or an app's; choose another there first", name)
	}
	var batch []change
	for _, v := range c.table.store.Versions(name) {
		batch = append(batch, c.table.remove(policyKey(v)))
	}
	return c.commit(batch...)
}
