package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/policy"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// policyTable is the table of the versions of policies, with the newest of each compiled.
type policyTable struct {
	store   policy.VersionStore
	shipped map[string]*policy.Source // policies that come with souk
	live    map[string]compiled       // the newest version of each, by name
}

// compiled is the compiled text of a policy.
type compiled struct {
	source *policy.Source // nil: it cannot be loaded
	broken string         // why it cannot be loaded
}

func compile(text string) compiled {
	s, err := policy.Load([]byte(text))
	if err != nil {
		return compiled{nil, err.Error()}
	}
	return compiled{s, ""}
}

func newPolicyTable() *policyTable {
	t := &policyTable{shipped: map[string]*policy.Source{}, live: map[string]compiled{}}
	for _, s := range policy.Builtins() {
		t.shipped[s.Name] = s
	}
	return t
}

func policyKey(v policy.Version) string { return fmt.Sprintf("%s/%08d", v.Policy, v.Number) }

func (t *policyTable) load(_ string, value []byte) error {
	var v policy.Version
	err := json.Unmarshal(value, &v)
	if err == nil {
		t.store.Put(v)
	}
	return err
}

// compileAll compiles the newest versions after loading.
func (t *policyTable) compileAll() {
	for _, name := range t.store.Names() {
		v, _ := t.store.Live(name)
		t.live[name] = compile(v.Text)
	}
}

func (t *policyTable) put(v policy.Version, c compiled) change {
	return change{fsm.Record{Bucket: bucketPolicy, Key: policyKey(v), Value: encode(v)}, func() {
		t.store.Put(v)
		if live, _ := t.store.Live(v.Policy); live.Number == v.Number {
			t.live[v.Policy] = c
		}
	}}
}

func (t *policyTable) accept(key string, value []byte) (x change, same bool, err error) {
	var v policy.Version
	if err = json.Unmarshal(value, &v); err == nil {
		err = t.check(key, v)
	}
	if err != nil {
		return x, false, unusable(err, bucketPolicy, key)
	}
	if old, err := t.store.Get(v.Policy, v.Number); err == nil && bytes.Equal(encode(old), encode(v)) {
		return x, true, nil
	}
	x = t.put(v, compile(v.Text))
	x.record.Value = value
	return x, false, nil
}

// check refuses a version that no member can have written.
func (t *policyTable) check(key string, v policy.Version) error {
	switch {
	case !machine.ValidLabel(v.Policy) || v.Number < 1:
		return fault.New(fault.Invalid, fault.CodePolicy,
			"%q cannot be version %d of a policy", fault.Clip(v.Policy, 80),
			v.Number)
	case t.shipped[v.Policy] != nil:
		return shippedPolicy(v.Policy)
	}
	return named(key, policyKey(v))
}

func (t *policyTable) has(key string) bool {
	name, digits, _ := strings.Cut(key, "/")
	number, err := strconv.Atoi(digits)
	is := func(v policy.Version) bool { return v.Number == number }
	return err == nil && slices.ContainsFunc(t.store.Versions(name), is)
}

func (t *policyTable) remove(key string) change {
	name, digits, _ := strings.Cut(key, "/")
	number, _ := strconv.Atoi(digits)
	return change{fsm.Record{Bucket: bucketPolicy, Key: key}, func() {
		before, _ := t.store.Live(name)
		t.store.Remove(name, number)
		switch live, any := t.store.Live(name); {
		case !any:
			delete(t.live, name)
		case live.Number != before.Number:
			t.live[name] = compile(live.Text)
		}
	}}
}

// find returns a compiled policy, and its newest version.
func (t *policyTable) find(name string) (c compiled, v policy.Version, there bool) {
	if s := t.shipped[name]; s != nil {
		return compiled{source: s}, v, true
	}
	v, _ = t.store.Live(name)
	c, there = t.live[name]
	return c, v, there
}

// usable refuses the choice of a policy that is missing or broken; "" resets the choice.
func (t *policyTable) usable(name string) error {
	if c, _, _ := t.find(name); name != "" && c.source == nil {
		return noPolicy(name)
	}
	return nil
}

func noPolicy(name string) error {
	return fault.New(fault.NotFound, policy.CodePolicyNotFound,
		"there is no policy %q; \"souk policy ls\" lists them", fault.Clip(name, 80))
}

func shippedPolicy(name string) error {
	return fault.New(fault.Conflict, codePolicyShipped,
		"policy %s comes with souk and does not change; give yours another name", name)
}
