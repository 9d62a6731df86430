package faults

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/soukhq/souk/cli/check/history"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/test/netns"
)

// late is the delay of every packet.
const late = 300 * time.Millisecond

// lossPercent is how much each host loses of what it receives.
const lossPercent = 30

// How bad the network of Slow is.
const (
	slowLate        = 500 * time.Millisecond
	slowLossPercent = 20
)

// scenario is a way to break a cluster. It lasts as long as the run says; the caller repairs the network afterwards.
type scenario struct {
	fault string
	do    func(*run, context.Context) error
}

// scenarios lists all there are.
func scenarios() []scenario {
	return []scenario{
		{Kill, (*run).killing}, {Partition, (*run).partition}, {OneWay, (*run).oneWay}, {Loss, (*run).badNetwork},
		{Delay, (*run).badNetwork}, {Power, (*run).power}, {DiskFull, (*run).diskFull}, {OldDisk, (*run).oldDisk},
		{Stall, (*run).stall}, {Reaper, (*run).killReapers}, {Flap, (*run).flap}, {Slow, (*run).badNetwork},
		{Firewall, (*run).firewall}, {LostFile, (*run).lostFile}, {Exhaustion, (*run).exhaust},
		{PowerLoss, (*run).powerLoss}, {Mixed, (*run).asItIs}, {Clone, (*run).clone}, {PIDs, (*run).noProcesses},
	}
}

// fault carries out the run's fault.
func (r *run) fault(ctx context.Context) error {
	all := scenarios()
	i := slices.IndexFunc(all, func(s scenario) bool { return s.fault == r.o.Fault })
	return all[i].do(r, ctx) // Options.settle has checked the name
}

// asItIs does nothing: the fault exists from the beginning.
func (r *run) asItIs(ctx context.Context) error { return wait(ctx, r.o.For) }

// badNetwork delays what every host receives, or loses some of it, or both.
func (r *run) badNetwork(ctx context.Context) error {
	percent, by := 0, time.Duration(0)
	switch r.o.Fault {
	case Loss:
		percent = lossPercent
	case Delay:
		by = late
	case Slow:
		percent, by = slowLossPercent, slowLate
	}
	for _, h := range r.hosts {
		if percent > 0 {
			if err := h.Lose(percent); err != nil {
				return err
			}
		}
		if by > 0 {
			if err := h.Delay(by); err != nil {
				return err
			}
		}
	}
	return wait(ctx, r.o.For)
}

// killing kills agents, one at a time.
func (r *run) killing(ctx context.Context) error {
	for end := time.Now().Add(r.o.For); time.Now().Before(end); {
		m := r.ms[r.rng.IntN(len(r.ms))]
		op := r.down(m)
		m.kill(r.rng.IntN(3) == 0)
		r.rep.Kills++
		away := time.Duration(r.rng.Int64N(int64(1500 * time.Millisecond)))
		if r.o.Jobs > 0 && r.rng.IntN(3) == 0 {
			away += longAway // its jobs are taken over
		}
		if err := wait(ctx, away); err != nil {
			return err
		}
		if err := m.start(); err != nil {
			return err
		}
		if err := m.ready(ctx); err != nil {
			return err
		}
		r.up(op)
		if err := wait(ctx, time.Duration(r.rng.Int64N(int64(time.Second)))); err != nil {
			return err
		}
	}
	return nil
}

// down and up record that a worker's process was away: its holds end with it.
func (r *run) down(m *member) history.Op {
	r.say("%s is killed", m.id)
	r.batch.isDown(m)
	return history.Op{
		Kind:    history.Killed,
		Worker:  cluster.WorkerID(m.id),
		Call:    time.Now().UnixNano(),
		Outcome: history.Yes,
	}
}

func (r *run) up(op history.Op) {
	op.Return = time.Now().UnixNano()
	r.rec.Add(op)
	r.batch.isUp(string(op.Worker))
	r.say("%s serves again", op.Worker)
}

