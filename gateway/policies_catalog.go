package gateway

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fsm"
	"github.com/soukhq/souk/placement"
	"github.com/soukhq/souk/policy"
)

// The catalog's buckets of policies.
const (
	bucketPolicy  = "policy"  // name/version
	bucketSetting = "setting" // one row: settingPolicies
)

const settingPolicies = "policies"

// policyChoice is which policies are in force where nobody chose another.
type policyChoice struct {
	Default string `json:"default,omitempty"` // "" is stored for policy.DefaultName
	Shadow  string `json:"shadow,omitempty"`  // "": none
}

// policies is what the catalog knows of policies.
type policies struct {
	shelf   policy.Shelf
	live    map[string]*policy.Source // of the newest version of each, and what comes with souk
	shipped map[string]bool
	broken  map[string]string // of those whose stored text this souk cannot load: why
	choice  policyChoice
}

func newPolicies() policies {
	p := policies{live: map[string]*policy.Source{}, shipped: map[string]bool{}, broken: map[string]string{}}
	for _, s := range policy.Builtins() {
		p.live[s.Name], p.shipped[s.Name] = s, true
	}
	return p
}

func policyKey(v policy.Version) string { return fmt.Sprintf("%s/%08d", v.Policy, v.Number) }

func (c *Catalog) loadPolicy(r fsm.Record) error {
	var v policy.Version
	err := json.Unmarshal(r.Value, &v)
	if err == nil {
		c.policies.shelf.Put(v)
	}
	return err
}

// compilePolicies loads the newest versions. One that this souk cannot load is told, and the default stands in for it.
func (c *Catalog) compilePolicies() {
	for _, name := range c.policies.shelf.Names() {
		v, _ := c.policies.shelf.Live(name)
		s, err := policy.Load([]byte(v.Text))
		if err != nil {
			c.policies.broken[name] = err.Error()
			continue
		}
		c.policies.live[name] = s
	}
}

// PolicyChoice gives the default and the shadow.
func (c *Catalog) PolicyChoice() policyChoice {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := c.policies.choice
	if out.Default == "" {
		out.Default = policy.DefaultName
	}
	return out
}

// AppPolicy gives the policy that an app chose; "" is none.
func (c *Catalog) AppPolicy(app string) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.apps[app].Policy
}

// BoundPolicy gives a policy ready for one goroutine. One whose file cannot be loaded any more places as the default does.
func (c *Catalog) BoundPolicy(name string) (placement.Policy, error) {
	c.mu.RLock()
	s, v, broken := c.policies.find(name)
	c.mu.RUnlock()
	switch {
	case broken != "":
		p := placement.Default()
		p.Name, p.Version = name, v.Number
		return p, nil
	case s == nil:
		return placement.Policy{}, fault.New(fault.Invalid, "policy_unknown", "there is no policy %q; \"souk policy ls\" lists them", clip(name, 80))
	}
	var e *policy.Evaluator // needed by expressions alone
	if !s.Shared() {
		e = policy.NewEvaluator()
	}
	p := s.Bind(e)
	p.Version = v.Number
	return p, nil
}

func (p *policies) find(name string) (s *policy.Source, v policy.Version, broken string) {
	v, _ = p.shelf.Live(name)
	return p.live[name], v, p.broken[name]
}

// Policies lists all policies by name.
func (c *Catalog) Policies() []policyInfo {
	c.mu.RLock()
	names := slices.Sorted(maps.Keys(c.policies.live))
	for name := range c.policies.broken {
		names = append(names, name)
	}
	c.mu.RUnlock()
	slices.Sort(names)
	out := make([]policyInfo, 0, len(names))
	for _, name := range slices.Compact(names) {
		if info, err := c.policyInfo(name); err == nil {
			out = append(out, info)
		}
	}
	return out
}

func (c *Catalog) policyInfo(name string) (policyInfo, error) {
	choice := c.PolicyChoice()
	c.mu.RLock()
	defer c.mu.RUnlock()
	s, v, broken := c.policies.find(name)
	if s == nil && broken == "" {
		return policyInfo{}, noPolicy(name)
	}
	out := policyInfo{Name: name, Version: v.Number, At: v.At, Of: v.Of, Broken: broken, Apps: []string{},
		Default: name == choice.Default, Shadow: name == choice.Shadow}
	if s != nil {
		out.Description, out.Summary, out.Cost = s.Description, s.Summary(), s.Cost
	}
	for _, a := range c.apps {
		if a.Policy == name {
			out.Apps = append(out.Apps, a.Name)
		}
	}
	slices.Sort(out.Apps)
	return out, nil
}

