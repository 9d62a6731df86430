package catalog

import (
	"strings"
	"time"

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
		if r.Scheduler == name {
			return nil
		}
		r.Scheduler = name
		return r.CheckIdle(namespace)
	})
}

// StartComparison has the jobs of a namespace, or for "" of the cluster, that name no scheduler run by one of two. It is
// Precondition that another comparison runs there, or that x.A is not the scheduler of such jobs.
func (c *Namespaces) StartComparison(namespace string, x *defaults.Comparison) error {
	return c.updateScheduler(namespace, func(r *defaults.Row) error {
		rows := defaults.Rows{Cluster: *r}
		if namespace != "" {
			rows = defaults.Rows{Namespace: *r, Cluster: c.schedulers.all[keyClusterScheduler]}
		}
		current, _ := rows.Scheduler()
		return r.Start(x, namespace, current)
	})
}

// StopComparison ends the comparison that runs in a namespace, or for "" in the cluster: jobs get the default again. id is
// the one that is meant, "" whichever. It is Precondition that it does not run.
func (c *Namespaces) StopComparison(namespace, id, why string, now time.Time) error {
	return c.updateScheduler(namespace, func(r *defaults.Row) error { return r.Stop(id, why, namespace, now) })
}

// Comparison returns the comparison that runs in a namespace, or for "" in the cluster, or else the last one that ran there;
// nil: there was none.
func (c *Namespaces) Comparison(namespace string) (*defaults.Comparison, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if namespace != "" {
		if _, err := c.namespace(namespace); err != nil {
			return nil, err
		}
	}
	return c.schedulers.all[schedulerKey(namespace)].Comparison, nil
}

// RunningComparisons returns the comparisons that run, by their namespaces; "" is the cluster.
func (c *Namespaces) RunningComparisons() map[string]defaults.Comparison {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := map[string]defaults.Comparison{}
	for key, row := range c.schedulers.all {
		if x := row.Running(); x != nil {
			name := strings.TrimPrefix(key, prefixNamespaceDefault)
			if key == keyClusterScheduler {
				name = ""
			}
			out[name] = *x
		}
	}
	return out
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
