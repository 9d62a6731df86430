package client

import (
	"context"

	"github.com/soukhq/souk/api"
)

// DefaultSchedulers lists the schedulers of jobs that name none: the cluster's, and then those of the namespaces.
func (c NamespaceCalls) DefaultSchedulers(ctx context.Context) ([]api.SchedulerDefault, error) {
	var out api.SchedulerDefaultList
	err := c.doCall(ctx, newCall(api.ListDefaultSchedulers), &out)
	return out.Defaults, err
}

// DefaultScheduler returns the scheduler of jobs that name none, of a namespace, or for "" of the cluster.
func (c NamespaceCalls) DefaultScheduler(ctx context.Context, namespace string) (d api.SchedulerDefault, err error) {
	err = c.doCall(ctx, ofNamespace(namespace, api.GetDefaultScheduler, api.GetNamespaceScheduler), &d)
	return d, err
}

// SetDefaultScheduler sets the scheduler of jobs that name none, of a namespace, or for "" of the cluster: NAME or NAME:N.
func (c NamespaceCalls) SetDefaultScheduler(ctx context.Context, namespace, name string) (d api.SchedulerDefault,
	err error) {
	k := ofNamespace(namespace, api.SetDefaultScheduler, api.SetNamespaceScheduler)
	err = c.doCall(ctx, k.withBody(api.SchedulerChoice{Scheduler: name}), &d)
	return d, err
}

// UnsetDefaultScheduler unsets the scheduler of jobs that name none: a namespace then has the cluster's, and the cluster
// the auction.
func (c NamespaceCalls) UnsetDefaultScheduler(ctx context.Context, namespace string) (d api.SchedulerDefault,
	err error) {
	err = c.doCall(ctx, ofNamespace(namespace, api.UnsetDefaultScheduler, api.UnsetNamespaceScheduler), &d)
	return d, err
}

// ofNamespace makes the call of a namespace, or for "" the one of the cluster.
func ofNamespace(namespace string, ofCluster, ofOne api.Op) call {
	if namespace == "" {
		return newCall(ofCluster)
	}
	return newCall(ofOne, namespace)
}