// PolicyText gives a version of a policy with its file; 0 is the newest.
func (c *Catalog) PolicyText(name string, version int) (policyText, error) {
	info, err := c.policyInfo(name)
	if err != nil {
		return policyText{}, err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := policyText{policyInfo: info, Versions: []policyVersion{}}
	if c.policies.shipped[name] {
		if version != 0 {
			return out, fault.New(fault.NotFound, "policy_version", "policy %s comes with souk and has no versions", name)
		}
		out.Text = c.policies.live[name].Text
		return out, nil
	}
	v, err := c.policies.shelf.Get(name, version)
	if err != nil {
		return out, err
	}
	out.Text, out.Version, out.At, out.Of = v.Text, v.Number, v.At, v.Of
	for _, v := range c.policies.shelf.Versions(name) {
		out.Versions = append(out.Versions, policyVersion{v.Number, v.At, v.Of})
	}
	return out, nil
}

// ApplyPolicy puts a file in force as the next version of its policy. changed is false when it is in force already.
func (c *Catalog) ApplyPolicy(text []byte) (name string, changed bool, err error) {
	s, err := policy.Load(text)
	if err != nil {
		return "", false, err
	}
	c.write.Lock()
	defer c.write.Unlock()
	if c.policies.shipped[s.Name] {
		return s.Name, false, fault.New(fault.Conflict, "policy_shipped", "policy %s comes with souk and does not change; give yours another name", s.Name)
	}
	v, changed, err := c.policies.shelf.Next(s, time.Now().UTC())
	if err != nil || !changed {
		return s.Name, false, err
	}
	return s.Name, true, c.putVersion(v, s)
}

// RollbackPolicy puts an earlier version of a policy in force again; to 0 is the one before.
func (c *Catalog) RollbackPolicy(name string, to int) error {
	c.write.Lock()
	defer c.write.Unlock()
	if c.policies.shipped[name] {
		return fault.New(fault.Precondition, "policy_shipped", "policy %s comes with souk and has no earlier version", name)
	}
	v, err := c.policies.shelf.Rollback(name, to, time.Now().UTC())
	if err != nil {
		return err
	}
	s, err := policy.Load([]byte(v.Text))
	if err != nil {
		return err
	}
	return c.putVersion(v, s)
}

// putVersion commits a version. The caller holds write.
func (c *Catalog) putVersion(v policy.Version, s *policy.Source) error {
	batch := []fsm.Record{record(bucketPolicy, policyKey(v), v)}
	if kept := c.policies.shelf.Versions(v.Policy); len(kept) >= policy.MaxVersions {
		for _, old := range kept[:len(kept)-policy.MaxVersions+1] {
			batch = append(batch, fsm.Record{Bucket: bucketPolicy, Key: policyKey(old)})
		}
	}
	return c.commit(func() {
		c.policies.shelf.Put(v)
		c.policies.live[v.Policy] = s
		delete(c.policies.broken, v.Policy)
	}, batch...)
}

// policyInUse says whether a policy is the default, the shadow or an app's.
func (c *Catalog) policyInUse(name string) bool {
	info, err := c.policyInfo(name)
	return err == nil && (info.Default || info.Shadow || len(info.Apps) > 0)
}

// DeletePolicy takes a policy out with all its versions. One that is in use stays.
func (c *Catalog) DeletePolicy(name string) error {
	c.write.Lock()
	defer c.write.Unlock()
	versions := c.policies.shelf.Versions(name)
	switch {
	case c.policies.shipped[name]:
		return fault.New(fault.Precondition, "policy_shipped", "policy %s comes with souk and stays", name)
	case len(versions) == 0:
		return noPolicy(name)
	case c.policyInUse(name):
		return fault.New(fault.Precondition, "policy_in_use", "policy %s is the default, the shadow or an app's; choose another there first", name)
	}
	var batch []fsm.Record
	for _, v := range versions {
		batch = append(batch, fsm.Record{Bucket: bucketPolicy, Key: policyKey(v)})
	}
	return c.commit(func() {
		c.policies.shelf.Drop(name)
		delete(c.policies.live, name)
		delete(c.policies.broken, name)
	}, batch...)
}

// ChoosePolicies sets the default and the shadow; nil leaves one as it is, "" gives it up.
func (c *Catalog) ChoosePolicies(def, shadow *string) error {
	c.write.Lock()
	defer c.write.Unlock()
	choice := c.policies.choice
	for _, set := range []struct {
		to  *string
		row *string
	}{{def, &choice.Default}, {shadow, &choice.Shadow}} {
		if set.to == nil {
			continue
		}
		if s, _, broken := c.policies.find(*set.to); *set.to != "" && (s == nil || broken != "") {
			return noPolicy(*set.to)
		}
		*set.row = *set.to
	}
	return c.commit(func() { c.policies.choice = choice }, record(bucketSetting, settingPolicies, choice))
}

// SetAppPolicy sets the policy of an app; "" is the default.
func (c *Catalog) SetAppPolicy(app, name string) error {
	c.write.Lock()
	defer c.write.Unlock()
	a, ok := c.apps[app]
	if !ok {
		return noApp()
	}
	if s, _, broken := c.policies.find(name); name != "" && (s == nil || broken != "") {
		return noPolicy(name)
	}
	a.Policy = name
	return c.commit(func() { c.apps[app] = a }, record(bucketApp, app, a))
}
