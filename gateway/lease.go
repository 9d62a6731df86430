package gateway

import (
	"net/http"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
)

// Bounds of a lease, in seconds.
const (
	defaultLease = 120
	maxLease     = 24 * 3600
)

// leasesAPI serves the leases of machines.
type leasesAPI struct {
	directory *directory
}

// handlers returns what it serves.
func (g *leasesAPI) handlers() handlers {
	return handlers{
		"GET /v1/apps/{app}/machines/{id}/lease":    g.getLease,
		"POST /v1/apps/{app}/machines/{id}/lease":   g.acquireLease,
		"DELETE /v1/apps/{app}/machines/{id}/lease": g.releaseLease,
	}
}

func (g *leasesAPI) getLease(w http.ResponseWriter, r *http.Request) error {
	app, id := r.PathValue("app"), r.PathValue("id")
	l, err := owner(r.Context(), g.directory, app, id, machineMissing, func(k Worker) (machine.Lease, error) { return k.CurrentLease(r.Context(), app, id) })
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, api.LeaseAnswer{Status: "success", Data: l})
	return nil
}

// acquireLease takes a lease, or refreshes it when the request has its nonce.
func (g *leasesAPI) acquireLease(w http.ResponseWriter, r *http.Request) error {
	var in api.LeaseRequest
	if err := readJSON(w, r, &in, true); err != nil {
		return err
	}
	def := defaultLease
	if in.TTL != nil {
		def = *in.TTL
	}
	ttl, err := queryInt(r, "ttl", def, 1, maxLease)
	if err != nil {
		return err
	}
	if ttl < 1 || ttl > maxLease {
		return fault.New(fault.Invalid, "ttl", "a lease lasts from 1 to %d seconds, not %d", maxLease, ttl)
	}
	c := leaseCommand(r)
	c.TTL, c.Owner = time.Duration(ttl)*time.Second, leaseOwner(in)
	l, err := g.lease(r, c)
	if err != nil {
		return err
	}
	answer(w, http.StatusCreated, api.LeaseAnswer{Status: "success", Data: l})
	return nil
}

func (g *leasesAPI) releaseLease(w http.ResponseWriter, r *http.Request) error {
	c := leaseCommand(r)
	c.Release = true
	if _, err := g.lease(r, c); err != nil {
		return err
	}
	return answerOK(w)
}

func leaseCommand(r *http.Request) lifecycle.LeaseCommand {
	return lifecycle.LeaseCommand{App: r.PathValue("app"), Machine: r.PathValue("id"), Nonce: r.Header.Get(api.NonceHeader)}
}

// leaseOwner names the holder to those who are refused. There is one token, so it is who the client says it is.
func leaseOwner(in api.LeaseRequest) string {
	switch {
	case in.Owner != "":
		return clip(in.Owner, 100)
	case in.Description != "":
		return clip(in.Description, 100)
	}
	return "api"
}

func (g *leasesAPI) lease(r *http.Request, c lifecycle.LeaseCommand) (machine.Lease, error) {
	return owner(r.Context(), g.directory, c.App, c.Machine, machineMissing, func(w Worker) (machine.Lease, error) { return w.Lease(r.Context(), c) })
}
