package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
)

// placingAPI serves plans and gangs.
type placingAPI struct {
	catalog   ownAppMaker
	broker    placingBroker
	directory *directory
	jobs      jobNames // nil: jobs are not accepted, and their names are unknown here
}

// jobNames is what placingAPI needs of the jobs of all members.
type jobNames interface {
	Status(ctx context.Context, job string) (jobs.Job, []find.Unanswered, error)
}

// placingBroker is what placingAPI needs of the broker.
type placingBroker interface {
	Place(ctx context.Context, in broker.Intent) (*broker.Placed, error)
	Plan(ctx context.Context, in broker.Intent) (*broker.Plan, error)
	DrainPlan(ctx context.Context, worker cluster.WorkerID) (*api.DrainPlan, error)
}

func (a *placingAPI) opHandlers() handlers {
	return handlers{
		"POST /v1/souk/apps/{app}/plan":       a.planLaunch,
		"GET /v1/souk/workers/{worker}/drain": a.planDrain,
		"POST /v1/souk/apps/{app}/gangs":      a.createGang,
	}
}

// planLaunch says how a launch would be placed now.
func (a *placingAPI) planLaunch(w http.ResponseWriter, r *http.Request) error {
	launch, err := readLaunch(w, r)
	if err != nil {
		return err
	}
	if err := settleOwnerOf(r, r.PathValue("app"), launch); err != nil {
		return err
	}
	p, err := a.broker.Plan(r.Context(), broker.Intent{App: r.PathValue("app"), Launch: launch})
	if err != nil {
		return err
	}
	d := p.Decision
	out := api.Plan{Machine: p.Machine, Verdict: p.Verdict, Worker: d.Winner, Reason: d.Reason, Pending: d.Pending,
		Sentences: p.Sentences, Changes: p.Changes, Decision: d, Equal: p.Equal, Among: p.Among}
	for _, v := range p.Victims {
		out.Victims = append(out.Victims, a.namedVictims(v))
	}
	answerJSON(w, http.StatusOK, out)
	return nil
}

// namedVictims returns the machines that a worker would evict, with their names.
func (a *placingAPI) namedVictims(v broker.Victims) api.Victims {
	out := api.Victims{Worker: v.Worker, Cost: v.Cost}
	for _, m := range v.Eviction.Victims {
		out.Victims, out.Evicted = append(out.Victims, m.Machine), append(out.Evicted, a.directory.evicteeOf(m))
	}
	return out
}

// evicteeOf returns an evicted machine, with its name.
func (d *directory) evicteeOf(v market.Victim) api.Evictee {
	x := api.Evictee{Machine: v.Machine, App: v.App, Band: machine.BandOfRank(v.Rank), Cost: v.Cost, Why: v.Why}
	if k, there := d.Fleet.Snapshot().Machine(v.Machine); there {
		x.Name = k.Name
	}
	return x
}

// planDrain says where a worker's machines would go, and lists its tasks and volumes.
func (a *placingAPI) planDrain(w http.ResponseWriter, r *http.Request) error {
	plan, err := a.broker.DrainPlan(r.Context(), cluster.WorkerID(r.PathValue("worker")))
	if err != nil {
		return err
	}
	a.nameTasks(r.Context(), plan.Tasks)
	answerJSON(w, http.StatusOK, plan)
	return nil
}

// namesTime bounds how long an answer waits for the names of jobs.
const namesTime = time.Second

// nameTasks sets the names of the tasks' jobs, as far as they are found in time.
func (a *placingAPI) nameTasks(ctx context.Context, tasks []api.DrainTasks) {
	if a.jobs == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, namesTime)
	defer cancel()
	names := map[string]string{}
	for i := range tasks {
		id := tasks[i].Job
		if _, asked := names[id]; !asked && ctx.Err() == nil {
			j, _, err := a.jobs.Status(ctx, id)
			if err != nil {
				j = jobs.Job{} // it stays without a name
			}
			names[id] = j.Spec.Name
		}
		tasks[i].Name = names[id]
	}
}

// createGang places a gang, all or nothing.
func (a *placingAPI) createGang(w http.ResponseWriter, r *http.Request) error {
	app, err := openAppFor(r, a.catalog, r.PathValue("app"))
	if err != nil {
		return err
	}
	var body api.GangRequest
	if err := readJSON(w, r, &body, false); err != nil {
		return err
	}
	gang, err := gangOf(&body)
	if err != nil {
		return err
	}
	if err := settleOwnerOf(r, app.Name, body.Launch); err != nil {
		return err
	}
	placed, err := a.broker.Place(r.Context(), broker.Intent{App: app.Name, Launch: body.Launch, Gang: gang})
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, api.Gang{Gang: placed.Gang, Machines: placed.Machines, Size: body.Size,
		Tries: placed.Tries, Refusals: placed.Refusals})
	return nil
}

