package machines

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cli/releases"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// verbFlags are the flags that the verbs share.
type verbFlags struct {
	nonce  string
	limit  time.Duration
	signal string
	grace  time.Duration
	set    *pflag.FlagSet
	force  bool
	noWait bool
}

func (v *verbFlags) register(cmd *cobra.Command, names ...string) *cobra.Command {
	f := cmd.Flags()
	v.set = f
	f.StringVar(&v.nonce, "nonce", "", "the nonce of the machine's lease, when one is held")
	for _, n := range names {
		switch n {
		case "limit":
			f.DurationVar(&v.limit, "timeout", 5*time.Minute, "how long to wait for it to be done")
			f.BoolVar(&v.noWait, "no-wait", false, "do not wait for it to be done")
		case "stop":
			f.StringVar(&v.signal, "signal", "",
				"the signal to send first (default: the machine's own stop signal, else SIGINT)")
			f.DurationVar(&v.grace, "grace", 0,
				"how long the signal may take before the machine is killed; 0s: kill it at once (default: the "+
					"machine's own, else 5s)")
		case "force":
			f.BoolVar(&v.force, "force", false, "also when it runs: kill it")
		}
	}
	return cmd
}

// stops returns the stop options from the flags, and whether to kill at once.
func (v *verbFlags) stops() (o client.StopOptions, kill bool, err error) {
	o = client.StopOptions{Signal: v.signal, Timeout: v.grace}
	switch {
	case v.grace < 0:
		return o, false, cli.Usagef("--grace is 0s or more, not %v", v.grace)
	case v.set.Changed("signal") && v.signal == "":
		return o, false, cli.Usagef("--signal is a signal, such as SIGTERM; leave it out for the machine's own")
	case !v.set.Changed("grace") || v.grace > 0:
		return o, false, nil
	case v.signal != "":
		return o, false, cli.Usagef("--grace 0s kills at once, so no signal is sent before: leave --signal %s out, or "+
			"give it a time", v.signal)
	}
	// In the API a zero timeout means the machine's own, so send SIGKILL.
	o.Signal = "SIGKILL"
	return o, true, nil
}

// done is what a verb prints: in --json one line per machine.
type done struct {
	ID       string        `json:"id"`
	Name     string        `json:"name"`
	App      string        `json:"app"`
	Verb     string        `json:"verb"`
	State    machine.State `json:"state"`
	Previous machine.State `json:"previous_state"`
	TookMS   float64       `json:"took_ms"`
}

// verb makes a command that does one thing to each machine named, waits until it is done, and says so.
func verb(c *cli.Env, cmd *cobra.Command, v *verbFlags, want machine.State,
	act func(context.Context, *client.Client, *machine.Machine) error) *cobra.Command {
	name := cmd.Name()
	cmd.Args = cli.Args(1, -1, "at least one machine, by id or name")
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		if v.limit <= 0 {
			return cli.Usagef("--timeout is more than 0s; --no-wait waits for nothing")
		}
		if _, _, err := v.stops(); err != nil {
			return err
		}
		return c.Together(cmd.Context(), refs, func(ctx context.Context, c *cli.Env, cl *client.Client,
			m *machine.Machine) error {
			begin := time.Now()
			if err := v.act(ctx, cl, m, act); err != nil {
				return err
			}
			now := m
			if !v.noWait {
				var err error
				if now, err = c.Settle(ctx, cl, m, begin.Add(v.limit), v.limit); err != nil {
					return err
				}
			}
			took := time.Since(begin)
			if c.JSON {
				c.JSONLine(c.Out, done{m.ID, m.Name, m.App, name, now.State, m.State, float64(took) / 1e6})
			} else if v.noWait {
				fmt.Fprintf(c.Out, "%s: %s was asked for; it was %s\n", cli.Label(m), name, m.State)
			} else {
				fmt.Fprintf(c.Out, "%s is %s (was %s; %s)\n", cli.Label(m), now.State, m.State, cli.Millis(took))
			}
			if v.noWait || now.State == want || now.State == machine.Destroyed {
				return nil
			}
			return fault.New(fault.Precondition, codeNotReached, "%s is %s, not %s%s", cli.Label(m), now.State, want,
				now.Because())
		})
	}
	return cmd
}

// act runs the verb, and waits for it up to the limit. After that the verb goes on without the command.
func (v *verbFlags) act(ctx context.Context, cl *client.Client, m *machine.Machine,
	act func(context.Context, *client.Client, *machine.Machine) error) error {
	if v.noWait {
		return act(ctx, cl.Async(), m)
	}
	limited, end := context.WithTimeout(ctx, v.limit)
	defer end()
	err := act(limited, cl, m)
	if limited.Err() != nil && ctx.Err() == nil {
		return nil // its state is read next
	}
	return err
}

// Start makes the command "souk start".
func Start(c *cli.Env) *cobra.Command {
	v := new(verbFlags)
	cmd := &cobra.Command{Use: "start MACHINE...", Short: "Start machines that are created, stopped or suspended",
		Example: "  souk start web\n  souk start web worker-1 --json"}
	return v.register(
		verb(c, cmd, v, machine.Started, func(ctx context.Context, cl *client.Client, m *machine.Machine) error {
			_, err := cl.Start(ctx, m.App, m.ID, v.nonce)
			return err
		}),
		"limit",
	)
}

