package catalog

import (
	"strings"

	"github.com/soukhq/souk/core/defaults"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// The keys of the bucket of default schedulers. They are rows of their own and no field of the namespace's row: a member
// that does not know the field would drop it with the next quota that it sets.
const (
	keyClusterScheduler    = "cluster"
	prefixNamespaceDefault = "namespace/"
)

// schedulerKey returns the key of the default scheduler of a namespace, or for "" of the cluster.
func schedulerKey(namespace string) string {
	if namespace == "" {
		return keyClusterScheduler
	}
	return prefixNamespaceDefault + namespace
}

func checkSchedulerRow(key string, r defaults.Row) error {
	name, of := strings.CutPrefix(key, prefixNamespaceDefault)
	if of && !machine.ValidLabel(name) || !of && key != keyClusterScheduler {
		return fault.New(fault.Invalid, codeNamespaceName, "%q is no key of a default scheduler", fault.Clip(key, 80))
	}
	return r.Check()
}

// SchedulerRows returns what is set for jobs of a namespace that name no scheduler; "" is the default namespace.
func (c *Namespaces) SchedulerRows(namespace string) defaults.Rows {
	if namespace == "" {
		namespace = quota.Default
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return defaults.Rows{Namespace: c.schedulers.all[schedulerKey(namespace)],
		Cluster: c.schedulers.all[keyClusterScheduler]}
}

// SetScheduler sets which scheduler runs the jobs of a namespace, or for "" of the cluster, that name none. name "" sets
// none. Jobs that were accepted before keep their scheduler.
func (c *Namespaces) SetScheduler(namespace, name string) error {
	if name != "" {
		var err error
		if name, err = defaults.Parse(name); err != nil {
			return err
		}
	}
	return c.updateScheduler(namespace, func(r *defaults.Row) error {
		r.Scheduler = name
		return nil
	})
}

// updateScheduler changes the row of a namespace, or for "" of the cluster. If set changes nothing, there is no commit.
func (c *Namespaces) updateScheduler(namespace string, set func(*defaults.Row) error) error {
	c.write.Lock()
	defer c.write.Unlock()
	if namespace != "" {
		if _, err := c.namespace(namespace); err != nil {
			return err
		}
	}
	key := schedulerKey(namespace)
	row := c.schedulers.all[key]
	next := row
	switch err := set(&next); {
	case err != nil || next == row:
		return err
	case next.IsEmpty():
		return c.commit(c.schedulers.remove(key))
	}
	return c.commit(c.schedulers.put(key, next))
}