// gangOf reads the gang's terms from the body.
func gangOf(b *api.GangRequest) (*broker.Gang, error) {
	if b.Launch == nil || b.Launch.Config == nil {
		return nil, fault.New(fault.Invalid, fault.CodeGang,
			"a gang needs a launch: what each of its machines is to run")
	}
	most := broker.MaxGangWait.Seconds() // larger values could overflow a Duration
	if !(b.Wait >= 0 && b.Wait <= most) {
		return nil, fault.New(fault.Invalid, fault.CodeGang, "wait is 0 to %v seconds; got %v", most, b.Wait)
	}
	gang := &broker.Gang{Size: b.Size, Min: b.Min, Same: b.Same, Wait: time.Duration(b.Wait * float64(time.Second))}
	if err := gang.Valid(b.Launch); err != nil {
		return nil, err
	}
	return gang, broker.CheckLaunch(b.Launch)
}

// The market's own verbs, for schedulers outside of souk: these read the view, choose a worker themselves, and ask it
// by its id. They may do no more than souk's own strategies: the worker judges every grant.

// bidsAPI serves bids: quotes, holds and grants at a named worker.
type bidsAPI struct {
	catalog   appOpener
	broker    bidBroker
	directory *directory
}

// appOpener is what bidsAPI needs of the catalog.
type appOpener interface {
	OpenApp(name string) (catalog.App, error)
}

// bidBroker is what bidsAPI needs of the broker.
type bidBroker interface {
	Place(ctx context.Context, in broker.Intent) (*broker.Placed, error)
	Quote(ctx context.Context, of broker.Offer) (market.Quote, error)
	Hold(ctx context.Context, of broker.Offer, token string, ttl time.Duration) (broker.Held, error)
	Release(ctx context.Context, worker cluster.WorkerID, token string) error
}

func (a *bidsAPI) opHandlers() handlers {
	return handlers{
		"POST /v1/souk/workers/{worker}/quote":          a.quoteAt,
		"POST /v1/souk/workers/{worker}/holds":          a.holdAt,
		"DELETE /v1/souk/workers/{worker}/holds/{hold}": a.releaseAt,
		"POST /v1/souk/workers/{worker}/machines":       a.grantAt,
	}
}

// readBid reads a bid from the body, and finds its worker. Ids match exactly.
func (a *bidsAPI) readBid(w http.ResponseWriter, r *http.Request) (*api.Bid, broker.Offer, error) {
	var b api.Bid
	worker, err := a.directory.workerOf(r)
	if err != nil {
		return nil, broker.Offer{}, err
	}
	if err := readJSON(w, r, &b, false); err != nil {
		return nil, broker.Offer{}, err
	}
	if b.Launch == nil || b.Launch.Config == nil {
		return nil, broker.Offer{}, fault.New(fault.Invalid, codeBid, "a bid needs an app and a launch with a config")
	}
	if _, err := a.catalog.OpenApp(b.App); err != nil {
		return nil, broker.Offer{}, err
	}
	if err := settleOwnerOf(r, b.App, b.Launch); err != nil {
		return nil, broker.Offer{}, err
	}
	return &b, broker.Offer{App: b.App, Launch: b.Launch, Worker: worker.ID()}, broker.CheckLaunch(b.Launch)
}

func (a *bidsAPI) quoteAt(w http.ResponseWriter, r *http.Request) error {
	_, offer, err := a.readBid(w, r)
	if err != nil {
		return err
	}
	q, err := a.broker.Quote(r.Context(), offer)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, q)
	return nil
}

func (a *bidsAPI) holdAt(w http.ResponseWriter, r *http.Request) error {
	b, offer, err := a.readBid(w, r)
	if err != nil {
		return err
	}
	ttl := time.Duration(min(max(b.TTL, 0), market.MaxHoldTTL.Seconds()+1) * float64(time.Second))
	h, err := a.broker.Hold(r.Context(), offer, b.Hold, ttl)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, api.Held{Hold: h.Token, Expires: h.Expires, Machine: h.Machine})
	return nil
}

func (a *bidsAPI) releaseAt(w http.ResponseWriter, r *http.Request) error {
	if err := a.broker.Release(r.Context(), cluster.WorkerID(r.PathValue("worker")), r.PathValue("hold")); err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, api.OK{OK: true})
	return nil
}

func (a *bidsAPI) grantAt(w http.ResponseWriter, r *http.Request) error {
	b, offer, err := a.readBid(w, r)
	if err != nil {
		return err
	}
	placed, err := a.broker.Place(r.Context(), broker.Intent{App: b.App, Launch: b.Launch,
		Bid: &broker.Bid{Worker: offer.Worker, Hold: b.Hold, Evict: b.Evict, Reason: b.Reason}})
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, placed.Machines[0])
	return nil
}
