package gateway

import (
	"net/http"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/market"
)

// The market's own verbs, for schedulers outside of souk: they read the view, choose for themselves, and ask a worker by
// its id. What they may do is what souk's own strategies do, and no more: the worker judges every grant.

// bid reads the body, and says for which worker it is. Ids match exactly.
func (g *Gateway) bid(w http.ResponseWriter, r *http.Request) (*api.Bid, broker.Offer, error) {
	var b api.Bid
	worker, err := g.workerOf(r)
	if err != nil {
		return nil, broker.Offer{}, err
	}
	if err := readJSON(w, r, &b, false); err != nil {
		return nil, broker.Offer{}, err
	}
	if b.Launch == nil || b.Launch.Config == nil {
		return nil, broker.Offer{}, fault.New(fault.Invalid, "bid", "a bid needs an app and a launch with a config")
	}
	if _, err := g.catalog.OpenApp(b.App); err != nil {
		return nil, broker.Offer{}, err
	}
	return &b, broker.Offer{App: b.App, Launch: b.Launch, Worker: worker.ID()}, checkLaunch(b.Launch)
}

func (g *Gateway) quoteAt(w http.ResponseWriter, r *http.Request) error {
	_, offer, err := g.bid(w, r)
	if err != nil {
		return err
	}
	q, err := g.broker.Quote(r.Context(), offer)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, q)
	return nil
}

func (g *Gateway) holdAt(w http.ResponseWriter, r *http.Request) error {
	b, offer, err := g.bid(w, r)
	if err != nil {
		return err
	}
	ttl := time.Duration(min(max(b.TTL, 0), market.MaxHoldTTL.Seconds()+1) * float64(time.Second))
	h, err := g.broker.Hold(r.Context(), offer, b.Hold, ttl)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, api.Held{Hold: h.Token, Expires: h.Expires, Machine: h.Machine})
	return nil
}

func (g *Gateway) releaseAt(w http.ResponseWriter, r *http.Request) error {
	if err := g.broker.Release(r.Context(), cluster.WorkerID(r.PathValue("worker")), r.PathValue("hold")); err != nil {
		return err
	}
	answer(w, http.StatusOK, api.OK{OK: true})
	return nil
}

func (g *Gateway) grantAt(w http.ResponseWriter, r *http.Request) error {
	b, offer, err := g.bid(w, r)
	if err != nil {
		return err
	}
	placed, err := g.broker.Place(r.Context(), broker.Intent{App: b.App, Launch: b.Launch,
		Bid: &broker.Bid{Worker: offer.Worker, Hold: b.Hold, Evict: b.Evict, Reason: b.Reason}})
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, placed.Machines[0])
	return nil
}
