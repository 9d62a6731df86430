package gateway

import (
	"net/http"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/decision"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// planLaunch says what a launch would meet now.
func (g *Gateway) planLaunch(w http.ResponseWriter, r *http.Request) error {
	launch, err := readLaunch(w, r)
	if err != nil {
		return err
	}
	p, err := g.broker.Plan(r.Context(), broker.Intent{App: r.PathValue("app"), Launch: launch})
	if err != nil {
		return err
	}
	d := p.Decision
	out := api.Plan{Machine: p.Machine, Verdict: p.Verdict, Worker: d.Winner, Reason: d.Reason, Pending: d.Pending,
		Sentences: p.Sentences, Changes: p.Changes, Decision: d, Equal: p.Equal, Among: p.Among}
	for _, v := range p.Victims {
		out.Victims = append(out.Victims, api.Victims{Worker: v.Worker, Victims: v.Machines, Cost: v.Cost})
	}
	answer(w, http.StatusOK, out)
	return nil
}

// planDrain says where a worker's machines would go.
func (g *Gateway) planDrain(w http.ResponseWriter, r *http.Request) error {
	worker := cluster.WorkerID(r.PathValue("worker"))
	moves, err := g.broker.DrainPlan(r.Context(), worker)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, api.DrainPlan{Worker: worker, Moves: moves})
	return nil
}

// moveMachine makes a machine anew at another worker and destroys it where it was.
func (g *Gateway) moveMachine(w http.ResponseWriter, r *http.Request) error {
	f, err := g.named(r)
	if err != nil {
		return err
	}
	if f.machine.State == machine.Destroyed {
		return fault.New(fault.NotFound, machineMissing, "machine not found")
	}
	m, err := g.broker.Move(r.Context(), broker.Machine{Machine: f.machine, At: f.worker})
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, api.Moved{From: m.From, Worker: m.Worker, Machine: m.Machine, DownMS: decision.Millis(m.Down)})
	return nil
}
