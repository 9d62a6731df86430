package releases

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// movePatience is how long a machine may take to move to the other host.
const movePatience = 10 * time.Minute

// Move makes the command "souk move".
func Move(c *cli.Env) *cobra.Command {
	to, patience, dry := cluster.WorkerID(""), movePatience, false
	cmd := &cobra.Command{Use: "move MACHINE", Short: "Have a machine go to another host",
		Long: `Have one machine go to another host, as "souk node drain" does with all of a host. Whether the host takes it is asked
first: if it does not, nothing is done, and each reason is said.

A machine of its own is stopped, made anew there, and destroyed here: it has another id and the same name, config and
metadata. Its files and what it has in memory do not go along. What is stopped stays stopped.

For a replica of a service (web/0, or its machine) the service makes another machine there. The old one answers
requests until that one is ready and has been so for min_up, and goes then; of a group whose order is stop-first it goes
first. What does not become ready is removed, and the old one stays. The service leaves it there: the next release may
spread the machines of the group anew. After ^C it goes on; "souk move MACHINE --to" the host where it is has it stay.

A machine with a volume stays, as the volume does. One that is at the host already stays there, and the exit code is 0.`,
		Example: "  souk move web/0 --to fra-2\n  souk move web/0 --to fra-2 --plan\n" +
			"  souk move worker-1 --to fra-2 --json",
		Args: cli.Args(1, 1, "a machine, by id, name or replica")}
	cmd.Flags().StringVar((*string)(&to), "to", "", "the host that is to have it")
	cmd.Flags().DurationVar(&patience, "timeout", patience,
		"how long a replica may take until it is there; then it stays")
	cmd.Flags().BoolVar(&dry, "plan", false, "say only whether it would go now")
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		switch {
		case to == "":
			return cli.Usagef("say with --to which host is to have it; \"souk workers\" lists them")
		case patience <= 0:
			return cli.Usagef("--timeout is more than 0s, not %v", patience)
		}
		cl, m, err := c.One(cmd, argv[0])
		if err != nil {
			return err
		}
		act := cl.Move
		if dry {
			act = cl.PlanMove
		}
		return move(cmd.Context(), c, cl, m, to, patience, act)
	}
	return cmd
}

// moved is what a move prints in --json.
type moved struct {
	App     string           `json:"app"`
	Machine string           `json:"machine"`         // its old id
	Now     string           `json:"now,omitempty"`   // its new id, or that of its replacement
	Worker  cluster.WorkerID `json:"worker"`          // the worker of Now
	From    cluster.WorkerID `json:"from"`            // the old worker
	Already bool             `json:"already"`         // it was at Worker already
	Planned bool             `json:"planned"`         // it would move; nothing was done
	Error   string           `json:"error,omitempty"` // why it stays
}

func move(ctx context.Context, c *cli.Env, cl *client.Client, m *machine.Machine, to cluster.WorkerID,
	patience time.Duration, act func(context.Context, string, string, cluster.WorkerID) (api.Moved, error)) error {
	name, slot := cli.Label(m), release.Slot{}
	if m.Replica != nil && m.Replica.Run == "" {
		slot = release.Slot{Group: m.Replica.Group, Index: m.Replica.Index}
		name = slot.String() + " of " + m.App
	}
	done := c.Progress("%s goes to %s", name, to)
	out, err := act(ctx, m.App, m.ID, to)
	done()
	if err != nil {
		return err
	}
	w := moving{c, cl, m.App, slot, m.ID, out.Worker, to}
	now, down := m.ID, ""
	switch {
	case out.Planned:
		now = ""
	case out.Already:
	case out.Begun:
		if now, err = w.await(ctx, patience); err != nil {
			return err
		}
	default:
		now = out.Machine.ID
		if out.DownMS > 0 {
			down = ", down for " + cli.Millis(time.Duration(out.DownMS*float64(time.Millisecond)))
		}
	}
	line := w.line(now, nil)
	line.Already, line.Planned = out.Already, out.Planned
	switch {
	case c.JSON:
		c.JSONLine(c.Out, line)
	case line.Planned:
		c.Printf("%s would go from %s to %s, which takes it now\n", name, out.Worker, to)
	case line.Already:
		c.Printf("%s is at %s already\n", name, to)
	default:
		c.Printf("%s is at %s now (%s)%s\n", name, line.Worker, line.Now, down)
	}
	return nil
}

// moving is a replica that is being moved to another host.
type moving struct {
	c        *cli.Env
	cl       *client.Client
	app      string
	slot     release.Slot
	machine  string // id of the machine to move
	from, to cluster.WorkerID
}

// line returns what --json prints for the move. now is the machine's id at the other host, "" if nothing was done yet.
// With an error the machine stays at its old host.
func (w *moving) line(now string, failed error) moved {
	line := moved{App: w.app, Machine: w.machine, Now: now, Worker: w.to, From: w.from}
	switch {
	case failed != nil:
		line.Now, line.Worker, line.Error = w.machine, w.from, failed.Error()
	case now == "":
		line.Worker = w.from
	}
	return line
}

