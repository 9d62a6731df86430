package gateway

import (
	"net/http"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/market"
	"github.com/soukhq/souk/placement"
)

// The market's own verbs, for schedulers outside of souk: they read the view, choose for themselves, and ask a worker by
// its id. What they may do is what souk's own strategies do, and no more: the worker judges every grant.

// marketRoutes lists them.
func marketRoutes() []route {
	const worker = souk + "/workers/{worker}"
	return []route{
		{"POST", worker + "/quote", "Ask a worker what it would say to a launch; nothing is reserved.", "", api.Bid{}, 200, market.Quote{}, ""},
		{"POST", worker + "/holds", "Have a worker keep room for a launch for a while.", "", api.Bid{}, 200, api.Held{}, ""},
		{"DELETE", worker + "/holds/{hold}", "Give held room back.", "", nil, 200, api.OK{}, ""},
		{"POST", worker + "/machines", "Make a machine at a worker, with or without a hold.", "", api.Bid{}, 200, machine.Machine{}, ""},
	}
}

// bid reads the body, and finds the worker that it is for. Ids match exactly.
func (g *Gateway) bid(w http.ResponseWriter, r *http.Request) (Worker, *api.Bid, placement.Request, error) {
	var b api.Bid
	var req placement.Request
	worker, err := g.workerOf(r)
	if err != nil {
		return nil, nil, req, err
	}
	if err := readJSON(w, r, &b, false); err != nil {
		return nil, nil, req, err
	}
	if b.Launch == nil || b.Launch.Config == nil {
		return nil, nil, req, fault.New(fault.Invalid, "bid", "a bid needs an app and a launch with a config")
	}
	if _, err := g.catalog.OpenApp(b.App); err != nil {
		return nil, nil, req, err
	}
	if err := checkLaunch(b.Launch); err != nil {
		return nil, nil, req, err
	}
	if b.Launch.ID == "" {
		b.Launch.ID = machine.NewID(g.rand)
	}
	req, err = g.request(r.Context(), b.App, b.Launch)
	return worker, &b, req, err
}

func (g *Gateway) quoteAt(w http.ResponseWriter, r *http.Request) error {
	worker, _, req, err := g.bid(w, r)
	if err != nil {
		return err
	}
	q, err := worker.Quote(r.Context(), req)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, q)
	return nil
}

func (g *Gateway) holdAt(w http.ResponseWriter, r *http.Request) error {
	worker, b, req, err := g.bid(w, r)
	if err != nil {
		return err
	}
	h, ok := worker.(Holder)
	if !ok {
		return fault.New(fault.Unimplemented, "hold", "worker %s cannot hold room; grant without a hold", worker.ID())
	}
	if b.Hold == "" {
		b.Hold = g.holdToken()
	}
	ttl := time.Duration(min(max(b.TTL, 0), market.MaxHoldTTL.Seconds()+1) * float64(time.Second))
	until, err := h.Hold(r.Context(), req, b.Hold, ttl)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, api.Held{Hold: b.Hold, Expires: until, Machine: req.Machine})
	return nil
}

func (g *Gateway) releaseAt(w http.ResponseWriter, r *http.Request) error {
	worker, err := g.workerOf(r)
	if err != nil {
		return err
	}
	if h, ok := worker.(Holder); ok {
		if err := h.Release(r.Context(), r.PathValue("hold")); err != nil {
			return err
		}
	}
	answer(w, http.StatusOK, api.OK{OK: true})
	return nil
}

func (g *Gateway) grantAt(w http.ResponseWriter, r *http.Request) error {
	worker, b, req, err := g.bid(w, r)
	if err != nil {
		return err
	}
	if b.Launch.Name != "" {
		unlock, err := g.creates.lock(r.Context(), "name/"+b.App+"/"+b.Launch.Name)
		if err != nil {
			return err
		}
		defer unlock()
		if err := g.nameFree(r.Context(), b.App, b.Launch.Name); err != nil {
			return err
		}
	}
	rec, err := worker.Record(r.Context())
	if err != nil {
		return err
	}
	reason := clip(b.Reason, 300)
	if reason == "" {
		reason = "chosen by a scheduler outside of souk"
	}
	m, err := worker.Grant(r.Context(), lifecycle.Grant{Request: req, Hold: b.Hold, Evict: b.Evict, Launch: b.Launch, Region: string(rec.Region), Source: "user",
		Placement: &machine.Placement{Policy: "its own", Worker: string(worker.ID()), Reason: reason, Candidates: []machine.Candidate{}}})
	in := bought(worker.ID(), err)
	g.metrics.bid(in)
	g.metrics.conflict("outside", in.Refused != nil)
	if err != nil {
		return err
	}
	g.recent.add(m)
	answer(w, http.StatusOK, m)
	return nil
}
