package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Find returns the machine with exactly this id or exactly this name: never one whose id merely begins so. Without an
// app every app is searched. A destroyed machine is found by its id only.
func (c *Env) Find(ctx context.Context, cl *client.Client, ref string) (*machine.Machine, error) {
	app := c.AppGiven()
	// The common case costs one small request.
	m, err := cl.Machine(ctx, c.AppOrDefault(), ref)
	if err == nil {
		return Owned(m, c.AppOrDefault()), nil
	}
	if !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	var ms []*machine.Machine
	if app != "" {
		ms, err = cl.Machines(ctx, app, client.ListOptions{Destroyed: true})
	} else {
		ms, err = cl.AllMachines(ctx, client.ListOptions{Destroyed: true})
	}
	if err != nil {
		return nil, err
	}
	var named []*machine.Machine
	for _, m := range ms {
		if m.ID == ref {
			return Owned(m, app), nil
		}
		if m.Name == ref && m.State != machine.Destroyed {
			named = append(named, Owned(m, app))
		}
	}
	switch len(named) {
	case 1:
		return named[0], nil
	case 0:
		return nil, fault.New(fault.NotFound, "machine", "no machine has the id or the name %q%s; \"souk ps\" lists them",
			ref, inApp(app))
	}
	apps := make([]string, len(named))
	for i, m := range named {
		apps[i] = m.App
	}
	slices.Sort(apps)
	return nil, fault.New(fault.Conflict, "ambiguous", "%d machines are named %q, in the apps %s; give --app, or the id",
		len(named), ref, strings.Join(apps, ", "))
}

func inApp(app string) string {
	if app == "" {
		return ""
	}
	return " in app " + app
}

// Owned fills in the app of a machine that a server gave without it.
func Owned(m *machine.Machine, app string) *machine.Machine {
	if m.App == "" {
		m.App = app
	}
	return m
}

// Label is how a machine is spoken of: its name, and its id where there is no name.
func Label(m *machine.Machine) string {
	if m.Name != "" {
		return m.Name
	}
	return m.ID
}

// Each does f for every reference. An error is printed at once and the others are still done; the program's exit code
// is then the worst of them.
func (c *Env) Each(ctx context.Context, refs []string,
	f func(context.Context, *client.Client, *machine.Machine) error) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	var errs []error
	for _, ref := range refs {
		m, err := c.Find(ctx, cl, ref)
		if err == nil {
			err = f(ctx, cl, m)
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

// Settle waits until the machine is in a state that stays, and gives it as it is then.
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
			return nil, fault.New(fault.Timeout, "settle", "machine %s is still %s after %s; it goes on, see \"souk status %s\"",
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

// CompleteMachines offers ids and names for the shell's completion.
func (c *Env) CompleteMachines(cmd *cobra.Command, given []string, typed string) ([]string, cobra.ShellCompDirective) {
	cl, err := c.Client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second) // a shell that waits for Tab must not hang
	defer cancel()
	var ms []*machine.Machine
	if app := c.AppGiven(); app != "" {
		ms, err = cl.Machines(ctx, app, client.ListOptions{})
	} else {
		ms, err = cl.AllMachines(ctx, client.ListOptions{})
	}
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, m := range ms {
		for _, s := range [][2]string{{m.Name, m.ID}, {m.ID, m.Name}} {
			if s[0] != "" && strings.HasPrefix(s[0], typed) && !slices.Contains(given, s[0]) {
				out = append(out, fmt.Sprintf("%s\t%s, %s", s[0], s[1], m.State))
			}
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// CompleteFirst completes a machine as the first argument only.
func (c *Env) CompleteFirst(cmd *cobra.Command, given []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return c.CompleteMachines(cmd, given, typed)
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
