package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/decision"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
)

func (g *Gateway) listMachines(w http.ResponseWriter, r *http.Request) error {
	app := r.PathValue("app")
	if _, err := g.catalog.App(app); err != nil {
		return err
	}
	deleted, err := queryBool(r, "include_deleted")
	if err != nil {
		return err
	}
	summary, err := queryBool(r, "summary")
	if err != nil {
		return err
	}
	all, err := g.listing(r.Context(), app, deleted, listFilter(r))
	if err != nil {
		return err
	}
	if summary {
		for i, m := range all {
			all[i].text = (*plain)(m.Summary())
		}
	}
	answerListed(w, "", all, "\n")
	return nil
}

// listFilter reads region=, state= and metadata.K=V.
func listFilter(r *http.Request) func(*machine.Machine) bool {
	q := r.URL.Query()
	return func(m *machine.Machine) bool {
		if region := q.Get("region"); region != "" && region != m.Region {
			return false
		}
		if states := q["state"]; len(states) > 0 && !slices.Contains(strings.Split(strings.Join(states, ","), ","), string(m.State)) {
			return false
		}
		for k, v := range q {
			key, ok := strings.CutPrefix(k, "metadata.")
			if !ok {
				continue
			}
			if m.Config == nil || !hasValue(m.Config.Metadata, key, v[0]) {
				return false
			}
		}
		return true
	}
}

func hasValue(m map[string]string, key, want string) bool {
	got, ok := m[key]
	return ok && got == want
}

func (g *Gateway) getMachine(w http.ResponseWriter, r *http.Request) error {
	f, err := g.find(r.Context(), r.PathValue("app"), r.PathValue("id"))
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, f.machine)
	return nil
}

// command begins a command for the machine of the path. Verbs that may take as long as a machine's grace are answered when
// they have begun, where the client prefers that (RFC 7240, section 4.1).
func command(r *http.Request, v lifecycle.Verb) lifecycle.Command {
	slow := v == lifecycle.Start || v == lifecycle.Stop || v == lifecycle.Restart || v == lifecycle.Suspend
	return lifecycle.Command{
		Verb: v, App: r.PathValue("app"), Machine: r.PathValue("id"), Nonce: r.Header.Get(api.NonceHeader), Source: "user",
		Begun: slow && slices.Contains(r.Header.Values(api.PreferHeader), api.RespondAsync),
	}
}

// plain serves the verbs that take nothing and tell nothing.
func (g *Gateway) plain(v lifecycle.Verb) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if _, err := g.do(r, command(r, v)); err != nil {
			return err
		}
		return answerOK(w)
	}
}

func (g *Gateway) updateMachine(w http.ResponseWriter, r *http.Request) error {
	c := command(r, lifecycle.Update)
	f, err := g.find(r.Context(), c.App, c.Machine)
	if err != nil {
		return err
	}
	if c.Launch, err = readLaunch(w, r); err != nil {
		return err
	}
	if v := c.Launch.MinSecretsVersion; v != nil {
		if err := g.catalog.SecretsReach(c.App, *v); err != nil {
			return err
		}
	}
	res := machine.Resources(c.Launch.Config)
	c.Resources = &res
	c.Launch.ID = c.Machine
	if _, err := g.broker.MountedVolumes(r.Context(), c.App, c.Launch); err != nil {
		return err
	}
	out, err := g.broker.AskOwner(decision.Update, func() (lifecycle.Outcome, error) { return f.worker.Do(r.Context(), c) })
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, out.Machine)
	return nil
}

func (g *Gateway) destroyMachine(w http.ResponseWriter, r *http.Request) error {
	c := command(r, lifecycle.Destroy)
	kill, err := queryBool(r, "kill")
	if err != nil {
		return err
	}
	force, err := queryBool(r, "force")
	if err != nil {
		return err
	}
	c.Kill = kill || force
	if _, err := g.do(r, c); err != nil {
		return err
	}
	g.broker.Ended(c.App, c.Machine)
	return answerOK(w)
}

