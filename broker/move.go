package broker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Moved is the result of a move.
type Moved struct {
	From    string // the machine's id before
	Worker  cluster.WorkerID
	Machine *machine.Machine // as it is now
	Down    time.Duration    // between its stop and its start, 0 where it did not run
}

const (
	// moveTimeout ends a move that takes too long. It exceeds the longest grace of a stop.
	moveTimeout = 10 * time.Minute
	// maxSuccessors bounds how many successors of a machine may be over before a new one is refused.
	maxSuccessors = 8
)

// Move makes a machine again at another worker and destroys the old one. It looks for room, stops the machine, makes
// and starts it there, and only then destroys it here; if no worker takes it, it starts it again. For a moment two
// machines of one name exist, but only one runs. It goes on when ctx is cancelled.
//
// to is the only worker that may take it; "": any other. The new id follows from the old one, so calling Move again
// continues one that broke off.
func (b *Broker) Move(ctx context.Context, m Machine, to cluster.WorkerID) (*Moved, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), moveTimeout)
	defer cancel()
	unlock, err := b.creates.lockKey(ctx, "move/"+m.App+"/"+m.ID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := b.whyCannotLeave(ctx, m); err != nil {
		return nil, err
	}
	id, there, err := b.successorOf(ctx, m)
	if err != nil {
		return nil, err
	}
	out := &Moved{From: m.ID, Worker: m.Worker, Machine: there}
	if there == nil {
		if err := b.remakeMachine(ctx, m, id, to, out); err != nil {
			return nil, err
		}
	}
	if err := destroyMachine(ctx, m.At, m.App, m.ID); err != nil {
		return nil, fault.Wrap(err, fault.KindOf(err), codeHalfMoved,
			"machine %s was moved to worker %s as machine %s, and the old machine is stopped but could not be "+
				"destroyed; ask again",
			m.ID, out.Machine.Worker, out.Machine.ID)
	}
	return out, nil
}

// whyCannotLeave returns why a machine cannot leave its worker; nil: it can, if another takes it.
func (b *Broker) whyCannotLeave(ctx context.Context, m Machine) error {
	if m.Replica != nil {
		return fault.New(fault.Precondition, machine.CodeReplica,
			"machine %s is a replica of a service, which would replace it by another machine: name the worker that "+
				"it is to move to", m.ID)
	}
	if why := b.whatTies(ctx, m); why != "" {
		return fault.New(fault.Precondition, fault.CodeStays, "machine %s stays at worker %s: %s", m.ID, m.Worker, why)
	}
	return nil
}

// MayMove returns why a Move would leave a machine where it is now; nil: it would not. Nothing is made or reserved.
func (b *Broker) MayMove(ctx context.Context, m Machine, to cluster.WorkerID) error {
	if err := b.whyCannotLeave(ctx, m); err != nil {
		return err
	}
	in := Intent{App: m.App, Launch: relaunchOf(m.Machine, successorID(m.ID, 0)), Replaces: &m, At: to}
	return b.Takes(ctx, in, m.ID, m.Worker)
}

// remakeMachine makes the machine again at another worker, and restarts the old one if no worker takes it.
func (b *Broker) remakeMachine(ctx context.Context, m Machine, id string, to cluster.WorkerID, out *Moved) error {
	placed, err := b.Place(ctx, Intent{App: m.App, Launch: relaunchOf(m.Machine, id), Replaces: &m, At: to})
	if err == nil {
		out.Machine = placed.Machines[0]
		if m.State == machine.Started {
			out.Down = time.Since(m.stopped)
		}
		return nil
	}
	// the app was deleted: the old machine goes, too
	gone := fault.CodeOf(err) == fault.CodeAppNotFound
	if !m.stopped.IsZero() && wantsUp(m.Machine) && !gone && !isUncertain(err) {
		// restart only if it was surely not made elsewhere: two must never run
		c := lifecycle.Command{Verb: lifecycle.Start, App: m.App, Machine: m.ID, Source: machine.SourceUser}
		if _, again := m.At.Do(ctx, c); again != nil {
			return fault.Wrap(again, fault.KindOf(err), codeHalfMoved,
				"no worker accepted machine %[1]s (%[2]v), and its old worker could not start it again: souk start "+
					"%[1]s", m.ID, err)
		}
	}
	return err
}

// vacateOld stops the machine that an order replaces, once checkFits has found room for the order elsewhere.
func (b *Broker) vacateOld(ctx context.Context, o *Order) error {
	if o.Replaces == nil {
		return nil
	}
	if err := b.checkFits(ctx, o, o.Replaces.ID, o.Replaces.Worker); err != nil {
		return err
	}
	return o.Replaces.stopAndWait(ctx)
}

// checkFits returns why no worker would take an order that replaces machine id of worker at; nil: one would.
func (b *Broker) checkFits(ctx context.Context, o *Order, id string, at cluster.WorkerID) error {
	p, view := o.Purchases[0], viewWithout(b.fleet.View(ctx), at)
	why := stuckReason
	if o.At != "" {
		view.Workers = slices.DeleteFunc(view.Workers, func(r cluster.Record) bool { return r.Worker != o.At })
		why = func(ranked []machine.Candidate) string { return refusedAt(o.At, ranked) }
	}
	ranked := b.withPorts(ctx, &p.Request, placement.Rank(p.Request, view, p.Policy), drainView{})
	if len(ranked) == 0 || !ranked[0].Fits {
		return &fault.Error{Kind: fault.Exhausted, Code: fault.CodeNoCapacity, Scope: fault.ScopeRegion, Detail: ranked,
			Text: fmt.Sprintf("machine %s stays where it is: %s", id, why(ranked))}
	}
	return nil
}

