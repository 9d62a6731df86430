package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Find returns the machine with exactly this id or exactly this name: never by a prefix of its id. Without an app every
// app is searched. A destroyed machine is found by its id only. GROUP/INDEX is a replica's machine: of the given app,
// else of this directory's souk.toml, else of the only app that has it. gang/ID is the only machine of a gang; see
// Members.
func (c *Env) Find(ctx context.Context, cl *client.Client, ref string) (*machine.Machine, error) {
	if machine.IsGang(ref) {
		return c.onlyOfGang(ctx, cl, ref)
	}
	if machine.IsSlot(ref) {
		return findReplica(ctx, cl, cmp.Or(c.AppGiven(), FolderApp()), ref)
	}
	app := c.AppGiven()
	// The common case costs one small request.
	m, err := cl.Machine(ctx, c.AppOrDefault(), ref)
	if err == nil {
		return Owned(m, c.AppOrDefault()), nil
	}
	_, answered := fault.Detail[client.ErrorAnswer](err)
	if !fault.Is(err, fault.NotFound) && (!answered || !fault.Is(err, fault.Unavailable)) {
		return nil, err
	}
	unsure := err
	named, err := cl.MachineLines(ctx, client.LineOptions{App: app, Name: ref})
	if err != nil {
		return nil, err
	}
	if len(named) == 0 { // perhaps the id of another app's or a destroyed machine
		if m, err := elsewhere(ctx, cl, app, ref); m != nil || err != nil {
			return m, err
		}
		if fault.Is(unsure, fault.Unavailable) {
			return nil, unsure
		}
		if j, err := cl.Job(ctx, ref); err == nil {
			return nil, fault.New(fault.NotFound, fault.CodeJob,
				"%q is a job, not a machine: \"souk job status %s\" shows it; see souk job --help", ref,
				cmp.Or(j.Spec.Name, j.ID))
		}
		return nil, fault.New(fault.NotFound, codeMachine,
			"no machine has the id or the name %q%s; \"souk ps\" lists them",
			ref, inApp(app))
	}
	if len(named) > 1 {
		return nil, ambiguous(named, ref)
	}
	m, err = cl.Machine(ctx, named[0].App, named[0].ID)
	if err != nil {
		return nil, err
	}
	return Owned(m, named[0].App), nil
}

// findReplica returns a replica's machine in an app; "": in the only app that has it.
func findReplica(ctx context.Context, cl *client.Client, app, slot string) (*machine.Machine, error) {
	lines, err := cl.MachineLines(ctx, client.LineOptions{App: app, Name: slot})
	if err != nil {
		return nil, err
	}
	switch len(lines) {
	case 0:
		return nil, fault.New(fault.NotFound, machine.CodeReplica,
			"replica %s%s has no machine; \"souk status APP\" lists the replicas of an app", slot, inApp(app))
	case 1:
		m, err := cl.Machine(ctx, lines[0].App, lines[0].ID)
		if err != nil {
			return nil, err
		}
		return Owned(m, lines[0].App), nil
	}
	return nil, ambiguousReplica(lines, slot)
}

// ambiguousReplica is the error of a replica with several machines: of several apps, or while one replaces another.
func ambiguousReplica(lines []*machine.Line, slot string) error {
	apps := map[string]bool{}
	ids := make([]string, len(lines))
	for i, m := range lines {
		apps[m.App] = true
		ids[i] = fmt.Sprintf("%s (%s, on %s)", m.ID, m.State, m.Worker)
	}
	if len(apps) == 1 {
		return fault.New(fault.Conflict, fault.CodeAmbiguous,
			"%d machines of app %s are replica %s now: %s; give the id of one",
			len(lines), lines[0].App, slot, strings.Join(ids, ", "))
	}
	return fault.New(fault.Conflict, fault.CodeAmbiguous, "the apps %s have a replica %s each; give --app, or the id",
		strings.Join(slices.Sorted(maps.Keys(apps)), ", "), slot)
}

// FolderApp returns the app that the souk.toml of this directory names; "" if there is no such file, or it names none.
func FolderApp() string {
	text, err := os.ReadFile("souk.toml")
	if err != nil {
		return ""
	}
	var file struct {
		App string `toml:"app"`
	}
	if toml.Unmarshal(text, &file) != nil { // "souk deploy" reports what is wrong
		return ""
	}
	return file.App
}

