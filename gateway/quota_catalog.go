package gateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fsm"
	"github.com/soukhq/souk/quota"
)

// The catalog's buckets of quotas.
const (
	bucketNamespace = "namespace" // key: its name
	bucketPrice     = "price"     // one row: keyPrice
)

const keyPrice = "price"

// namespaceRow is a namespace as it is stored. The default one is there without a row.
type namespaceRow struct {
	Name      string        `json:"name"`
	CreatedAt time.Time     `json:"created_at,omitzero"`
	Budget    *quota.Budget `json:"budget,omitempty"` // nil: no limit
	Weight    float64       `json:"weight,omitempty"` // of its fair share; 0 is 1
}

// quotas is what the catalog knows of who may spend what.
type quotas struct {
	spaces map[string]namespaceRow
	price  *quota.Price // nil: the default
}

// loadQuota takes in a row of one of the two buckets.
func (q *quotas) loadQuota(r fsm.Record) error {
	if r.Bucket == bucketPrice {
		var p quota.Price
		err := json.Unmarshal(r.Value, &p)
		if err == nil {
			q.price = &p
		}
		return err
	}
	var n namespaceRow
	if err := json.Unmarshal(r.Value, &n); err != nil {
		return err
	}
	q.put(n)
	return nil
}

func (q *quotas) put(n namespaceRow) {
	if q.spaces == nil {
		q.spaces = map[string]namespaceRow{}
	}
	q.spaces[n.Name] = n
}

// drop takes a row out.
func (q *quotas) drop(r fsm.Record) {
	if r.Bucket == bucketPrice {
		q.price = nil
		return
	}
	delete(q.spaces, r.Key)
}

// row gives what is stored of a key, as it is written; false: there is none.
func (q *quotas) row(bucket, key string) (fsm.Record, bool) {
	if bucket == bucketPrice {
		if q.price == nil {
			return fsm.Record{}, false
		}
		return record(bucket, key, *q.price), true
	}
	n, there := q.spaces[key]
	return record(bucket, key, n), there
}

// space gives a namespace by its name; "" is the default one.
func (q *quotas) space(name string) (namespaceRow, bool) {
	name = cmp.Or(name, quota.Default)
	n, there := q.spaces[name]
	n.Name = name
	return n, there || name == quota.Default
}

// Namespaces lists the namespaces in the order of their names.
func (c *Catalog) Namespaces() []namespaceRow {
	c.mu.RLock()
	defer c.mu.RUnlock()
	d, _ := c.quotas.space(quota.Default)
	out := []namespaceRow{d}
	for name, n := range c.quotas.spaces {
		if name != quota.Default {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b namespaceRow) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// NamespaceOf gives the namespace of an app.
func (c *Catalog) NamespaceOf(app string) (namespaceRow, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.space(c.apps[app].Namespace)
}

// space gives a namespace, or says that it is not there. Who reads holds mu or write.
func (c *Catalog) space(name string) (namespaceRow, error) {
	n, there := c.quotas.space(name)
	if !there {
		return n, fault.New(fault.NotFound, "namespace_not_found", "there is no namespace %s; make it with souk namespace create, or choose another (souk namespace ls)", clip(name, 80))
	}
	return n, nil
}

// Price gives what resources cost.
func (c *Catalog) Price() quota.Price {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.quotas.price == nil {
		return quota.DefaultPrice()
	}
	return *c.quotas.price
}

// SetPrice sets what resources cost from now on.
func (c *Catalog) SetPrice(p quota.Price) error {
	if why := p.Valid(); why != "" {
		return fault.New(fault.Invalid, "price", "%s", why)
	}
	c.write.Lock()
	defer c.write.Unlock()
	return c.commit(func() { c.quotas.price = &p }, record(bucketPrice, keyPrice, p))
}

// CreateNamespace enters a namespace that has no limit yet.
func (c *Catalog) CreateNamespace(name string) error {
	if !appName.MatchString(name) {
		return fault.New(fault.Invalid, "namespace_name",
			"%q cannot be a namespace's name; use 1 to 63 lower-case letters, digits and dashes, with no dash at the ends", clip(name, 80))
	}
	c.write.Lock()
	defer c.write.Unlock()
	if _, there := c.quotas.space(name); there {
		return fault.New(fault.Conflict, "namespace_name_taken", "there is a namespace %s already; choose another name", name)
	}
	if len(c.quotas.spaces) >= quota.MaxNamespaces {
		return &fault.Error{Kind: fault.Exhausted, Code: "too_many_namespaces", Scope: fault.ScopeQuota,
			Text: fmt.Sprintf("there are %d namespaces, the most a cluster keeps; remove some", len(c.quotas.spaces))}
	}
	n := namespaceRow{Name: name, CreatedAt: time.Now().UTC()}
	return c.commit(func() { c.quotas.put(n) }, record(bucketNamespace, name, n))
}

// DeleteNamespace takes out a namespace that no app is in.
func (c *Catalog) DeleteNamespace(name string) error {
	c.write.Lock()
	defer c.write.Unlock()
	if name == quota.Default {
		return fault.New(fault.Invalid, "namespace_default", "the namespace %s is always there; take its quota away instead (souk quota set %s --none)", name, name)
	}
	if _, err := c.space(name); err != nil {
		return err
	}
	for _, a := range c.apps {
		if a.Namespace == name {
			return fault.New(fault.Precondition, "namespace_in_use", "app %s is in namespace %s; move it or destroy it first", a.Name, name)
		}
	}
	return c.commit(func() { delete(c.quotas.spaces, name) }, fsm.Record{Bucket: bucketNamespace, Key: name})
}

// SetBudget sets what a namespace may spend, nil for no limit, and the weight of its fair share.
func (c *Catalog) SetBudget(name string, b *quota.Budget, weight float64) error {
	why := ""
	if b != nil {
		why = b.Valid()
	}
	if !(weight >= 0 && weight <= quota.MaxPrice) {
		why = fmt.Sprintf("a weight is a number from 0 to %.0f; got %v", quota.MaxPrice, weight)
	}
	if why != "" {
		return fault.New(fault.Invalid, "budget", "%s", why)
	}
	c.write.Lock()
	defer c.write.Unlock()
	n, err := c.space(name)
	if err != nil {
		return err
	}
	n.Budget, n.Weight = b, weight
	return c.commit(func() { c.quotas.put(n) }, record(bucketNamespace, n.Name, n))
}

// SetNamespace puts an app into a namespace. Its machines that are there stay in the one that they were made in.
func (c *Catalog) SetNamespace(app, name string) error {
	c.write.Lock()
	defer c.write.Unlock()
	a, ok := c.apps[app]
	if !ok {
		return noApp()
	}
	if _, err := c.space(name); err != nil {
		return err
	}
	if a.Namespace = name; name == quota.Default {
		a.Namespace = ""
	}
	return c.commit(func() { c.apps[app] = a }, record(bucketApp, app, a))
}
