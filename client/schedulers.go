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

// SchedulerComparison returns the comparison of schedulers that runs in a namespace, or for "" in the cluster, or the last one
// that ran there.
func (c NamespaceCalls) SchedulerComparison(ctx context.Context, namespace string) (x api.SchedulerComparison,
	err error) {
	err = c.doCall(ctx, ofNamespace(namespace, api.GetComparison, api.GetNamespaceComparison), &x)
	return x, err
}

// StartSchedulerComparison has the jobs of a namespace, or for "" of the cluster, that name no scheduler run by one of two.
func (c NamespaceCalls) StartSchedulerComparison(ctx context.Context, namespace string,
	n api.NewSchedulerComparison) (x api.SchedulerComparison, err error) {
	k := ofNamespace(namespace, api.StartComparison, api.StartNamespaceComparison)
	err = c.doCall(ctx, k.withBody(n), &x)
	return x, err
}

// StopSchedulerComparison ends the comparison of schedulers that runs in a namespace, or for "" in the cluster.
func (c NamespaceCalls) StopSchedulerComparison(ctx context.Context, namespace string) (x api.SchedulerComparison,
	err error) {
	err = c.doCall(ctx, ofNamespace(namespace, api.StopComparison, api.StopNamespaceComparison), &x)
	return x, err
}

// ofNamespace makes the call of a namespace, or for "" the one of the cluster.
func ofNamespace(namespace string, ofCluster, ofOne api.Op) call {
	if namespace == "" {
		return newCall(ofCluster)
	}
	return newCall(ofOne, namespace)
}
