package gateway

import (
	"net/http"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/fault"
)

// createMachine makes a machine, once: under an id that the client chose, or that its idempotency key is bound to, or a
// new one.
func (g *Gateway) createMachine(w http.ResponseWriter, r *http.Request) error {
	app, err := g.catalog.OpenApp(r.PathValue("app"))
	if err != nil {
		return err
	}
	launch, err := readLaunch(w, r)
	if err != nil {
		return err
	}
	placed, err := g.broker.Place(r.Context(), broker.Intent{App: app.Name, Launch: launch, Key: r.Header.Get(api.IdempotencyHeader)})
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, placed.Machines[0])
	return nil
}

// createGang places a gang, all or nothing.
func (g *Gateway) createGang(w http.ResponseWriter, r *http.Request) error {
	app, err := g.catalog.OpenApp(r.PathValue("app"))
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
	placed, err := g.broker.Place(r.Context(), broker.Intent{App: app.Name, Launch: body.Launch, Gang: gang})
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, api.Gang{Gang: placed.Gang, Machines: placed.Machines, Size: body.Size, Tries: placed.Tries, Refusals: placed.Refusals})
	return nil
}

// gangOf reads the body.
func gangOf(b *api.GangRequest) (*broker.Gang, error) {
	if b.Launch == nil || b.Launch.Config == nil {
		return nil, fault.New(fault.Invalid, "gang", "a gang needs a launch: what each of its machines is to run")
	}
	most := broker.MaxGangWait.Seconds() // beyond it a duration could run over
	if !(b.Wait >= 0 && b.Wait <= most) {
		return nil, fault.New(fault.Invalid, "gang", "wait is 0 to %v seconds; got %v", most, b.Wait)
	}
	gang := &broker.Gang{Size: b.Size, Min: b.Min, Same: b.Same, Wait: time.Duration(b.Wait * float64(time.Second))}
	if err := gang.Valid(b.Launch); err != nil {
		return nil, err
	}
	return gang, checkLaunch(b.Launch)
}
