package client

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/machine"
)

// LaunchOptions go with a create.
type LaunchOptions struct {
	// Key makes a create repeatable: repeating the key returns the first create's machine.
	Key string
	// NewKey says that the key was drawn for this create and has not been sent before: then the create need not wait,
	// even if the member that decides the key has just died.
	NewKey bool
	// Drawn is when the key was drawn; zero: not given. A worker that was dead by then cannot have made a machine with
	// it, so a create that is repeated need not wait for that worker.
	Drawn time.Time
}

// Launch creates a machine, and starts it unless l.SkipLaunch is set.
func (c *Client) Launch(ctx context.Context, app string, l *machine.Launch, o LaunchOptions) (*machine.Machine, error) {
	m := new(machine.Machine)
	k := newCall(api.CreateMachine, app).withBody(l).withHeader(api.IdempotencyHeader, o.Key)
	if o.NewKey {
		k = k.withHeader(api.NewKeyHeader, "1")
	}
	if !o.Drawn.IsZero() {
		k = k.withHeader(api.KeyAgeHeader, strconv.FormatFloat(max(0, time.Since(o.Drawn).Seconds()), 'f', 3, 64))
	}
	if err := c.doCall(ctx, k, m); err != nil {
		return nil, err
	}
	return m, nil
}

// Update replaces a machine's whole config.
func (c *Client) Update(ctx context.Context, app, id string, l *machine.Launch,
	nonce string) (*machine.Machine, error) {
	m := new(machine.Machine)
	k := newCall(api.UpdateMachine, app, id).withBody(l).withHeader(api.NonceHeader, nonce)
	if err := c.doCall(ctx, k, m); err != nil {
		return nil, err
	}
	return m, nil
}

// Resize changes a machine's CPU and memory; a running one keeps running.
func (c *Client) Resize(ctx context.Context, app, id string, to machine.Resize,
	nonce string) (*machine.Machine, error) {
	m := new(machine.Machine)
	k := newCall(api.ResizeMachine, app, id).withBody(to).withHeader(api.NonceHeader, nonce)
	if err := c.doCall(ctx, k, m); err != nil {
		return nil, err
	}
	return m, nil
}

// Machine returns one machine of an app by its id.
func (c *Client) Machine(ctx context.Context, app, id string) (*machine.Machine, error) {
	m := new(machine.Machine)
	if err := c.doCall(ctx, newCall(api.GetMachine, app, id), m); err != nil {
		return nil, err
	}
	return m, nil
}

// ListOptions choose machines. The zero value is "all that are not destroyed".
type ListOptions struct {
	Destroyed bool   // also destroyed machines that souk still remembers
	Region    string // "" is every region
}

// Machines lists an app's machines, oldest first.
func (c *Client) Machines(ctx context.Context, app string, o ListOptions) ([]*machine.Machine, error) {
	q := url.Values{"limit": {"1000"}}
	if o.Destroyed {
		q.Set("include_deleted", "true")
	}
	if o.Region != "" {
		q.Set("region", o.Region)
	}
	all := []*machine.Machine{}
	for range maxPages {
		var page []*machine.Machine
		next, err := c.doPage(ctx, newCall(api.ListMachines, app).withQuery(q), &page)
		if err != nil {
			return nil, err
		}
		if all = append(all, page...); next == "" {
			break
		}
		q.Set("cursor", next)
	}
	slices.SortFunc(all, compareAge)
	return all, nil
}

// compareAge orders machines by age.
func compareAge(a, b *machine.Machine) int {
	return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.ID, b.ID))
}

// LineOptions choose machines that are listed in one line each. The zero value is "all that are not destroyed".
type LineOptions struct {
	ListOptions
	App  string // "" is every app
	Name string // a machine's name, or a replica's such as web/2; "" is every name
}