func (g *Gateway) startMachine(w http.ResponseWriter, r *http.Request) error {
	out, err := g.broker.AskOwner(decision.Start, func() (lifecycle.Outcome, error) { return g.do(r, command(r, lifecycle.Start)) })
	if err != nil {
		return err
	}
	message := "machine is " + string(out.Machine.State)
	answer(w, http.StatusOK, api.Started{Status: "success", Message: message, Previous: out.Previous})
	return nil
}

func (g *Gateway) stopMachine(w http.ResponseWriter, r *http.Request) error {
	var in api.StopRequest
	if err := readJSON(w, r, &in, true); err != nil {
		return err
	}
	if in.ID != "" && in.ID != r.PathValue("id") {
		return fault.New(fault.Invalid, "id", "the body names machine %s and the path %s; send the path's, or none", clip(in.ID, 40), r.PathValue("id"))
	}
	if in.Timeout.Duration < 0 || in.Timeout.Duration > machine.MaxStopTimeout {
		return fault.New(fault.Invalid, "timeout", "a stop waits from 0s (the machine's own time) to %v, not %v", machine.MaxStopTimeout, in.Timeout.Duration)
	}
	if err := checkSignal(in.Signal); err != nil {
		return err
	}
	c := command(r, lifecycle.Stop)
	c.Signal, c.Timeout = in.Signal, in.Timeout.Duration
	if _, err := g.do(r, c); err != nil {
		return err
	}
	return answerOK(w)
}

func (g *Gateway) restartMachine(w http.ResponseWriter, r *http.Request) error {
	c := command(r, lifecycle.Restart)
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
	if _, err := g.broker.AskOwner(decision.Restart, func() (lifecycle.Outcome, error) { return g.do(r, c) }); err != nil {
		return err
	}
	return answerOK(w)
}

// checkSignal refuses what is no signal; "" is the machine's own.
func checkSignal(s string) error {
	if s == "" {
		return nil
	}
	_, err := machine.ParseSignal(s)
	return err
}

func (g *Gateway) signalMachine(w http.ResponseWriter, r *http.Request) error {
	var in api.SignalRequest
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if in.Signal == "" {
		return fault.New(fault.Invalid, "signal", "no signal was named; send {\"signal\": \"SIGTERM\"}")
	}
	if _, err := machine.ParseSignal(string(in.Signal)); err != nil {
		return err
	}
	c := command(r, lifecycle.Signal)
	c.Signal = string(in.Signal)
	if _, err := g.do(r, c); err != nil {
		return err
	}
	return answerOK(w)
}

func (g *Gateway) listEvents(w http.ResponseWriter, r *http.Request) error {
	limit, err := queryInt(r, "limit", machine.MaxEvents, 1, maxPage)
	if err != nil {
		return err
	}
	f, err := g.find(r.Context(), r.PathValue("app"), r.PathValue("id"))
	if err != nil {
		return err
	}
	events := f.machine.Events
	if events == nil {
		events = []machine.Event{}
	}
	answer(w, http.StatusOK, events[:min(limit, len(events))])
	return nil
}

func (g *Gateway) listVersions(w http.ResponseWriter, r *http.Request) error {
	app, id := r.PathValue("app"), r.PathValue("id")
	list, err := owner(r.Context(), g.directory, app, id, machineMissing, func(k Worker) ([]machine.Version, error) { return k.Versions(r.Context(), app, id) })
	if err != nil {
		return err
	}
	if list == nil {
		list = []machine.Version{}
	}
	answer(w, http.StatusOK, list)
	return nil
}

func (g *Gateway) listProcesses(w http.ResponseWriter, r *http.Request) error {
	less, err := processOrder(r.URL.Query().Get("sort_by"), r.URL.Query().Get("order"))
	if err != nil {
		return err
	}
	app, id := r.PathValue("app"), r.PathValue("id")
	list, err := owner(r.Context(), g.directory, app, id, machineMissing, func(k Worker) ([]machine.Process, error) { return k.Processes(r.Context(), app, id) })
	if err != nil {
		return err
	}
	out := append([]machine.Process{}, list...)
	for i := range out {
		if out[i].ListenSockets == nil {
			out[i].ListenSockets = []machine.ListenSocket{}
		}
	}
	if less != nil {
		slices.SortStableFunc(out, less)
	}
	answer(w, http.StatusOK, out)
	return nil
}
