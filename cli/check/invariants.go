// Package check checks a live cluster against souk's invariants, as far as they show from outside: in the members'
// reports and in this host's processes. Its subpackage history judges recorded calls.
package check

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/cli/check/history"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/machine"
)

// Invariant is the result of checking one invariant. Numbers are those of the design.
type Invariant struct {
	Number   int      `json:"number"`
	Name     string   `json:"name"`
	OK       bool     `json:"ok"`
	Checked  string   `json:"checked"`            // what was checked
	Evidence []string `json:"evidence,omitempty"` // violations, at most maxEvidence, then the number of others
	count    int
}

// maxEvidence bounds what is printed of one invariant.
const maxEvidence = 20

func (i *Invariant) broken(format string, a ...any) {
	if i.count++; i.count <= maxEvidence {
		i.Evidence = append(i.Evidence, fmt.Sprintf(format, a...))
	}
}

func (i *Invariant) close() Invariant {
	if i.OK = i.count == 0; i.count > maxEvidence {
		i.Evidence = append(i.Evidence, fmt.Sprintf("and %d more", i.count-maxEvidence))
	}
	return *i
}

// census is the state that all workers report at one moment.
type census struct {
	records  []cluster.Record
	machines []*machine.Machine
	silent   []string // workers that did not answer, with why
}

// Invariants waits until the cluster is at rest, or within is over, and then checks all invariants.
func Invariants(ctx context.Context, cl *client.Client, ops []history.Op, within time.Duration) ([]Invariant, error) {
	agree, err := checkAgreement(ctx, cl, within)
	if err != nil {
		return nil, err
	}
	all, err := settled(ctx, cl, within)
	if err != nil {
		return nil, err
	}
	out := []Invariant{checkCapacity(all)}
	if ops != nil {
		out = append(out, checkHistory(all, ops))
	}
	lives := livesHere()
	out = append(out, checkProcesses(all, lives), checkWriters(all))
	holds, err := checkHolds(ctx, cl, all)
	if err != nil {
		return nil, err
	}
	services, err := checkServices(ctx, cl, within)
	if err != nil {
		return nil, err
	}
	return append(out, holds, agree, services), nil
}

// look asks every worker for its record and its machines.
func look(ctx context.Context, cl *client.Client) (all census, err error) {
	cl = cl.OnMissing(func(workers []string) {
		for _, id := range workers {
			if text := id + ": it was not asked for its machines"; !slices.Contains(all.silent, text) {
				all.silent = append(all.silent, text)
			}
		}
	})
	w, err := cl.Workers(ctx)
	if err != nil {
		return all, err
	}
	all.records = w.Workers
	for _, u := range w.Unreachable {
		all.silent = append(all.silent, string(u.Worker)+": "+u.Error)
	}
	apps, err := cl.Apps(ctx)
	for _, a := range apps {
		var ms []*machine.Machine
		if ms, err = cl.Machines(ctx, a.Name, client.ListOptions{}); err != nil {
			break
		}
		all.machines = append(all.machines, ms...)
	}
	return all, err
}

// settled polls until no machine is in transition and every worker answers, or within is over, and returns the last
// census.
func settled(ctx context.Context, cl *client.Client, within time.Duration) (all census, err error) {
	deadline := time.Now().Add(within)
	for {
		all, err = look(ctx, cl)
		moving := slices.ContainsFunc(all.machines, func(m *machine.Machine) bool { return m.State.Transient() })
		if err == nil && !moving && len(all.silent) == 0 || time.Now().After(deadline) {
			return all, err
		}
		if err := wait.For(ctx, 200*time.Millisecond); err != nil {
			return all, err
		}
	}
}

func (a census) asked() string {
	text := fmt.Sprintf("%d workers, %d machines", len(a.records), len(a.machines))
	if len(a.silent) > 0 {
		text += "; not asked: " + strings.Join(a.silent, "; ")
	}
	return text
}

// up reports whether a machine occupies its full resources in its worker's ledger.
func up(m *machine.Machine) bool {
	switch m.State {
	case machine.Started, machine.Starting, machine.Stopping, machine.Creating, machine.Restarting, machine.Suspending:
		return true
	}
	return false
}

func checkCapacity(all census) Invariant {
	i := Invariant{
		Number:  1,
		Name:    "no worker has granted more than it has",
		Checked: all.asked() + "; used, and what their machines that are up were granted",
	}
	for _, r := range all.records {
		var sum cluster.Resources
		for _, m := range all.machines {
			if m.Worker == r.Worker && up(m) && m.Config != nil {
				sum = sum.Add(machine.Resources(m.Config))
			}
		}
		for _, d := range sum.Add(r.Used).Dims() {
			if used, granted, has := r.Used.Get(d.Name), sum.Get(d.Name),
				r.Capacity.Get(d.Name); max(used, granted) > has {
				i.broken("worker %s has %d of %s, says that %d are used, and its machines have %d", r.Worker, has,
					d.Name, used,
					granted)
			}
		}
	}
	return i.close()
}

func checkWriters(all census) Invariant {
	i := Invariant{Number: 4, Name: "every machine is claimed by one worker", Checked: all.asked()}
	claims := map[string][]string{}
	for _, m := range all.machines {
		claims[m.ID] = append(claims[m.ID], string(m.Worker))
	}
	for id, ws := range claims {
		if len(ws) > 1 {
			i.broken("machine %s is claimed by %s", id, strings.Join(ws, " and "))
		}
	}
	return i.close()
}

// checkHistory compares the acknowledged machines with the existing ones.
func checkHistory(all census, ops []history.Op) Invariant {
	end := history.End(ops)
	i := Invariant{
		Number:  2,
		Name:    "what was acknowledged is there, once",
		Checked: fmt.Sprintf("%d answers about %d machines against %s", len(ops), len(end), all.asked()),
	}
	there := map[string][]*machine.Machine{}
	for _, m := range all.machines {
		there[m.ID] = append(there[m.ID], m)
	}
	for _, m := range end {
		got := there[m.ID]
		switch {
		case m.Must && len(got) == 0:
			i.broken("machine %s was acknowledged at worker %s, and is nowhere", m.ID, m.Worker)
		case m.Must && len(got) == 1 && (got[0].Worker != m.Worker || got[0].InstanceID != m.Instance):
			i.broken("machine %s was acknowledged at worker %s as %s, and is at %s as %s", m.ID, m.Worker, m.Instance,
				got[0].Worker, got[0].InstanceID)
		case m.Must && len(got) == 1 && got[0].State != machine.Started:
			i.broken("machine %s was acknowledged as started, and is %s: %s", m.ID, got[0].State, lastEvent(got[0]))
		case m.MustNot && len(got) > 0:
			i.broken("machine %s was destroyed or refused, and is %s at worker %s", m.ID, got[0].State, got[0].Worker)
		case len(got) > 1:
			i.broken("machine %s is there %d times", m.ID, len(got))
		}
	}
	return i.close()
}

func lastEvent(m *machine.Machine) string {
	if len(m.Events) == 0 {
		return "nothing is told of why"
	}
	e := m.Events[0]
	return fmt.Sprintf("%s %s%s", e.Type, e.Status, m.Because())
}

// maxHolds is the longest life of a hold, with some time to notice its end.
const maxHolds = market.MaxHoldTTL + 5*time.Second