// partition cuts the cluster in two halves that a shuffle chooses.
func (r *run) partition(ctx context.Context) error {
	side := map[int]bool{}
	for _, i := range r.rng.Perm(len(r.ms))[:len(r.ms)/2] {
		side[i] = true
		r.smaller = append(r.smaller, r.ms[i].id)
		r.say("%s is on the smaller side", r.ms[i].id)
	}
	if err := r.hosts.Part(func(i int) bool { return side[i] }); err != nil {
		return err
	}
	return wait(ctx, r.o.For)
}

// oneWay makes one host deaf to some others; another host every few seconds.
func (r *run) oneWay(ctx context.Context) error {
	for end := time.Now().Add(r.o.For); time.Now().Before(end); {
		order := r.rng.Perm(len(r.ms))
		deaf, to := r.hosts[order[0]], netns.Hosts{}
		for _, i := range order[1 : 1+1+r.rng.IntN(len(order)-1)] {
			to = append(to, r.hosts[i])
		}
		r.say("%s does not hear %d of the others", r.ms[order[0]].id, len(to))
		if err := deaf.Deafen(to...); err != nil {
			return err
		}
		if err := wait(ctx, min(time.Until(end),
			3*time.Second+time.Duration(r.rng.Int64N(int64(5*time.Second))))); err != nil {
			return err
		}
		if err := deaf.Heal(); err != nil {
			return err
		}
	}
	return nil
}

// power kills everything everywhere, and boots all hosts in an order that a shuffle chooses.
func (r *run) power(ctx context.Context) error {
	ops := make([]history.Op, len(r.ms))
	for i, m := range r.ms {
		ops[i] = r.down(m)
		m.powerOff()
	}
	r.rep.Kills += len(r.ms)
	if err := netns.NewBoot(); err != nil {
		return err
	}
	if err := wait(ctx, time.Duration(r.rng.Int64N(int64(time.Second)))); err != nil {
		return err
	}
	for _, i := range r.rng.Perm(len(r.ms)) {
		if err := r.ms[i].start(); err != nil {
			return err
		}
		if err := wait(ctx, time.Duration(r.rng.Int64N(int64(300*time.Millisecond)))); err != nil {
			return err
		}
	}
	for i, m := range r.ms {
		if err := m.ready(ctx); err != nil {
			return err
		}
		r.up(ops[i])
	}
	return wait(ctx, r.o.For)
}

// diskFull fills the disk of the last member, and empties it at the end. The agent must survive without other help.
func (r *run) diskFull(ctx context.Context) error {
	m := r.ms[len(r.ms)-1]
	if err := fill(m.dir); err != nil {
		return err
	}
	r.say("the disk of %s is full", m.id)
	if err := errors.Join(wait(ctx, r.o.For), empty(m.dir)); err != nil {
		return err
	}
	return m.ready(ctx)
}

// oldDisk copies a member's disk, lets it go on, and then kills its host, which comes back with the copy.
func (r *run) oldDisk(ctx context.Context) error {
	m := r.ms[r.rng.IntN(len(r.ms))]
	backup := filepath.Join(r.o.Dir, "backup")
	stopped := r.down(m)
	m.kill(false)
	copied := time.Now().UnixNano()
	if err := copyTree(m.dir, backup); err != nil {
		return err
	}
	if err := m.start(); err != nil {
		return err
	}
	if err := m.ready(ctx); err != nil {
		return err
	}
	r.up(stopped)
	if err := wait(ctx, r.o.For); err != nil {
		return err
	}
	m.powerOff()
	r.rep.Kills++
	r.forgot, r.forgotten[m.id] = true, true
	r.say("%s is dead, its disk is the one of %v ago", m.id, r.o.For)
	if err := errors.Join(os.RemoveAll(m.dir), os.Rename(backup, m.dir), m.start(), m.ready(ctx)); err != nil {
		return err
	}
	r.rec.Add(history.Op{
		Kind:    history.Restored,
		Worker:  cluster.WorkerID(m.id),
		Call:    copied,
		Return:  time.Now().UnixNano(),
		Outcome: history.Yes,
	})
	r.say("%s serves again", m.id)
	return nil
}
