package machines

import (
	"cmp"
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// standsFor returns what to call a machine among those of its app: by its replica, such as web/0, else by its name, and
// in a gang by its rank there.
func standsFor(m *machine.Machine) string {
	if m.Replica != nil {
		return cmp.Or(m.Replica.Slot(), cli.Label(m))
	}
	if gang, rank := machine.GangOf(m.Config); gang != "" {
		return cli.Label(m) + " rank " + strconv.Itoa(rank)
	}
	return cli.Label(m)
}

// noteDestroyed says that a machine was destroyed, and its last output follows.
func noteDestroyed(c *cli.Env, m *machine.Machine, label string) {
	if m.State != machine.Destroyed {
		return
	}
	at := m.UpdatedAt
	if t, err := time.Parse(time.RFC3339, at); err == nil {
		at = t.Local().Format(cli.TimeFormat)
	}
	if label != m.ID {
		label += " (" + m.ID + ")"
	}
	c.Note("%s was destroyed at %s: this is the last of its output, which its worker keeps for a day", label, at)
}

// logsOfRelease prints the output of the machines that were made for a release, including destroyed ones.
func logsOfRelease(ctx context.Context, c *cli.Env, cl *client.Client, o *logsFlags, since time.Time) error {
	app := cmp.Or(c.AppGiven(), cli.FolderApp())
	if app == "" {
		return cli.Usagef("--release is of an app: say --app NAME")
	}
	if o.q.Follow || o.q.Cursor != "" {
		return cli.Usagef("--release prints what its machines have printed: leave --follow and --cursor out")
	}
	id, err := releaseID(ctx, cl, app, o.release)
	if err != nil {
		return err
	}
	ms, err := cl.Machines(ctx, app, client.ListOptions{Destroyed: true})
	if err != nil {
		return err
	}
	out, known := NewOutput(c), 0
	for _, m := range ms {
		if m.Replica == nil || m.Replica.Release != id {
			continue
		}
		known++
		label := standsFor(m)
		noteDestroyed(c, cli.Owned(m, app), label)
		p := o.printer(out, label+" | ")
		err := cl.Logs(ctx, app, m.ID, o.q, younger(since, p.Print))
		switch {
		case fault.CodeOf(err) == fault.CodeOutputGone:
			c.Note("%v", err)
		case err != nil:
			return cmp.Or(err, out.Close())
		}
	}
	if known == 0 {
		return fault.New(fault.NotFound, codeReleaseMachines, "no machine that was made for release %s of %s is "+
			"known: machines are forgotten a day after they were destroyed, and machines that this release left "+
			"unchanged belong to an earlier release", release.Short(id), app)
	}
	return out.Close()
}

// releaseID returns the id of a release that is named by its number in "souk releases", or by a prefix of its id.
func releaseID(ctx context.Context, cl *client.Client, app, ref string) (string, error) {
	if n, err := strconv.ParseUint(ref, 10, 64); err == nil {
		list, err := cl.Releases(ctx, app)
		if err != nil {
			return "", err
		}
		for i := range list {
			if list[i].Number == n && n > 0 {
				return list[i].Release, nil
			}
		}
	}
	r, err := cl.Release(ctx, app, ref)
	if fault.Is(err, fault.Invalid) || fault.Is(err, fault.NotFound) {
		return "", fault.New(fault.NotFound, fault.CodeRelease,
			"app %s has no release of the number or the id %q: \"souk "+
				"releases %s\" lists them", app, fault.Clip(ref, 80), app)
	}
	return r.ID, err
}

// younger leaves out lines that are older than since.
func younger(since time.Time, print func(machine.LogLine) error) func(machine.LogLine) error {
	return func(l machine.LogLine) error {
		if l.At.Before(since) {
			return nil
		}
		return print(l)
	}
}

// lookAgain is how often an app's machines are listed while its log is followed: events announce new machines, except
// those of workers that joined since.
const lookAgain = 5 * time.Second

// appLog follows the output of the machines of an app, as they come and go.
type appLog struct {
	c     *cli.Env
	cl    *client.Client
	app   string
	o     *logsFlags
	out   *Output
	since time.Time
	all   sync.WaitGroup

	mu      sync.Mutex
	on      map[string]bool   // ids of machines that are or were followed
	labels  map[string]int    // how many followed machines have a label
	cursors map[string]string // by machine: cursor after the last printed line
}

// followApp follows the output of an app's machines until ctx ends, or the app has gone.
func followApp(ctx context.Context, c *cli.Env, cl *client.Client, o *logsFlags, since time.Time) error {
	f := &appLog{c: c, cl: cl, app: c.AppGiven(), o: o, out: NewOutput(c), since: since, on: map[string]bool{},
		labels: map[string]int{}, cursors: map[string]string{}}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 2)
	first := true
	go func() {
		ended <- c.Outlast(ctx, cl, "app "+f.app, "souk logs -f --app "+f.app, func(ctx context.Context) error {
			listed := error(nil)
			ready := func() { listed = f.look(ctx, first); first = false }
			err := cl.Events(ctx, f.app, ready, func(e machine.EventOf) error { return f.happened(ctx, e) })
			return cmp.Or(listed, err)
		})
	}()
	go func() {
		for {
			err := cli.Pause(ctx, lookAgain)
			if err == nil {
				err = f.look(ctx, false)
			}
			if ctx.Err() != nil || fault.CodeOf(err) == fault.CodeAppNotFound {
				ended <- err
				return
			}
		}
	}()
	err := <-ended
	cancel()
	f.all.Wait()
	return cmp.Or(err, f.out.Close())
}