// await waits until the replica has a machine at the host and the old one is gone, and returns the new id. It prints
// progress on stderr. If that takes too long, or no machine can be made there, the old one stays.
func (w *moving) await(ctx context.Context, patience time.Duration) (now string, err error) {
	end, stay := time.Now().Add(patience), fmt.Sprintf("souk move %s --to %s", w.machine, w.from)
	err = w.c.Outlast(ctx, w.cl, w.slot.String(), "souk status --app "+w.app, func(ctx context.Context) error {
		now, err = w.look(ctx, end)
		return err
	})
	switch {
	case ctx.Err() != nil:
		w.c.Note("%s of %s goes on to %s all the same; \"%s\" has it stay", w.slot, w.app, w.to, stay)
	case fault.CodeOf(err) == fault.CodeStays:
		if _, undo := w.cl.Move(ctx, w.app, w.machine, w.from); undo != nil {
			w.c.Note("that is still wanted (%v); \"%s\" has it stay", undo, stay)
		}
	}
	return now, err
}

// look polls until the move is over.
func (w *moving) look(ctx context.Context, end time.Time) (string, error) {
	told, seen := "", false
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		s, err := w.cl.Service(ctx, w.app)
		switch {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case err != nil:
			return "", err
		}
		old, next := w.find(&s)
		seen = seen || old != nil && old.To == w.to
		text, over, err := w.stands(old, next, seen)
		switch {
		case err != nil:
			return "", err
		case over:
			return next.Machine, nil
		case time.Now().After(end) && old == nil:
			return "", fault.New(fault.Timeout, codeGone, "%s of %s did not arrive at %s in time, and has left %s: "+
				"%s", w.slot, w.app, w.to, w.from, text)
		case time.Now().After(end):
			return "", fault.New(fault.Timeout, fault.CodeStays,
				"%s of %s was not moved in time and stays at %s: %s",
				w.slot, w.app, w.from, text)
		case text != told:
			told = text
			w.c.Note("%s of %s: %s", w.slot, w.app, text)
		}
		if err := cli.Pause(ctx, pause); err != nil {
			return "", err
		}
	}
}

// find returns the replica's old machine and its replacement: one at the host, else any other; nil: none.
func (w *moving) find(s *api.ServiceStatus) (old, next *api.SlotStatus) {
	for i := range s.Groups {
		if s.Groups[i].Name != w.slot.Group {
			continue
		}
		for j := range s.Groups[i].Slots {
			switch x := &s.Groups[i].Slots[j]; {
			case x.Index != w.slot.Index || x.Machine == "":
			case x.Machine == w.machine:
				old = x
			case next == nil || x.Worker == w.to:
				next = x
			}
		}
	}
	return old, next
}

// stands describes the move's progress, and whether it is over. seen says that the service has shown the move as
// wanted.
func (w *moving) stands(old, next *api.SlotStatus, seen bool) (text string, over bool, err error) {
	stays := func(format string, args ...any) error {
		return fault.New(fault.Precondition, fault.CodeStays, "%s of %s stays at %s: %s", w.slot, w.app, w.from,
			fmt.Sprintf(format, args...))
	}
	well := next != nil && (next.Ready || next.Asleep)
	switch {
	case old == nil && next == nil:
		return "it has no machine; one is being made", false, nil
	case old == nil && !well:
		return fmt.Sprintf("%s is coming up at %s%s", next.Machine, next.Worker, because(next)), false, nil
	case old == nil && next.Worker != w.to:
		return "", false, fault.New(fault.Precondition, codeElsewhere,
			"%s of %s went to %s instead (%s), because %s did not accept it when its turn came",
			w.slot, w.app, next.Worker, next.Machine, w.to)
	case old == nil:
		return "", true, nil
	case seen && old.To != w.to:
		return "", false, fault.New(fault.Conflict, codeOvertaken, "%s of %s no longer moves to %s, because another "+
			"request replaced this one meanwhile", w.slot, w.app, w.to)
	case next == nil && old.Unmade != "":
		return "", false, stays("no machine can be made for it at %s: %s", w.to, old.Unmade)
	case next == nil:
		return "another is to be made at " + string(w.to), false, nil
	case next.Held != "":
		return "", false, stays("its next machine does not run at %s: %s", next.Worker, next.Held)
	case !well:
		return fmt.Sprintf("%s is coming up at %s%s", next.Machine, next.Worker, because(next)), false, nil
	}
	return fmt.Sprintf("%s is ready at %s; %s at %s goes when that has lasted", next.Machine, next.Worker, w.machine,
		w.from), false, nil
}

// because says why a machine is not ready, if known.
func because(x *api.SlotStatus) string {
	if why := cmp.Or(x.Held, x.Unfit); why != "" {
		return ": " + why
	}
	return ""
}