// MachineLines lists machines in one line each, oldest first.
func (c *Client) MachineLines(ctx context.Context, o LineOptions) ([]*machine.Line, error) {
	q := url.Values{}
	for k, v := range map[string]string{"app": o.App, "name": o.Name, "region": o.Region} {
		if v != "" {
			q.Set(k, v)
		}
	}
	if o.Destroyed {
		q.Set("include_deleted", "true")
	}
	all := []*machine.Line{}
	for range maxPages {
		var page api.MachineLines
		if err := c.doCall(ctx, newCall(api.ListMachineLines).withQuery(q), &page); err != nil {
			return nil, err
		}
		all = slices.Grow(all, len(page.Machines))
		for i := range page.Machines {
			all = append(all, &page.Machines[i])
		}
		if page.NextCursor == "" {
			break
		}
		q.Set("cursor", page.NextCursor)
	}
	slices.SortFunc(all, func(a, b *machine.Line) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

// maxPages bounds the pages read for one organization: a million machines.
const maxPages = 1000

// AllMachines lists the machines of every app of every organization, oldest first.
func (c *Client) AllMachines(ctx context.Context, o ListOptions) ([]*machine.Machine, error) {
	apps, err := c.Apps(ctx)
	if err != nil {
		return nil, err
	}
	all := []*machine.Machine{}
	seen := map[string]bool{}
	for _, a := range apps {
		if org := a.Organization.Slug; !seen[org] {
			seen[org] = true
			if all, err = c.orgMachines(ctx, org, o, all); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(all, compareAge)
	return all, nil
}

// orgMachines adds the machines of one organization to all, page after page.
func (c *Client) orgMachines(ctx context.Context, org string, o ListOptions,
	all []*machine.Machine) ([]*machine.Machine, error) {
	q := url.Values{"limit": {"1000"}}
	if o.Destroyed {
		q.Set("include_deleted", "true")
	}
	for range maxPages {
		var page api.MachinePage
		if err := c.doCall(ctx, newCall(api.ListOrgMachines, org).withQuery(q), &page); err != nil {
			return nil, err
		}
		for _, m := range page.Machines {
			if o.Region == "" || m.Region == o.Region {
				all = append(all, m)
			}
		}
		if page.NextCursor == "" {
			break
		}
		q.Set("cursor", page.NextCursor)
	}
	return all, nil
}

// Start starts a machine that is created, stopped or suspended.
func (c *Client) Start(ctx context.Context, app, id, nonce string) (api.Started, error) {
	var s api.Started
	err := c.doCall(ctx, newCall(api.StartMachine, app, id).withHeader(api.NonceHeader, nonce), &s)
	return s, err
}

// StopOptions say how to stop; the zero value means as the machine's config says.
type StopOptions struct {
	Signal  string        // "" is the config's, else SIGINT
	Timeout time.Duration // 0 is the config's, else 5 s; then the machine is killed
}

// Stop stops a machine. The answer says that the stop is done, or has begun; so do the answers of the other verbs.
func (c *Client) Stop(ctx context.Context, app, id, nonce string, o StopOptions) (api.OK, error) {
	var ok api.OK
	in := api.StopRequest{ID: id, Signal: o.Signal, Timeout: machine.Duration{Duration: max(o.Timeout, 0)}}
	err := c.doCall(ctx, newCall(api.StopMachine, app, id).withBody(in).withHeader(api.NonceHeader, nonce), &ok)
	return ok, err
}

// Restart stops a machine and starts it again. force skips the grace.
func (c *Client) Restart(ctx context.Context, app, id, nonce string, force bool, o StopOptions) (api.OK, error) {
	var ok api.OK
	q := url.Values{}
	if force {
		q.Set("force_stop", "true")
	}
	if o.Signal != "" {
		q.Set("signal", o.Signal)
	}
	if o.Timeout > 0 {
		q.Set("timeout", o.Timeout.String())
	}
	err := c.doCall(ctx, newCall(api.RestartMachine, app, id).withQuery(q).withHeader(api.NonceHeader, nonce), &ok)
	return ok, err
}

// Suspend freezes a machine, memory and all. Start resumes it.
func (c *Client) Suspend(ctx context.Context, app, id, nonce string) (api.OK, error) {
	var ok api.OK
	err := c.doCall(ctx, newCall(api.SuspendMachine, app, id).withHeader(api.NonceHeader, nonce), &ok)
	return ok, err
}

// SuspendToDisk is Suspend with the memory written to disk, if possible; otherwise the memory stays in place, and the
// machine's newest event says why.
func (c *Client) SuspendToDisk(ctx context.Context, app, id, nonce string) (api.OK, error) {
	var ok api.OK
	q := url.Values{"to_disk": {"true"}}
	err := c.doCall(ctx, newCall(api.SuspendMachine, app, id).withQuery(q).withHeader(api.NonceHeader, nonce), &ok)
	return ok, err
}

// Signal sends a signal ("SIGTERM", "TERM", "15") to a machine's main process.
func (c *Client) Signal(ctx context.Context, app, id, nonce, signal string) error {
	in := api.SignalRequest{Signal: machine.SignalText(signal)}
	return c.doCall(ctx, newCall(api.SignalMachine, app, id).withBody(in).withHeader(api.NonceHeader, nonce), nil)
}

// Cordon takes a machine out of routing, or with on false puts it back.
func (c *Client) Cordon(ctx context.Context, app, id, nonce string, on bool) error {
	op := api.UncordonMachine
	if on {
		op = api.CordonMachine
	}
	return c.doCall(ctx, newCall(op, app, id).withHeader(api.NonceHeader, nonce), nil)
}

// Destroy removes a machine for ever; with kill also a running one.
func (c *Client) Destroy(ctx context.Context, app, id, nonce string, kill bool) (api.OK, error) {
	var ok api.OK
	k := newCall(api.DestroyMachine, app, id).withQuery(url.Values{"kill": {strconv.FormatBool(kill)}}).
		withHeader(api.NonceHeader, nonce)
	err := c.doCall(ctx, k, &ok)
	return ok, err
}

// Settled is a state only for Wait: any state that stays until someone acts.
const Settled = machine.State("settled")

// Versions lists the configs a machine has had, newest first: the current one, then the stored ones.
func (c *Client) Versions(ctx context.Context, app, id string) ([]machine.Version, error) {
	var list []machine.Version
	err := c.doCall(ctx, newCall(api.ListVersions, app, id), &list)
	return list, err
}

// Wait waits until the machine is in one of the states, for at most timeout, which the server rounds to whole seconds
// from 1 to 60. After that the error's kind is Timeout.
func (c *Client) Wait(ctx context.Context, app, id string, timeout time.Duration, states ...machine.State) error {
	secs := min(max(int(timeout.Round(time.Second)/time.Second), 1), 60)
	q := url.Values{"timeout": {fmt.Sprint(secs)}}
	for _, s := range states {
		q.Add("state", string(s))
	}
	return c.doCall(ctx, newCall(api.WaitMachine, app, id).withQuery(q), nil)
}

// Processes lists a machine's processes.
func (c *Client) Processes(ctx context.Context, app, id string) ([]machine.Process, error) {
	var ps []machine.Process
	err := c.doCall(ctx, newCall(api.ListProcesses, app, id), &ps)
	return ps, err
}

// Metadata returns a machine's metadata.
func (c *Client) Metadata(ctx context.Context, app, id string) (map[string]string, error) {
	var kv map[string]string
	err := c.doCall(ctx, newCall(api.GetMetadata, app, id), &kv)
	return kv, err
}

// PatchMetadata sets some keys; a nil value deletes its key. The running program is not affected.
func (c *Client) PatchMetadata(ctx context.Context, app, id, nonce string, kv map[string]*string) error {
	k := newCall(api.PatchMetadata, app, id).withBody(kv).withHeader(api.NonceHeader, nonce)
	return c.doCall(ctx, k, nil)
}

// Lease returns the lease in force; NotFound if there is none.
func (c *Client) Lease(ctx context.Context, app, id string) (machine.Lease, error) {
	var a api.LeaseAnswer
	err := c.doCall(ctx, newCall(api.GetLease, app, id), &a)
	return a.Data, err
}

// TakeLease takes the machine's lease, or with the holder's nonce refreshes it. The server counts ttl in whole seconds.
func (c *Client) TakeLease(ctx context.Context, app, id, nonce string, ttl time.Duration) (machine.Lease, error) {
	var a api.LeaseAnswer
	k := newCall(api.AcquireLease, app, id).withQuery(url.Values{"ttl": {fmt.Sprint(int(ttl / time.Second))}}).
		withHeader(api.NonceHeader, nonce)
	err := c.doCall(ctx, k, &a)
	return a.Data, err
}

// ReleaseLease releases the lease.
func (c *Client) ReleaseLease(ctx context.Context, app, id, nonce string) error {
	return c.doCall(ctx, newCall(api.ReleaseLease, app, id).withHeader(api.NonceHeader, nonce), nil)
}