// look follows the app's machines that are not followed yet. first says that they existed before.
func (f *appLog) look(ctx context.Context, first bool) error {
	lines, err := f.cl.MachineLines(ctx, client.LineOptions{App: f.app})
	if err != nil {
		return err
	}
	if first && len(lines) == 0 {
		f.c.Note("app %s has no machine yet; ^C ends", f.app)
	}
	for _, l := range lines {
		if l.HostStatus != "unreachable" {
			f.join(ctx, l.ID, first)
		}
	}
	return nil
}

// happened follows the machine of an event, if it is new.
func (f *appLog) happened(ctx context.Context, e machine.EventOf) error {
	f.join(ctx, e.Machine, false)
	return nil
}

// join follows a machine, unless it is or was followed.
func (f *appLog) join(ctx context.Context, id string, first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if id == "" || f.on[id] || ctx.Err() != nil {
		return
	}
	f.on[id] = true
	f.all.Go(func() { f.follow(ctx, id, first) })
}

// follow follows a machine until it is destroyed.
func (f *appLog) follow(ctx context.Context, id string, first bool) {
	m, err := f.cl.Machine(ctx, f.app, id)
	if err != nil {
		f.lost(ctx, id, id, err)
		return
	}
	label, free := f.label(cli.Owned(m, f.app))
	defer free()
	q := f.o.q
	f.mu.Lock()
	if q.Cursor = f.cursors[id]; !first || q.Cursor != "" {
		q.Tail = nil // print all output of a new machine
	}
	f.mu.Unlock()
	if !first && q.Cursor == "" {
		f.c.Note("%s has come (machine %s on %s)", label, id, m.Worker)
	}
	p := f.o.printer(f.out, label+" | ")
	show := younger(f.since, p.Print)
	err = f.c.Outlast(ctx, f.cl, label, "souk logs -f "+id, func(ctx context.Context) error {
		return f.cl.Logs(ctx, f.app, id, q, func(l machine.LogLine) error {
			q.Cursor, q.Tail = l.Cursor, nil
			return show(l)
		})
	})
	if err != nil && fault.CodeOf(err) != fault.CodeOutputGone {
		f.mu.Lock()
		f.cursors[id] = q.Cursor
		f.mu.Unlock()
		f.lost(ctx, id, label, err)
		return
	}
	if ctx.Err() == nil {
		f.c.Note("%s has gone (machine %s)", label, id)
	}
}

// label returns a machine's label, and a function that releases it. While one machine replaces another, both have the
// label of the replica, so labels are counted.
func (f *appLog) label(m *machine.Machine) (string, func()) {
	name := standsFor(m)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.labels[name]++
	free := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.labels[name]--
	}
	if f.labels[name] > 1 && name != m.ID {
		return name + " (" + m.ID + ")", free
	}
	return name, free
}

// lost prints that a machine is not followed any more. Following resumes when its worker is reachable.
func (f *appLog) lost(ctx context.Context, id, label string, err error) {
	if ctx.Err() != nil || fault.CodeOf(err) == fault.CodeMachineNotFound ||
		fault.CodeOf(err) == fault.CodeAppNotFound {
		return
	}
	f.c.Note("%s is not followed now: %v", label, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on[id] = false
}
