package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/placement"
)

// moveTimeout ends a move that takes too long. It is longer than any grace a stop may have.
const moveTimeout = 10 * time.Minute

// moveMachine makes a machine anew at another worker and destroys it where it was. In this order: room is looked for, the
// machine is stopped, made and started there, and only then destroyed here; where no worker takes it, it is started again.
// Two of one name exist for a moment, never two that run.
//
// The new id follows from the old one, so a move that broke off is gone on with by asking again.
func (g *Gateway) moveMachine(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), moveTimeout)
	defer cancel()
	f, err := g.named(r)
	if err != nil {
		return err
	}
	if f.machine.State == machine.Destroyed {
		return missing()
	}
	unlock, err := g.creates.lock(ctx, "name/"+f.machine.App+"/"+f.machine.Name)
	if err != nil {
		return err
	}
	defer unlock()
	out, err := g.move(ctx, f)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, out)
	return nil
}

func (g *Gateway) move(ctx context.Context, f found) (*api.Moved, error) {
	m, out := f.machine, &api.Moved{From: f.machine.ID, Worker: f.machine.Worker}
	if why := g.tied(ctx, f.worker, m); why != "" {
		return nil, fault.New(fault.Precondition, "stays", "machine %s stays at worker %s: %s", m.ID, m.Worker, why)
	}
	id, there, err := g.successor(ctx, m)
	if err != nil {
		return nil, err
	}
	if there == nil {
		if there, err = g.remake(ctx, f, id, out); err != nil {
			return nil, err
		}
	}
	out.Machine = there
	if err := destroy(ctx, f.worker, m.App, m.ID); err != nil {
		return nil, fault.Wrap(err, fault.KindOf(err), "half_moved", "machine %s is at worker %s now as %s, and the old one is stopped and could not be destroyed; ask again", m.ID, there.Worker, there.ID)
	}
	return out, nil
}

// remake stops the machine and has another worker make it anew.
func (g *Gateway) remake(ctx context.Context, f found, id string, out *api.Moved) (*machine.Machine, error) {
	m, launch := f.machine, relaunch(f.machine, id)
	view := without(g.viewNow(ctx), m.Worker)
	req, policy, err := g.moveRequest(ctx, m, launch, view)
	if err != nil {
		return nil, err
	}
	if ranked := placement.Rank(req, view, policy); len(ranked) == 0 || !ranked[0].Fits {
		return nil, &fault.Error{Kind: fault.Exhausted, Code: "no_capacity", Scope: fault.ScopeRegion, Detail: ranked,
			Text: fmt.Sprintf("machine %s stays where it is: %s", m.ID, stuckReason(ranked))}
	}
	began := time.Now()
	if err := stopped(ctx, f); err != nil {
		return nil, err
	}
	there, err := g.place(ctx, req, lifecycle.Grant{Request: req, Launch: launch, Source: "user"})
	if err == nil && m.State == machine.Started {
		out.DownMS = float64(time.Since(began)) / float64(time.Millisecond)
	}
	if err != nil && m.State == machine.Started && fault.CodeOf(err) != "ambiguous" { // it may run there: one that runs is enough
		c := lifecycle.Command{Verb: lifecycle.Start, App: m.App, Machine: m.ID, Source: "user"}
		if _, again := f.worker.Do(ctx, c); again != nil {
			return nil, fault.Wrap(again, fault.KindOf(err), "half_moved", "no worker took machine %s (%v), and it could not be started again", m.ID, err)
		}
	}
	g.recent.add(there)
	return there, err
}

// stopped stops a machine that runs, and waits until it has.
func stopped(ctx context.Context, f found) error {
	m := f.machine
	if m.State != machine.Started && m.State != machine.Suspended {
		return nil
	}
	if _, err := f.worker.Do(ctx, lifecycle.Command{Verb: lifecycle.Stop, App: m.App, Machine: m.ID, Source: "user"}); err != nil {
		return err
	}
	var now machine.State
	err := f.worker.Watch(ctx, m.App, m.ID, func(x *machine.Machine) bool {
		now = x.State
		return now.Transient()
	})
	if err == nil && now == machine.Started {
		err = fault.New(fault.Conflict, "started_again", "machine %s was started again while it was to be moved; ask again", m.ID)
	}
	return err
}

const maxSuccessors = 8 // ids that a machine's successor may have had before

// successor gives the id under which a machine is made anew, and the machine if that has been done already.
func (g *Gateway) successor(ctx context.Context, m *machine.Machine) (string, *machine.Machine, error) {
	for i := range maxSuccessors {
		sum := sha256.Sum256(fmt.Appendf(nil, "souk move %s %d", m.ID, i))
		id := hex.EncodeToString(sum[:7])
		f, err := g.find(ctx, m.App, id)
		switch {
		case fault.Is(err, fault.NotFound):
			return id, nil, nil
		case err != nil:
			return "", nil, err
		case f.machine.State != machine.Destroyed:
			return id, f.machine, nil
		}
	}
	return "", nil, fault.New(fault.Conflict, "moved_often", "machine %s was moved %d times and none of what it became is left; make it anew", m.ID, maxSuccessors)
}