// ambiguous is the error of a name that several machines have.
func ambiguous(named []*machine.Line, name string) error {
	apps := map[string]bool{}
	ids := make([]string, len(named))
	for i, m := range named {
		apps[m.App] = true
		ids[i] = fmt.Sprintf("%s on %s", m.ID, m.Worker)
	}
	if len(apps) == 1 {
		return fault.New(fault.Conflict, fault.CodeAmbiguous, "%d machines of app %s are named %q: %s; give the id",
			len(named), named[0].App, name, strings.Join(ids, ", "))
	}
	return fault.New(fault.Conflict, fault.CodeAmbiguous,
		"%d machines are named %q, in the apps %s; give --app, or the id",
		len(named), name, strings.Join(slices.Sorted(maps.Keys(apps)), ", "))
}

// elsewhere returns the machine with an id in any app; nil: none.
func elsewhere(ctx context.Context, cl *client.Client, app, id string) (*machine.Machine, error) {
	if !machine.ValidID(id) {
		return nil, nil
	}
	lines, err := cl.MachineLines(ctx, client.LineOptions{App: app, ListOptions: client.ListOptions{Destroyed: true}})
	if err != nil {
		return nil, err
	}
	for _, l := range lines {
		if l.ID == id {
			m, err := cl.Machine(ctx, l.App, id)
			if err != nil {
				return nil, err
			}
			return Owned(m, l.App), nil
		}
	}
	return nil, nil
}

func inApp(app string) string {
	if app == "" {
		return ""
	}
	return " in app " + app
}

// Owned fills in a machine's app, which some answers lack.
func Owned(m *machine.Machine, app string) *machine.Machine {
	if m.App == "" {
		m.App = app
	}
	return m
}

// Label returns a machine's display name: its name, and its id where there is no name.
func Label(m *machine.Machine) string {
	if m.Name != "" {
		return m.Name
	}
	return m.ID
}

// Each calls f for every reference. It prints an error at once and continues; the exit code is then the worst one.
func (c *Env) Each(ctx context.Context, refs []string,
	f func(context.Context, *client.Client, *machine.Machine) error) error {
	none := func(context.Context, *client.Client, string) bool { return false }
	return c.EachOr(ctx, refs, none, f)
}

// EachOr is Each for references that need not be machines: if no machine has the id or name it calls other, which
// reports whether it handled the reference.
func (c *Env) EachOr(ctx context.Context, refs []string, other func(context.Context, *client.Client, string) bool,
	f func(context.Context, *client.Client, *machine.Machine) error) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	if refs, err = c.Members(ctx, cl, refs); err != nil {
		return err
	}
	var errs []error
	for _, ref := range refs {
		m, err := c.Find(ctx, cl, ref)
		if err == nil {
			err = f(ctx, cl, m)
		} else if fault.Is(err, fault.NotFound) && other(ctx, cl, ref) {
			err = nil
		}
		if err == nil {
			continue
		}
		if ctx.Err() != nil || len(refs) == 1 {
			return err
		}
		errs = append(errs, err)
		c.PrintError(fmt.Errorf("%s: %w", ref, err))
	}
	if len(errs) > 0 {
		return Several{Errs: errs}
	}
	return nil
}

// Settle waits until the machine is in a state that stays, and returns it.
func (c *Env) Settle(ctx context.Context, cl *client.Client, m *machine.Machine, end time.Time,
	limit time.Duration) (*machine.Machine, error) {
	for {
		now, err := cl.Machine(ctx, m.App, m.ID)
		if fault.Is(err, fault.NotFound) {
			gone := *m
			gone.State = machine.Destroyed
			return &gone, nil
		}
		if err != nil {
			return nil, err
		}
		if !now.State.Transient() {
			return Owned(now, m.App), nil
		}
		left := time.Until(end)
		if left <= 0 {
			return nil, fault.New(fault.Timeout, codeSettle,
				"machine %s is still %s after %s; the operation continues: see \"souk status %s\"",
				Label(m), now.State, limit, Label(m))
		}
		done := c.Progress("%s is %s", Label(m), now.State)
		err = cl.Wait(ctx, m.App, m.ID, min(left, time.Minute), client.Settled)
		done()
		if err != nil && !fault.Is(err, fault.Timeout) && !fault.Is(err, fault.NotFound) {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// One resolves the only machine of a command.
func (c *Env) One(cmd *cobra.Command, ref string) (*client.Client, *machine.Machine, error) {
	cl, err := c.Client()
	if err != nil {
		return nil, nil, err
	}
	m, err := c.Find(cmd.Context(), cl, ref)
	return cl, m, err
}
