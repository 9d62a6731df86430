package main

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

// find gives the machine with exactly this id or exactly this name: never one whose id merely begins so. Without an
// app every app is searched. A destroyed machine is found by its id only.
func (c *cli) find(ctx context.Context, cl *client.Client, ref string) (*machine.Machine, error) {
	app := c.appGiven()
	// The common case costs one small request.
	m, err := cl.Machine(ctx, c.appOrDefault(), ref)
	if err == nil {
		return owned(m, c.appOrDefault()), nil
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
			return owned(m, app), nil
		}
		if m.Name == ref && m.State != machine.Destroyed {
			named = append(named, owned(m, app))
		}
	}
	switch len(named) {
	case 1:
		return named[0], nil
	case 0:
		return nil, fault.New(fault.NotFound, "machine", "no machine has the id or the name %q%s; \"souk ps\" lists them", ref, inApp(app))
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

// owned fills in the app of a machine that a server gave without it.
func owned(m *machine.Machine, app string) *machine.Machine {
	if m.App == "" {
		m.App = app
	}
	return m
}

// label is how a machine is spoken of: its name, and its id where there is no name.
func label(m *machine.Machine) string {
	if m.Name != "" {
		return m.Name
	}
	return m.ID
}

// each does f for every reference. An error is printed at once and the others are still done; the program's exit code
// is then the worst of them.
func (c *cli) each(ctx context.Context, refs []string, f func(context.Context, *client.Client, *machine.Machine) error) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	var errs []error
	for _, ref := range refs {
		m, err := c.find(ctx, cl, ref)
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
		c.printError(fmt.Errorf("%s: %w", ref, err))
	}
	if len(errs) > 0 {
		return several{errs}
	}
	return nil
}

// settle waits until the machine is in a state that stays, and gives it as it is then.
func (c *cli) settle(ctx context.Context, cl *client.Client, m *machine.Machine, end time.Time, limit time.Duration) (*machine.Machine, error) {
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
			return owned(now, m.App), nil
		}
		left := time.Until(end)
		if left <= 0 {
			return nil, fault.New(fault.Timeout, "settle", "machine %s is still %s after %s; it goes on, see \"souk status %s\"",
				label(m), now.State, limit, label(m))
		}
		done := c.progress("%s is %s", label(m), now.State)
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

// completeMachines offers ids and names for the shell's completion.
func (c *cli) completeMachines(cmd *cobra.Command, given []string, typed string) ([]string, cobra.ShellCompDirective) {
	cl, err := c.client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second) // a shell that waits for Tab must not hang
	defer cancel()
	var ms []*machine.Machine
	if app := c.appGiven(); app != "" {
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

// completeFirst completes a machine as the first argument only.
func (c *cli) completeFirst(cmd *cobra.Command, given []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return c.completeMachines(cmd, given, typed)
}
