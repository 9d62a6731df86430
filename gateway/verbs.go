package gateway

import (
	"net/http"
	"slices"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/machine"
)

// verbsAPI serves the verbs of machines (start, stop, ...).
type verbsAPI struct {
	broker    verbBroker
	directory *directory
}

// verbBroker is what verbsAPI needs of the broker.
type verbBroker interface {
	AskOwner(why string, do func() (lifecycle.Outcome, error)) (lifecycle.Outcome, error)
}

func (a *verbsAPI) opHandlers() handlers {
	return handlers{
		"POST /v1/apps/{app}/machines/{id}/start":    a.startMachine,
		"POST /v1/apps/{app}/machines/{id}/stop":     a.stopMachine,
		"POST /v1/apps/{app}/machines/{id}/restart":  a.restartMachine,
		"POST /v1/apps/{app}/machines/{id}/signal":   a.signalMachine,
		"POST /v1/apps/{app}/machines/{id}/resize":   a.resizeMachine,
		"POST /v1/apps/{app}/machines/{id}/suspend":  a.suspendMachine,
		"POST /v1/apps/{app}/machines/{id}/cordon":   a.plainVerb(lifecycle.Cordon),
		"POST /v1/apps/{app}/machines/{id}/uncordon": a.plainVerb(lifecycle.Uncordon),
	}
}

// commandOf begins a command for the machine of the path. Verbs that may take as long as a machine's grace are answered
// once they have begun, if the client prefers that (RFC 7240, section 4.1).
func commandOf(r *http.Request, v lifecycle.Verb) lifecycle.Command {
	slow := v == lifecycle.Start || v == lifecycle.Stop || v == lifecycle.Restart || v == lifecycle.Suspend
	return lifecycle.Command{
		Verb: v, App: r.PathValue("app"), Machine: r.PathValue("id"), Nonce: r.Header.Get(api.NonceHeader),
		Source: machine.SourceUser,
		Begun:  slow && slices.Contains(r.Header.Values(api.PreferHeader), api.RespondAsync),
	}
}

// plainVerb serves the verbs without a body and without a result.
func (a *verbsAPI) plainVerb(v lifecycle.Verb) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		return a.carryOut(w, r, commandOf(r, v))
	}
}

// carryOut executes a command, and answers that it is done or has begun.
func (a *verbsAPI) carryOut(w http.ResponseWriter, r *http.Request, c lifecycle.Command) error {
	out, err := a.directory.doCommand(r, c)
	if err != nil {
		return err
	}
	return answerDone(w, out)
}

func (a *verbsAPI) startMachine(w http.ResponseWriter, r *http.Request) error {
	out, err := a.broker.AskOwner(decision.Start,
		func() (lifecycle.Outcome, error) { return a.directory.doCommand(r, commandOf(r, lifecycle.Start)) })
	if err != nil {
		return err
	}
	message := "machine is " + string(out.Machine.State)
	if out.Begun != nil {
		message += "; it is on its way to " + string(out.Begun.Until)
	}
	answerJSON(w, http.StatusOK, api.Started{Status: "success", Message: message, Previous: out.Previous,
		Begun: out.Begun})
	return nil
}

func (a *verbsAPI) stopMachine(w http.ResponseWriter, r *http.Request) error {
	var in api.StopRequest
	if err := readJSON(w, r, &in, true); err != nil {
		return err
	}
	if in.ID != "" && in.ID != r.PathValue("id") {
		return fault.New(fault.Invalid, fault.CodeID,
			"the body names machine %s and the path %s; send the path's, or none", clipText(in.ID, 40),
			r.PathValue("id"))
	}
	if in.Timeout.Duration < 0 || in.Timeout.Duration > machine.MaxStopTimeout {
		return fault.New(fault.Invalid, lifecycle.CodeTimeout,
			"a stop waits from 0s (the machine's own time) to %v, not %v", machine.MaxStopTimeout, in.Timeout.Duration)
	}
	if err := checkSignal(in.Signal); err != nil {
		return err
	}
	c := commandOf(r, lifecycle.Stop)
	c.Signal, c.Timeout = in.Signal, in.Timeout.Duration
	return a.carryOut(w, r, c)
}

func (a *verbsAPI) suspendMachine(w http.ResponseWriter, r *http.Request) (err error) {
	c := commandOf(r, lifecycle.Suspend)
	if c.ToDisk, err = queryBool(r, "to_disk"); err != nil {
		return err
	}
	return a.carryOut(w, r, c)
}