// Takes returns why the worker of an intent would not now take a machine that replaces machine id of worker at; nil: it
// would. Nothing is made or reserved.
func (b *Broker) Takes(ctx context.Context, in Intent, id string, at cluster.WorkerID) error {
	o, err := b.openOrder(in)
	if err != nil {
		return err
	}
	if err := b.prepareOrder(ctx, o); err != nil {
		return err
	}
	return b.checkFits(ctx, o, id, at)
}

// refusedAt returns all reasons against a worker in a ranking.
func refusedAt(w cluster.WorkerID, ranked []machine.Candidate) string {
	if len(ranked) == 0 {
		return fmt.Sprintf("worker %s is not heard, or not known", w)
	}
	var no []string
	for _, c := range ranked[0].Failing {
		no = append(no, placement.ClauseText(c))
	}
	return fmt.Sprintf("worker %s does not take it: %s", w, strings.Join(no, "; "))
}

// stopAndWait stops a machine that runs or would be restarted, and waits until it has stopped.
func (m *Machine) stopAndWait(ctx context.Context) error {
	if !wantsUp(m.Machine) && m.State != machine.Suspended {
		return nil
	}
	began := time.Now()
	if _, err := m.At.Do(ctx, lifecycle.Command{Verb: lifecycle.Stop, App: m.App, Machine: m.ID,
		Source: machine.SourceUser}); err != nil {
		return err
	}
	var now machine.State
	err := m.At.Watch(ctx, m.App, m.ID, func(x *machine.Machine) bool {
		now = x.State
		return now.Transient()
	})
	if err == nil && now == machine.Started {
		err = fault.New(fault.Conflict, codeStartedAgain,
			"machine %s was started again during its move; ask again", m.ID)
	}
	if err == nil {
		m.stopped = began
	}
	return err
}

// successorOf returns the id of the machine that replaces another, and that machine if it exists already.
func (b *Broker) successorOf(ctx context.Context, m Machine) (string, *machine.Machine, error) {
	for i := range maxSuccessors {
		id := successorID(m.ID, i)
		_, there, err := b.directory.Find(ctx, m.App, id)
		switch {
		case fault.Is(err, fault.NotFound):
			return id, nil, nil
		case err != nil:
			return "", nil, err
		case there.State != machine.Destroyed:
			return id, there, nil
		}
	}
	return "", nil, fault.New(fault.Conflict, codeMovedOften,
		"machine %s was moved %d times, and none of the machines that replaced it exists any more; make it again",
		m.ID, maxSuccessors)
}

// successorID returns the id of a machine's successor after i earlier successors that are over.
func successorID(id string, i int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "souk move %s %d", id, i))
	return hex.EncodeToString(sum[:7])
}

// whatTies says what ties a machine to its worker; "" when nothing does.
func (b *Broker) whatTies(ctx context.Context, m Machine) string {
	switch {
	case m.Config == nil || m.Config.Image == "":
		return "its config is not known, as its worker cannot be asked"
	case len(m.Config.Mounts) > 0:
		return "its volume is there: copy what is on it, destroy both and make them anew"
	case m.Config.AutoDestroy:
		return "it goes by itself when it ends (auto_destroy)"
	case isBusy(m.Machine):
		return fmt.Sprintf("it is %s; ask again when that is over", m.State)
	}
	if l, err := m.At.CurrentLease(ctx, m.App, m.ID); err == nil {
		return fmt.Sprintf("%s holds its lease", cmp.Or(l.Owner, "somebody"))
	}
	return ""
}

// isBusy reports whether an operation on a machine is under way that ends by itself. A machine between two restarts,
// which may go on for ever, counts as stopped.
func isBusy(m *machine.Machine) bool { return m.State.Transient() && m.State != machine.Restarting }

// wantsUp reports whether a machine runs, or will restart by itself after a crash or an eviction.
func wantsUp(m *machine.Machine) bool {
	return m.State == machine.Started || m.State == machine.Restarting || m.Returns
}

// MetadataMoved is machine.MetadataMoved.
const MetadataMoved = machine.MetadataMoved

// relaunchOf returns the launch that makes a machine again under an id. It stays in its region, and a stopped machine
// stays stopped.
func relaunchOf(m *machine.Machine, id string) *machine.Launch {
	c := *m.Config
	c.Image = machine.Pinned(m) // the same image, whatever its name means by now
	c.Metadata = map[string]string{MetadataMoved: m.ID}
	for k, v := range m.Config.Metadata {
		if k != MetadataMoved && k != machine.MetadataEpoch {
			c.Metadata[k] = v
		}
	}
	c.Metadata[machine.MetadataEpoch] = strconv.FormatUint(machine.FenceEpoch(m)+1, 10)
	return &machine.Launch{ID: id, Name: m.Name, Region: string(m.Region), Config: &c, Scheduling: m.Scheduling,
		SkipLaunch: !wantsUp(m), SkipServiceRegistration: m.Cordoned, UnixUser: m.UnixUser}
}
