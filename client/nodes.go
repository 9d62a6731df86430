package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
)

// ClusterCalls are the client's calls on workers and members: cordon, drain, move, leave, health.
type ClusterCalls struct{ transport }

// CordonWorker stops a worker from taking new machines and tasks. It returns the worker's record afterwards.
func (c ClusterCalls) CordonWorker(ctx context.Context, worker string,
	to api.WorkerCordon) (rec cluster.Record, err error) {
	err = c.doCall(ctx, newCall(api.CordonWorker, worker).withBody(to), &rec)
	return rec, err
}

// UncordonWorker lets a worker take new machines and tasks again.
func (c ClusterCalls) UncordonWorker(ctx context.Context, worker string) (rec cluster.Record, err error) {
	err = c.doCall(ctx, newCall(api.UncordonWorker, worker), &rec)
	return rec, err
}

// DrainPlan asks where a worker's machines would go. Nothing is done.
func (c ClusterCalls) DrainPlan(ctx context.Context, worker string) (p api.DrainPlan, err error) {
	err = c.doCall(ctx, newCall(api.PlanDrain, worker), &p)
	return p, err
}

// Move moves a machine to another worker, with a new id and the same name. to is the only worker that may take it; "":
// any other. A replica of a service has begun to move when this returns.
func (c ClusterCalls) Move(ctx context.Context, app, id string, to cluster.WorkerID) (m api.Moved, err error) {
	err = c.doCall(ctx, newCall(api.MoveMachine, app, id).withBody(api.MoveRequest{To: to}), &m)
	return m, err
}

// PlanMove says whether a Move would succeed now, or returns its error. Nothing changes.
func (c ClusterCalls) PlanMove(ctx context.Context, app, id string, to cluster.WorkerID) (m api.Moved, err error) {
	err = c.doCall(ctx, newCall(api.MoveMachine, app, id).withBody(api.MoveRequest{To: to, Plan: true}), &m)
	return m, err
}

// Leave makes the answering member leave the cluster and end.
func (c ClusterCalls) Leave(ctx context.Context) error {
	return c.doCall(ctx, newCall(api.Leave), nil)
}

// Lives makes the answering member the only valid one of all copies with its id.
func (c ClusterCalls) Lives(ctx context.Context, by, reason string) error {
	return c.doCall(ctx, newCall(api.Lives).withBody(api.LivesRequest{By: by, Reason: reason}), nil)
}

// MemberList returns the members, and which of them send unsigned messages.
func (c ClusterCalls) MemberList(ctx context.Context) (list api.MemberList, err error) {
	err = c.doCall(ctx, newCall(api.ListMembers), &list)
	return list, err
}

// Doors lists where the members serve the API for other hosts.
func (c ClusterCalls) Doors(ctx context.Context) (list api.DoorList, err error) {
	err = c.doCall(ctx, newCall(api.ListDoors), &list)
	return list, err
}

// RemoveMember removes a member for good, and returns the machines that are forgotten with it.
func (c ClusterCalls) RemoveMember(ctx context.Context, id string, o RemoveOptions) (api.MemberRemoved, error) {
	q := url.Values{"by": {o.By}, "reason": {o.Reason}, "force": {strconv.FormatBool(o.Force)},
		"end_tokens":      {strconv.FormatBool(o.EndTokens)},
		"forget_machines": {strconv.FormatBool(o.ForgetMachines)}}
	var out api.MemberRemoved
	err := c.doCall(ctx, newCall(api.RemoveMember, id).withQuery(q), &out)
	return out, err
}

// RemoveOptions go with RemoveMember.
type RemoveOptions struct {
	By, Reason     string
	Force          bool // remove it even if it is alive
	ForgetMachines bool // remove it even if it has reported machines
	EndTokens      bool // remove it even if valid tokens were made there
}

// Health returns the cluster's health as the answering member sees it, including what it learns by asking one worker;
// "": all workers.
func (c ClusterCalls) Health(ctx context.Context, worker string) (h api.Health, err error) {
	q := url.Values{"thorough": {"true"}}
	if worker != "" {
		q = url.Values{"member": {worker}}
	}
	err = c.doCall(ctx, newCall(api.ClusterHealth).withQuery(q), &h)
	return h, err
}

// Disconnect returns what happens to an app's machines on an unreachable worker: fast, fenced or never.
func (c ClusterCalls) Disconnect(ctx context.Context, app string) (string, error) {
	var b api.AppDisconnect
	err := c.doCall(ctx, newCall(api.GetAppDisconnect, app), &b)
	return b.Policy, err
}

// SetDisconnect sets what happens to an app's machines on an unreachable worker.
func (c ClusterCalls) SetDisconnect(ctx context.Context, app, policy string) error {
	in := api.AppDisconnect{Policy: policy}
	return c.doCall(ctx, newCall(api.SetAppDisconnect, app).withBody(in), nil)
}
