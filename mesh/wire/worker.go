package wire

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/mesh/pki"
	"github.com/soukhq/souk/runtime"
)

// Worker is a remote worker. It has the methods of a local one; see gateway.Worker. Calls that change nothing give up
// after five seconds, others once the worker's own limit must be over, streams never; all end with ctx.
type Worker struct{ *Link }

// Worker makes a link to a worker. addr returns its address each time a connection is made.
func (c *Client) Worker(id cluster.WorkerID, addr func() string) *Worker {
	return &Worker{c.Link(string(id), pki.Worker, addr)}
}

// ID returns the worker's id.
func (w *Worker) ID() cluster.WorkerID { return cluster.WorkerID(w.id) }

// Record returns the worker's current record.
func (w *Worker) Record(ctx context.Context) (rec cluster.Record, err error) {
	err = w.callMember(ctx, pathRecord, readTime, none{}, &rec)
	return rec, err
}

// Quote returns what Grant would answer now, and reserves nothing.
func (w *Worker) Quote(ctx context.Context, r placement.Request) (q market.Quote, err error) {
	err = w.callMember(ctx, pathQuote, readTime, r, &q)
	return q, err
}

// Hold reserves room for a request until the time it returns.
func (w *Worker) Hold(ctx context.Context, c lifecycle.HoldCommand) (until time.Time, err error) {
	err = w.callMember(ctx, pathHold, readTime, holdArgs{c.Request, c.Token, c.TTL, c.Want}, &until)
	return until, err
}

// Release ends a hold.
func (w *Worker) Release(ctx context.Context, token string) error {
	return w.callMember(ctx, pathRelease, readTime, holdArgs{Token: token}, nil)
}

// Grant makes a machine. It gives each ask a higher number than all before it, so that the worker recognizes an
// abandoned ask that arrives late.
func (w *Worker) Grant(ctx context.Context, g lifecycle.Grant) (*machine.Machine, error) {
	raw, err := marshal(g)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, changeTime, errSlow(changeTime))
	defer cancel()
	r := w.newRequest(ctx, pathGrant, raw)
	r.Header = w.numberedHeader(w.client.asked.Add(1))
	m := new(machine.Machine)
	if err := w.askMember(ctx, r, m); err != nil {
		return nil, err
	}
	return m, nil
}

// Do carries out a verb.
func (w *Worker) Do(ctx context.Context, c lifecycle.Command) (o lifecycle.Outcome, err error) {
	err = w.callMember(ctx, pathDo, changeTime, c, &o)
	return o, err
}

// Lease takes, refreshes or releases a lease.
func (w *Worker) Lease(ctx context.Context, c lifecycle.LeaseCommand) (l machine.Lease, err error) {
	err = w.callMember(ctx, pathLease, changeTime, c, &l)
	return l, err
}

// CurrentLease returns the lease in force; NotFound if there is none.
func (w *Worker) CurrentLease(ctx context.Context, app, id string) (l machine.Lease, err error) {
	err = w.callMember(ctx, pathLeaseNow, readTime, ref{app, id}, &l)
	return l, err
}

// Machine returns one machine.
func (w *Worker) Machine(ctx context.Context, app, id string) (*machine.Machine, error) {
	m := new(machine.Machine)
	if err := w.callMember(ctx, pathMachine, readTime, ref{app, id}, m); err != nil {
		return nil, err
	}
	return m, nil
}

// Keyed returns the machine that was made under a key.
func (w *Worker) Keyed(ctx context.Context, app, hash string) (*machine.Machine, error) {
	m := new(machine.Machine)
	if err := w.callMember(ctx, pathKeyed, readTime, keyedArgs{app, hash}, m); err != nil {
		return nil, err
	}
	return m, nil
}

// Machines lists an app's machines, "" for all apps, oldest first; destroyed ones only if destroyed is set.
func (w *Worker) Machines(ctx context.Context, app string, destroyed bool) ([]*machine.Machine, error) {
	return gatherStream[*machine.Machine](ctx, w.Link, pathMachines, listArgs{app, destroyed})
}

// Versions lists the configs a machine has had, newest first.
func (w *Worker) Versions(ctx context.Context, app, id string) (v []machine.Version, err error) {
	err = w.callMember(ctx, pathVersions, readTime, ref{app, id}, &v)
	return v, err
}