// Stop makes the command "souk stop".
func Stop(c *cli.Env) *cobra.Command {
	v := new(verbFlags)
	cmd := &cobra.Command{Use: "stop MACHINE...", Short: "Stop machines: a signal, a grace, then a kill",
		Long: "Stop machines: a signal, a grace, then a kill. A machine with services gets no more requests first, " +
			"and those that it has are answered, which may take as long as the grace. A request for a service with " +
			"autostart starts it again, where no other machine can take that.",
		Example: "  souk stop web\n  souk stop web --signal SIGTERM --grace 30s"}
	return v.register(
		verb(c, cmd, v, machine.Stopped, func(ctx context.Context, cl *client.Client, m *machine.Machine) error {
			how, _, err := v.stops()
			if err == nil {
				_, err = cl.Stop(ctx, m.App, m.ID, v.nonce, how)
			}
			return err
		}),
		"limit",
		"stop",
	)
}

// Restart makes the command "souk restart".
func Restart(c *cli.Env) *cobra.Command {
	v := new(verbFlags)
	cmd := &cobra.Command{Use: "restart [MACHINE...]", Short: "Stop machines and start them again, as they are",
		Long: `Stop machines and start them again, as they are. "souk restart --app APP" alone has each machine of an app's service
made anew, one after the other: the new one is up before the old one goes.`,
		Example: "  souk restart web\n  souk restart web --force\n  souk restart --app shop"}
	v.register(verb(c, cmd, v, machine.Started, func(ctx context.Context, cl *client.Client, m *machine.Machine) error {
		how, kill, err := v.stops()
		if err == nil {
			_, err = cl.Restart(ctx, m.App, m.ID, v.nonce, v.force || kill, how)
		}
		return err
	}), "limit", "stop")
	cmd.Flags().BoolVar(&v.force, "force", false, "kill at once, without the grace")
	ofMachines := cmd.RunE
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		switch {
		case len(refs) > 0:
			return ofMachines(cmd, refs)
		case c.AppGiven() == "":
			return cli.Usagef("souk restart wants at least one machine, by id or name, or an app with --app")
		}
		return releases.Restart(cmd.Context(), c, c.AppGiven())
	}
	return cmd
}

// Suspend makes the command "souk suspend".
func Suspend(c *cli.Env) *cobra.Command {
	v := new(verbFlags)
	cmd := &cobra.Command{Use: "suspend MACHINE...", Short: "Freeze machines, memory and all; start thaws them",
		Long: "Freeze machines, memory and all; start thaws them. With --to-disk a container of runsc with " +
			"--network none is written to disk and its memory freed; it survives a reboot of its host. Any other " +
			"machine stays in memory, and its newest event says why (souk events).",
		Example: "  souk suspend web\n  souk suspend --to-disk web\n  souk start web"}
	toDisk := false
	act := func(ctx context.Context, cl *client.Client, m *machine.Machine) error {
		suspend := cl.Suspend
		if toDisk {
			suspend = cl.SuspendToDisk
		}
		_, err := suspend(ctx, m.App, m.ID, v.nonce)
		return err
	}
	v.register(verb(c, cmd, v, machine.Suspended, act), "limit")
	cmd.Flags().BoolVar(&toDisk, "to-disk", false, "write the memory to disk and give it back, where that can be")
	return cmd
}

// Destroy makes the command "souk destroy".
func Destroy(c *cli.Env) *cobra.Command {
	v := new(verbFlags)
	cmd := &cobra.Command{Use: "destroy MACHINE...", Aliases: []string{"rm"}, Short: "Remove machines for ever",
		Long: "Remove machines for ever, with their files and output. Volumes stay. A machine that runs is refused " +
			"without --force. One that a service keeps is made again: souk apps destroy APP ends them, or souk scale " +
			"APP GROUP=0.",
		Example: "  souk destroy web\n  souk destroy --force web worker-1"}
	var said sync.Map // groups that a warning has named already
	return v.register(
		verb(c, cmd, v, machine.Destroyed, func(ctx context.Context, cl *client.Client, m *machine.Machine) error {
			_, err := cl.Destroy(ctx, m.App, m.ID, v.nonce, v.force)
			if r := m.Replica; err == nil && r != nil && r.Run == "" {
				if _, again := said.LoadOrStore(m.App+"/"+r.Group, true); !again {
					c.Note("%s is a machine of the service %s, which makes another: souk apps destroy %s ends it, or "+
						"souk scale %s %s=0", r.Slot(), m.App, m.App, m.App, r.Group)
				}
			}
			return err
		}),
		"limit",
		"force",
	)
}

// Signal makes the command "souk signal".
func Signal(c *cli.Env) *cobra.Command {
	v := new(verbFlags)
	var sig string
	cmd := &cobra.Command{Use: "signal MACHINE...", Short: "Send a signal to machines' main processes",
		Example: "  souk signal web --signal SIGHUP\n  souk signal web -s 10",
		Args:    cli.Args(1, -1, "at least one machine, by id or name")}
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		return c.Together(cmd.Context(), refs, func(ctx context.Context, c *cli.Env, cl *client.Client,
			m *machine.Machine) error {
			if err := cl.Signal(ctx, m.App, m.ID, v.nonce, sig); err != nil {
				return err
			}
			if c.JSON {
				c.JSONLine(c.Out, done{ID: m.ID, Name: m.Name, App: m.App, Verb: "signal", State: m.State,
					Previous: m.State})
				return nil
			}
			fmt.Fprintf(c.Out, "%s was sent %s\n", cli.Label(m), sig)
			return nil
		})
	}
	cmd.Flags().StringVarP(&sig, "signal", "s", "SIGTERM", "the signal, by name or number")
	return v.register(cmd)
}