func (a *verbsAPI) restartMachine(w http.ResponseWriter, r *http.Request) error {
	c := commandOf(r, lifecycle.Restart)
	var err error
	if c.Kill, err = queryBool(r, "force_stop"); err != nil {
		return err
	}
	if c.Timeout, err = queryDuration(r, "timeout", machine.MaxStopTimeout); err != nil {
		return err
	}
	c.Signal = r.URL.Query().Get("signal")
	if err := checkSignal(c.Signal); err != nil {
		return err
	}
	out, err := a.broker.AskOwner(decision.Restart,
		func() (lifecycle.Outcome, error) { return a.directory.doCommand(r, c) })
	if err != nil {
		return err
	}
	return answerDone(w, out)
}

// checkSignal refuses unknown signal names; "" means the machine's own stop signal.
func checkSignal(s string) error {
	if s == "" {
		return nil
	}
	_, err := machine.ParseSignal(s)
	return err
}

func (a *verbsAPI) signalMachine(w http.ResponseWriter, r *http.Request) error {
	var in api.SignalRequest
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if in.Signal == "" {
		return fault.New(fault.Invalid, fault.CodeSignal, "no signal was named; send {\"signal\": \"SIGTERM\"}")
	}
	if _, err := machine.ParseSignal(string(in.Signal)); err != nil {
		return err
	}
	c := commandOf(r, lifecycle.Signal)
	c.Signal = string(in.Signal)
	return a.carryOut(w, r, c)
}

func (a *verbsAPI) resizeMachine(w http.ResponseWriter, r *http.Request) error {
	c := commandOf(r, lifecycle.Resize)
	c.Resize = new(machine.Resize)
	if err := readJSON(w, r, c.Resize, false); err != nil {
		return err
	}
	out, err := a.broker.AskOwner(decision.Resize,
		func() (lifecycle.Outcome, error) { return a.directory.doCommand(r, c) })
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, out.Machine)
	return nil
}

// Bounds of a lease, in seconds.
const (
	defaultLease = 120
	maxLease     = 24 * 3600
)

// leasesAPI serves the leases of machines.
type leasesAPI struct {
	directory *directory
}

func (a *leasesAPI) opHandlers() handlers {
	return handlers{
		"GET /v1/apps/{app}/machines/{id}/lease":    a.getLease,
		"POST /v1/apps/{app}/machines/{id}/lease":   a.acquireLease,
		"DELETE /v1/apps/{app}/machines/{id}/lease": a.releaseLease,
	}
}

func (a *leasesAPI) getLease(w http.ResponseWriter, r *http.Request) error {
	app, id := r.PathValue("app"), r.PathValue("id")
	l, err := find.Owner(r.Context(), a.directory.Directory, app, id, find.MachineMissing,
		func(k Worker) (machine.Lease, error) { return k.CurrentLease(r.Context(), app, id) })
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, api.LeaseAnswer{Status: "success", Data: l})
	return nil
}

// acquireLease takes a lease, or refreshes it if the request has its nonce.
func (a *leasesAPI) acquireLease(w http.ResponseWriter, r *http.Request) error {
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
		return fault.New(fault.Invalid, fault.CodeTTL, "a lease lasts from 1 to %d seconds, not %d", maxLease, ttl)
	}
	c := leaseCommand(r)
	c.TTL, c.Owner = time.Duration(ttl)*time.Second, leaseOwner(in)
	l, err := a.leaseMachine(r, c)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusCreated, api.LeaseAnswer{Status: "success", Data: l})
	return nil
}

func (a *leasesAPI) releaseLease(w http.ResponseWriter, r *http.Request) error {
	c := leaseCommand(r)
	c.Release = true
	if _, err := a.leaseMachine(r, c); err != nil {
		return err
	}
	return answerOK(w)
}

func leaseCommand(r *http.Request) lifecycle.LeaseCommand {
	return lifecycle.LeaseCommand{App: r.PathValue("app"), Machine: r.PathValue("id"),
		Nonce: r.Header.Get(api.NonceHeader)}
}

// leaseOwner returns the owner shown in conflicts, as the client states it; it is not verified.
func leaseOwner(in api.LeaseRequest) string {
	switch {
	case in.Owner != "":
		return clipText(in.Owner, 100)
	case in.Description != "":
		return clipText(in.Description, 100)
	}
	return "api"
}

func (a *leasesAPI) leaseMachine(r *http.Request, c lifecycle.LeaseCommand) (machine.Lease, error) {
	return find.Owner(r.Context(), a.directory.Directory, c.App, c.Machine, find.MachineMissing,
		func(w Worker) (machine.Lease, error) { return w.Lease(r.Context(), c) })
}