// errEnough ends a stream whose reader needs no more items; it never leaves this package.
type errEnough struct{}

// Error returns the text.
func (errEnough) Error() string { return "enough" }

// Watch calls f with the machine now and after every change, until f returns false or ctx ends.
func (w *Worker) Watch(ctx context.Context, app, id string, f func(*machine.Machine) bool) error {
	err := followStream(ctx, w.Link, pathWatch, ref{app, id}, func(m *machine.Machine) error {
		if f(m) {
			return nil
		}
		return errEnough{}
	})
	if _, enough := errors.AsType[errEnough](err); enough {
		return nil
	}
	return err
}

// Events calls f with every event of every machine of app ("" = all) from now on, until ctx ends or f returns an error.
func (w *Worker) Events(ctx context.Context, app string, f func(machine.EventOf) error) error {
	return followStream(ctx, w.Link, pathEvents, listArgs{App: app}, f)
}

// Processes lists a machine's processes.
func (w *Worker) Processes(ctx context.Context, app, id string) (p []machine.Process, err error) {
	err = w.callMember(ctx, pathProcesses, readTime, ref{app, id}, &p)
	return p, err
}

// Logs calls emit with each line of a machine's output.
func (w *Worker) Logs(ctx context.Context, app, id string, q machine.LogQuery, emit func(machine.LogLine) error) error {
	return followStream(ctx, w.Link, pathLogs, logArgs{ref{app, id}, q.Cursor, q.Tail, q.Follow, q.Hold}, emit)
}

// CopyOut writes a path of the machine to out as a tar stream.
func (w *Worker) CopyOut(ctx context.Context, app, id, path string, out io.Writer) error {
	return w.copyOut(ctx, pathArgs{ref{app, id}, path}, out)
}

// CopyIn reads a tar stream into a path of the machine.
func (w *Worker) CopyIn(ctx context.Context, app, id, path string, in io.Reader) error {
	return w.copyIn(ctx, pathArgs{ref{app, id}, path}, in)
}

// Exec runs a command beside the machine's main process and returns its exit code.
func (w *Worker) Exec(ctx context.Context, app, id string, r runtime.ExecRequest) (int, error) {
	order := execOrder{ref: ref{app, id}, Argv: r.Argv, User: r.User, Dir: r.Dir, Stdin: r.Stdin != nil}
	if r.Terminal != nil {
		order.Terminal, order.Attach, order.Backlog = &r.Terminal.Terminal, r.Attach, r.Backlog
	}
	return w.runCommand(ctx, order, r)
}

// Use reads the resource use of each running machine and task.
func (w *Worker) Use(ctx context.Context) ([]machine.Use, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	return gatherStream[machine.Use](ctx, w.Link, pathUse, none{})
}

// RunningTasks lists the short tasks that have room on the worker.
func (w *Worker) RunningTasks(ctx context.Context) ([]lifecycle.Task, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	return gatherStream[lifecycle.Task](ctx, w.Link, pathTasks, none{})
}

// Volumes lists an app's volumes, "" for all.
func (w *Worker) Volumes(ctx context.Context, app string) ([]machine.Volume, error) {
	return gatherStream[machine.Volume](ctx, w.Link, pathVolumes, listArgs{App: app})
}

// Volume makes or changes a volume and answers when that is done.
func (w *Worker) Volume(ctx context.Context, c lifecycle.VolumeCommand) (v machine.Volume, err error) {
	err = w.callMember(ctx, pathVolume, changeTime, c, &v)
	return v, err
}

// Examine returns the worker's own part of `souk doctor`. A worker that does not answer is a finding.
func (w *Worker) Examine(ctx context.Context) (f []cluster.Finding) {
	if err := w.callMember(ctx, pathExamine, pullTime, none{}, &f); err != nil {
		return []cluster.Finding{{Name: "worker " + w.id, Have: fault.As(err).Text,
			Advice: "see that it runs and can be reached from here"}}
	}
	return f
}

// Stats returns counters for metrics, zero if the worker does not answer.
func (w *Worker) Stats() (s lifecycle.Stats) {
	if err := w.callMember(context.Background(), pathStats, readTime, none{}, &s); err != nil {
		return lifecycle.Stats{}
	}
	return s
}
