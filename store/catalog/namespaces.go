package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/soukhq/souk/core/defaults"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Namespace is a namespace as stored. The default one exists without a row.
type Namespace struct {
	Name      string        `json:"name"`
	CreatedAt time.Time     `json:"created_at,omitzero"`
	Budget    *quota.Budget `json:"budget,omitempty"` // nil: no limit
	Weight    float64       `json:"weight,omitempty"` // of its fair share; 0 is 1
	Max       quota.Caps    `json:"max,omitempty"`    // how much it may occupy at once
}

func (n Namespace) isDefault() bool { return n.Name == quota.Default }

// Namespaces stores the namespaces of apps, their budgets, the price of resources, and the default schedulers.
type Namespaces struct {
	*engine
	rows       *rows[Namespace]
	prices     *rows[quota.Price]
	schedulers *rows[defaults.Row]
	apps       *Apps
}

func newNamespaces(e *engine) *Namespaces {
	c := &Namespaces{engine: e, rows: newRows(bucketNamespace, checkNamespace),
		prices: newRows(bucketPrice, checkPrice), schedulers: newRows(bucketScheduler, checkSchedulerRow)}
	e.add(bucketNamespace, bucket{table: c.rows, beside: c.besideNamespace})
	e.add(bucketPrice, bucket{table: c.prices})
	e.add(bucketScheduler, bucket{table: c.schedulers})
	return c
}

// besideNamespace removes the default scheduler of a namespace that is removed, here or by a member that has not heard of
// it: a later namespace of that name would have it otherwise.
func (c *Namespaces) besideNamespace(name string, value []byte) []change {
	if key := schedulerKey(name); value == nil && c.schedulers.has(key) {
		return []change{c.schedulers.remove(key)}
	}
	return nil
}

func checkNamespace(key string, n Namespace) error {
	if !machine.ValidLabel(n.Name) {
		return fault.New(fault.Invalid, codeNamespaceName, "%q cannot be a namespace's name", fault.Clip(n.Name, 80))
	}
	return named(key, n.Name)
}

// namespace returns a namespace by its name, or an error if it does not exist; "" is the default one. The caller holds
// mu or write.
func (c *Namespaces) namespace(name string) (Namespace, error) {
	name = cmp.Or(name, quota.Default)
	n, there := c.rows.all[name]
	n.Name = name
	if !there && !n.isDefault() {
		return n, fault.New(fault.NotFound, codeNamespaceNotFound,
			"there is no namespace %s; make it with souk namespace create, or choose another (souk namespace ls)",
			fault.Clip(name, 80))
	}
	return n, nil
}

// AllNamespaces returns the namespaces ordered by name.
func (c *Namespaces) AllNamespaces() []Namespace {
	c.mu.RLock()
	defer c.mu.RUnlock()
	d, _ := c.namespace(quota.Default)
	out := slices.DeleteFunc(c.rows.sorted(), Namespace.isDefault)
	out = append(out, d)
	slices.SortFunc(out, func(a, b Namespace) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Namespace returns one namespace; "" is the default one.
func (c *Namespaces) Namespace(name string) (Namespace, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.namespace(name)
}

// NamespaceOf returns the namespace of an app.
func (c *Namespaces) NamespaceOf(app string) (Namespace, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.namespace(c.apps.rows.all[app].Namespace)
}

// AppsByNamespace returns the names of each namespace's apps, in order.
func (c *Namespaces) AppsByNamespace() map[string][]string {
	out := map[string][]string{}
	for _, a := range c.apps.AllApps() {
		space := cmp.Or(a.Namespace, quota.Default)
		out[space] = append(out[space], a.Name)
	}
	return out
}

// CreateNamespace adds a namespace without limits.
func (c *Namespaces) CreateNamespace(name string) error {
	if !machine.ValidLabel(name) {
		return fault.New(fault.Invalid, codeNamespaceName,
			"%q cannot be a namespace's name; use 1 to 63 lower-case letters, digits and dashes, with no dash at "+
				"the ends",
			fault.Clip(name, 80))
	}
	c.write.Lock()
	defer c.write.Unlock()
	if _, err := c.namespace(name); err == nil {
		return fault.New(fault.Conflict, codeNamespaceNameInUse, "there is a namespace %s already; choose another name",
			name)
	}
	if len(c.rows.all) >= quota.MaxNamespaces {
		return &fault.Error{Kind: fault.Exhausted, Code: codeTooManyNamespaces, Scope: fault.ScopeQuota,
			Text: fmt.Sprintf("there are %d namespaces, the most a cluster keeps; remove some", len(c.rows.all))}
	}
	return c.commit(c.rows.put(name, Namespace{Name: name, CreatedAt: time.Now().UTC()}))
}

// DeleteNamespace removes a namespace without apps.
func (c *Namespaces) DeleteNamespace(name string) error {
	c.write.Lock()
	defer c.write.Unlock()
	if name == quota.Default {
		return fault.New(fault.Invalid, codeNamespaceDefault,
			"the namespace %s is always there; take its quota away instead (souk quota set %s --none)", name, name)
	}
	if _, err := c.namespace(name); err != nil {
		return err
	}
	for _, a := range c.apps.rows.all {
		if a.Namespace == name {
			return fault.New(fault.Precondition, codeNamespaceInUse,
				"app %s is in namespace %s; move it or destroy it first", a.Name, name)
		}
	}
	return c.commit(append(c.besideNamespace(name, nil), c.rows.remove(name))...)
}

// SetQuota sets a namespace's budget, nil for no limit, the weight of its fair share, and its caps.
func (c *Namespaces) SetQuota(name string, b *quota.Budget, weight float64, most quota.Caps) error {
	why := most.Valid()
	if b != nil && why == "" {
		why = b.Valid()
	}
	if !(weight >= 0 && weight <= quota.MaxPrice) {
		why = fmt.Sprintf("a weight is a number from 0 to %.0f; got %v", quota.MaxPrice, weight)
	}
	if why != "" {
		return fault.New(fault.Invalid, codeBudget, "%s", why)
	}
	c.write.Lock()
	defer c.write.Unlock()
	n, err := c.namespace(name)
	if err != nil {
		return err
	}
	n.Budget, n.Weight, n.Max = b, weight, most
	return c.commit(c.rows.put(n.Name, n))
}

// SetNamespace moves an app into a namespace. Its existing machines stay in the namespace they were made in.
func (c *Namespaces) SetNamespace(app, name string) error {
	return c.apps.updateApp(app, func(a *App) error {
		n, err := c.namespace(name)
		if a.Namespace = n.Name; n.isDefault() {
			a.Namespace = ""
		}
		return err
	})
}

func checkPrice(key string, p quota.Price) error {
	if why := p.Valid(); why != "" {
		return fault.New(fault.Invalid, codePrice, "%s", why)
	}
	return named(key, keyPrice)
}

// Price returns what resources cost.
func (c *Namespaces) Price() quota.Price {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if p, set := c.prices.all[keyPrice]; set {
		return p
	}
	return quota.DefaultPrice()
}

// SetPrice sets what resources cost from now on.
func (c *Namespaces) SetPrice(p quota.Price) error {
	if err := checkPrice(keyPrice, p); err != nil {
		return err
	}
	c.write.Lock()
	defer c.write.Unlock()
	return c.commit(c.prices.put(keyPrice, p))
}
