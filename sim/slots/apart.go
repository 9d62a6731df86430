package slots

import "github.com/soukhq/souk/core/scheduler"

// apart is a Strategy in which each party has an instance of its own. The instance gets the steps of that party only,
// and is told of the jobs in its messages. Whatever a party knew without a message makes such a run differ from the
// run of one instance, or ends it.
type apart struct {
	fleet   scheduler.Strategy // takes no step: it is asked what depends on the fleet alone
	parties map[scheduler.Party]*instance
	all     []scheduler.Party
}

// instance is the Strategy of one party.
type instance struct {
	scheduler.Strategy
	known map[int32]bool
}

func setApart(fleet scheduler.Strategy, build func() (scheduler.Strategy, error)) (*apart, error) {
	a := &apart{fleet: fleet, parties: map[scheduler.Party]*instance{}}
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

// stepOf returns the instance whose step it is, which is told of a job; 0: of none.
func (a *apart) stepOf(d *scheduler.Env, job int32) *instance {
	i := a.parties[d.Self]
	if job != 0 {
		i.known[job] = true
	}
	d.Known = i.known
	return i
}

// Parties implements scheduler.Strategy.
func (a *apart) Parties() scheduler.Parties { return a.fleet.Parties() }

// Entry implements scheduler.Strategy.
func (a *apart) Entry(j scheduler.Job) scheduler.Party { return a.fleet.Entry(j) }

// Arrive implements scheduler.Strategy.
func (a *apart) Arrive(d *scheduler.Env, job int32) { a.stepOf(d, job).Arrive(d, job) }

// Deliver implements scheduler.Strategy.
func (a *apart) Deliver(d *scheduler.Env, m scheduler.Msg) {
	job := m.Job
	if m.Note {
		job = 0 // nobody tells anything to itself
	}
	i := a.stepOf(d, job)
	if p, ok := m.Payload.(scheduler.Teller); ok {
		p.Jobs(func(job int32) { i.known[job] = true })
	}
	i.Deliver(d, m)
}

// Ended implements scheduler.Strategy.
func (a *apart) Ended(d *scheduler.Env, job, n int32) { a.stepOf(d, 0).Ended(d, job, n) }

// Freed implements scheduler.Strategy.
func (a *apart) Freed(d *scheduler.Env) { a.stepOf(d, 0).Freed(d) }

// Died implements scheduler.Mortal, as its instances do.
func (a *apart) Died(d *scheduler.Env) { a.mortalOf(d).Died(d) }

// Noticed implements scheduler.Mortal.
func (a *apart) Noticed(d *scheduler.Env, worker int32) { a.mortalOf(d).Noticed(d, worker) }

// Back implements scheduler.Mortal.
func (a *apart) Back(d *scheduler.Env, worker int32) { a.mortalOf(d).Back(d, worker) }

func (a *apart) mortalOf(d *scheduler.Env) scheduler.Mortal {
	return a.stepOf(d, 0).Strategy.(scheduler.Mortal)
}
