package slots

import (
	"encoding/json"
	"fmt"

	"github.com/soukhq/souk/core/scheduler"
)

// apart is a Strategy in which each party has an instance of its own. The instance gets the steps of that party only,
// and is told of the jobs in its messages. Whatever a party knew without a message makes such a run differ from the
// run of one instance, or ends it. With wire, so does what a message loses on its way as JSON.
type apart struct {
	wire    bool
	fleet   scheduler.Strategy // takes no step: it is asked what depends on the fleet alone
	parties map[scheduler.Party]*instance
	all     []scheduler.Party
}

// instance is the Strategy of one party.
type instance struct {
	scheduler.Strategy
	known map[int32]bool
}

func setApart(fleet scheduler.Strategy, wire bool, build func() (scheduler.Strategy, error)) (*apart, error) {
	a := &apart{wire: wire, fleet: fleet, parties: map[scheduler.Party]*instance{}}
	n := fleet.Parties()
	for role, count := range []int{n.Workers, n.Buyers, n.Centers} {
		for id := range int32(count) {
			s, err := build()
			if err != nil {
				return nil, err
			}
			p := scheduler.Party{Role: scheduler.Role(role), ID: id}
			a.parties[p] = &instance{Strategy: s, known: map[int32]bool{}}
			a.all = append(a.all, p)
		}
	}
	return a, nil
}

// step has the instance whose step it is take it. It is told of a job before; 0: of none.
func (a *apart) step(d *scheduler.Env, job int32, take func(*instance)) {
	i := a.parties[d.Self]
	if job != 0 {
		i.known[job] = true
	}
	d.Known = i.known
	earlier := len(d.Outs)
	take(i)
	if !a.wire {
		return
	}
	for k := range d.Outs[earlier:] {
		if o := &d.Outs[earlier+k]; !o.Run && !o.Msg.Note {
			o.Msg = a.carry(o.Msg)
		}
	}
}

// carry returns what the receiver reads of a message that was sent as JSON, its payload apart.
func (a *apart) carry(m scheduler.Msg) (read scheduler.Msg) {
	mustCarry := func(err error) {
		if err != nil {
			panic(fmt.Sprintf("slots: a message of kind %d to %v cannot travel: %v", m.Kind, m.Receiver(), err))
		}
	}
	sent, err := json.Marshal(m)
	mustCarry(err)
	var raw []byte
	if m.Payload != nil {
		raw, err = json.Marshal(m.Payload)
		mustCarry(err)
	}
	mustCarry(json.Unmarshal(sent, &read))
	mustCarry(read.ReadPayload(a.parties[read.Receiver()].Strategy, raw))
	return read
}

// Parties implements scheduler.Strategy.
func (a *apart) Parties() scheduler.Parties { return a.fleet.Parties() }

// Entry implements scheduler.Strategy.
func (a *apart) Entry(j scheduler.Job) scheduler.Party { return a.fleet.Entry(j) }

// Arrive implements scheduler.Strategy.
func (a *apart) Arrive(d *scheduler.Env, job int32) {
	a.step(d, job, func(i *instance) { i.Arrive(d, job) })
}

// Deliver implements scheduler.Strategy.
func (a *apart) Deliver(d *scheduler.Env, m scheduler.Msg) {
	job := m.Job
	if m.Note {
		job = 0 // nobody tells anything to itself
	}
	a.step(d, job, func(i *instance) {
		if p, ok := m.Payload.(scheduler.Teller); ok {
			p.Jobs(func(job int32) { i.known[job] = true })
		}
		i.Deliver(d, m)
	})
}

// Ended implements scheduler.Strategy.
func (a *apart) Ended(d *scheduler.Env, job, n int32) {
	a.step(d, 0, func(i *instance) { i.Ended(d, job, n) })
}

// Freed implements scheduler.Strategy.
func (a *apart) Freed(d *scheduler.Env) { a.step(d, 0, func(i *instance) { i.Freed(d) }) }

// Died implements scheduler.Mortal, as its instances do.
func (a *apart) Died(d *scheduler.Env) {
	a.step(d, 0, func(i *instance) { i.Strategy.(scheduler.Mortal).Died(d) })
}

// Noticed implements scheduler.Mortal.
func (a *apart) Noticed(d *scheduler.Env, worker int32) {
	a.step(d, 0, func(i *instance) { i.Strategy.(scheduler.Mortal).Noticed(d, worker) })
}

// Back implements scheduler.Mortal.
func (a *apart) Back(d *scheduler.Env, worker int32) {
	a.step(d, 0, func(i *instance) { i.Strategy.(scheduler.Mortal).Back(d, worker) })
}
