package gateway

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/mesh/gossip"
	"github.com/soukhq/souk/mesh/pki"
)

// Limits beyond which a health finding is not ok.
const (
	maxSkew  = 5 * time.Second  // of clocks: they order concurrent writes of two members
	maxStale = 30 * time.Second // of the last report of a live worker
	// settleTime is how long a difference between a worker and its reports, or a gap in them, must last to count:
	// reports take a moment to arrive.
	settleTime = 500 * time.Millisecond
)

// healthAPI serves the cluster's health findings.
type healthAPI struct {
	cluster   Cluster // nil: this souk is alone
	directory *directory
	claims    Claims
}

func (a *healthAPI) opHandlers() handlers {
	return handlers{
		"GET /v1/souk/health": a.clusterHealth,
	}
}

// clusterHealth reports this member's findings, and asks only this process's workers, so that monitoring may call it
// often, at each member. thorough=true asks all workers, member=ID only that member's.
func (a *healthAPI) clusterHealth(w http.ResponseWriter, r *http.Request) error {
	thorough, err := queryBool(r, "thorough")
	if err != nil {
		return err
	}
	one := cluster.WorkerID(r.URL.Query().Get("member"))
	h := api.Health{At: time.Now().UTC(), Findings: []api.HealthFinding{}}
	if a.cluster != nil {
		h.Findings = append(h.Findings, a.memberFindings(&h)...)
		h.Findings = append(h.Findings, a.staleFindings(r.Context())...)
		h.Findings = append(h.Findings, a.expiryFindings(h.Member)...)
		pairs := a.namePairs()
		if thorough {
			pairs = append(pairs, a.claims.KeyPairs(r.Context())...)
		}
		h.Findings = append(h.Findings, a.pairFindings(r.Context(), pairs)...)
	}
	for x := range a.directory.Fleet.Snapshot().Workers() {
		h.Findings = append(h.Findings, a.reportedFindings(x)...)
	}
	asked := a.directory.Those(func(x *fleet.Worker) bool { return thorough || x.Own || x.ID == one })
	lists, _ := find.AskAll(asked, func(k Worker) ([]api.HealthFinding, error) {
		return a.workerFindings(r.Context(), k, h.Member, thorough || k.ID() == one), nil
	})
	h.Findings = append(h.Findings, slices.Concat(lists...)...)
	slices.SortStableFunc(h.Findings, func(x, b api.HealthFinding) int { return cmp.Compare(x.Member, b.Member) })
	h.OK = !slices.ContainsFunc(h.Findings, func(f api.HealthFinding) bool { return !f.OK })
	answerJSON(w, http.StatusOK, h)
	return nil
}

// reportedFindings returns the findings that a worker reported itself, and those from calls to it.
func (a *healthAPI) reportedFindings(x *fleet.Worker) (out []api.HealthFinding) {
	if c := x.Record.Cordon; c != nil && x.Ready() {
		f := api.HealthFinding{Member: x.ID, Check: "cordon", OK: !c.Until.IsZero(), Have: cordonText(c),
			Advice: unlessText(!c.Until.IsZero(), "it has no end; souk node uncordon it when the work is done")}
		if c.Owner == lifecycle.HaltOwner {
			f.Check, f.Have = "twin", c.Reason
			f.Advice = "look which of the two hosts is meant to be, then say so there"
		}
		if c.Owner == cluster.DiskOwner {
			f.Check, f.Have = "disk", c.Reason
			f.Advice = "list, stop and destroy work; it takes new things by itself once there is room"
		}
		out = append(out, f)
	}
	if since, lost := a.directory.Contact.Lost(x.ID); lost && x.Reachable() {
		out = append(out, api.HealthFinding{Member: x.ID, Check: "calls",
			Have:   "it is heard of, and calls of it fail since " + since.UTC().Format(time.RFC3339),
			Advice: "see that its wire address can be reached from here"})
	}
	return out
}

// memberFindings reports which members are reachable, and which were removed.
func (a *healthAPI) memberFindings(h *api.Health) (out []api.HealthFinding) {
	for _, m := range a.cluster.Members() {
		if m.Self {
			h.Member = m.ID
		}
		f := api.HealthFinding{Member: m.ID, Check: "member", OK: m.State == cluster.MemberAlive,
			Have: fmt.Sprintf("%s since %s", m.State, m.Since.UTC().Format(time.RFC3339))}
		switch {
		case m.Removed && m.Heard():
			f.OK, f.Have = false, "removed, and its agent runs on: "+f.Have
			f.Advice = "end its agent, or let it join anew (souk token join --id " + string(m.ID) + ", then souk join)"
		case m.Removed:
			continue // reported below
		case m.State == cluster.MemberDead:
			f.Advice = "its machines may be running; start its agent again, or souk node rm it when it is gone for good"
		case m.State == cluster.MemberLeft:
			f.OK = true
		case m.State == cluster.MemberSuspect:
			f.Advice = "it did not answer a probe; it is dead to this member shortly, or was slow once"
		}
		out = append(out, f)
	}
	if err := a.cluster.Unfit(); err != nil {
		out = append(out, api.HealthFinding{Member: h.Member, Check: "serves", Have: fault.As(err).Text,
			Advice: "until then others make and keep what is asked for"})
	}
	for _, r := range a.cluster.Removed() {
		out = append(out, api.HealthFinding{Member: r.Member, Check: "removed", OK: true,
			Have: fmt.Sprintf("since %s, by %s: %s", r.At.Format(time.RFC3339), cmp.Or(r.By, "somebody"),
				cmp.Or(r.Reason, "no reason given"))})
	}
	return out
}

func (a *healthAPI) staleFindings(ctx context.Context) (out []api.HealthFinding) {
	parts := a.cluster.Parts()
	gap := func(p gossip.Part) bool { return p.Gap }
	// most gaps are a message that arrives in a moment
	if slices.ContainsFunc(parts, gap) && wait.For(ctx, settleTime) == nil {
		parts = a.cluster.Parts()
	}
	removed := map[cluster.WorkerID]bool{}
	for _, r := range a.cluster.Removed() {
		removed[r.Member] = true
	}
	for _, p := range parts {
		f := api.HealthFinding{Member: p.Worker, Check: "staleness", OK: p.Age < maxStale &&
			!p.Gap, Have: fmt.Sprintf("what is known of it is %v old", p.Age.Round(time.Millisecond))}
		if p.Gap {
			f.Have += ", and lacks something"
		}
		if p.State == cluster.MemberLeft {
			f.OK = true
		}
		if removed[p.Worker] {
			continue
		}
		if !f.OK {
			f.Advice = "its machines may be others than shown"
		}
		out = append(out, f)
	}
	return out
}

func (a *healthAPI) expiryFindings(self cluster.WorkerID) (out []api.HealthFinding) {
	for _, w := range a.cluster.Expiry() {
		f := api.HealthFinding{Member: self, Check: "certificate", OK: w.Level == pki.Fine, Have: w.Text}
		if !f.OK {
			f.Advice = "docs/break-glass.md"
		}
		out = append(out, f)
	}
	return out
}

// pairFindings reports machines that share a name in an app, or an Idempotency-Key, as a network partition can leave
// them, and says which of them is the younger.
func (a *healthAPI) pairFindings(ctx context.Context, pairs []broker.Pair) (out []api.HealthFinding) {
	for _, p := range pairs {
		var there []*machine.Machine
		for _, id := range p.Machines {
			if f, err := a.directory.Find(ctx, p.App, id); err == nil && f.Machine.State != machine.Destroyed {
				there = append(there, f.Machine)
			}
		}
		slices.SortFunc(there, func(x, y *machine.Machine) int {
			return cmp.Or(cmp.Compare(x.CreatedAt, y.CreatedAt), cmp.Compare(x.InstanceID, y.InstanceID))
		})
		for i := 1; i < len(there); i++ {
			old, young := there[0], there[i]
			out = append(out, api.HealthFinding{Member: young.Worker, Check: string(p.Kind),
				Have: fmt.Sprintf("app %s has two machines of one %s, %q: %s at %s, made %s, and %s at %s, made %s",
					p.App, p.Kind, clipText(p.Value, 60),
					old.ID, old.Worker, old.CreatedAt, young.ID, young.Worker, young.CreatedAt),
				Advice: fmt.Sprintf("%s is the younger, made while members could not hear each other; destroy the "+
					"one that is not needed (souk rm %s)", young.ID, young.ID)})
		}
	}
	return out
}

// namePairs lists the names that several machines of an app have, by their workers' reports.
func (a *healthAPI) namePairs() (out []broker.Pair) {
	for name, ids := range a.directory.Fleet.Snapshot().SharedNames() {
		out = append(out, broker.Pair{Kind: cluster.ClaimName, App: name.App, Value: name.Name, Machines: ids})
	}
	slices.SortFunc(out, func(x, y broker.Pair) int {
		return cmp.Or(cmp.Compare(x.App, y.App), cmp.Compare(x.Value, y.Value))
	})
	return out
}

// workerFindings asks one worker for its findings, and optionally compares its machines with its reports.
func (a *healthAPI) workerFindings(ctx context.Context, k Worker, self cluster.WorkerID,
	machines bool) (out []api.HealthFinding) {
	if _, err := k.Record(ctx); err != nil {
		return nil // its member's state already shows this
	}
	if a.cluster != nil && k.ID() != self {
		out = append(out, a.greetedFindings(ctx, k.ID())...)
	}
	drift := k.Stats().Drift
	out = append(out, api.HealthFinding{Member: k.ID(), Check: "drift", OK: drift == 0,
		Have:   fmt.Sprintf("%d differences between runtime and journal since its start", drift),
		Advice: unlessText(drift == 0, "they were put right; its log says what they were")})
	if a.cluster != nil && machines {
		out = append(out, a.registryDrift(ctx, k))
	}
	return out
}

// greetedFindings checks a member's clock and certificate.
func (a *healthAPI) greetedFindings(ctx context.Context, id cluster.WorkerID) []api.HealthFinding {
	asked := time.Now()
	hello, err := a.cluster.Hello(ctx, id)
	took := time.Since(asked)
	a.directory.Contact.Called(id, err == nil)
	if err != nil {
		return []api.HealthFinding{{Member: id, Check: "member", Have: "it is heard of and cannot be called: " +
			err.Error(), Advice: "see that its wire address can be reached from here"}}
	}
	skew := hello.Now.Sub(asked.Add(took / 2)) // exact to half of took
	clock := api.HealthFinding{Member: id, Check: "clock", OK: skew.Abs()-took/2 <= maxSkew,
		Have: fmt.Sprintf("%v from this member's", skew.Round(100*time.Microsecond))}
	clock.Advice = unlessText(clock.OK,
		"set the clocks by NTP: the newer of two writes wins by the clock, and certificates hold by it")
	out := []api.HealthFinding{clock}
	if !hello.Ends.IsZero() {
		left := time.Until(hello.Ends)
		f := api.HealthFinding{Member: id, Check: "certificate",
			OK: left > pki.CertificateLife-pki.RenewAfter-7*24*time.Hour, Have: "holds until " +
				hello.Ends.UTC().Format(time.RFC3339)}
		f.Advice = unlessText(f.OK,
			"it should have been renewed: an issuer must be reachable from there; see docs/break-glass.md")
		out = append(out, f)
	}
	return out
}

// registryDrift compares a worker's machines with its reports. A difference counts if it persists.
func (a *healthAPI) registryDrift(ctx context.Context, k Worker) api.HealthFinding {
	f := api.HealthFinding{Member: k.ID(), Check: "registry"}
	first, n, err := a.unreportedDiff(ctx, k)
	if err == nil && len(first) > 0 && wait.For(ctx, settleTime) == nil {
		var second []string
		second, n, err = a.unreportedDiff(ctx, k)
		first = slices.DeleteFunc(first, func(s string) bool { return !slices.Contains(second, s) })
	}
	switch {
	case err != nil:
		f.Have, f.Advice = err.Error(), "ask again"
	case len(first) == 0:
		f.OK, f.Have = true, fmt.Sprintf("%d machines, all as told", n)
	default:
		f.Have = fmt.Sprintf("%d of its machines are not as told: %s", len(first),
			clipText(fmt.Sprint(first[:min(len(first), 5)]), 300))
		f.Advice = "others see it otherwise than it is; restarting its agent tells all anew"
	}
	return f
}

// unreportedDiff lists the differences, each as "id state reported-state".
func (a *healthAPI) unreportedDiff(ctx context.Context, k Worker) (diff []string, n int, err error) {
	told := map[string]string{}
	for _, m := range a.cluster.LastMachines(k.ID()) {
		told[m.ID] = m.State
	}
	machines, err := k.Machines(ctx, "", false)
	if err != nil {
		return nil, 0, err
	}
	for _, m := range machines {
		if m.State != machine.Destroyed && told[m.ID] != string(m.State) {
			diff = append(diff, fmt.Sprintf("%s %s (%s)", m.ID, m.State, cmp.Or(told[m.ID], "unknown")))
		}
		delete(told, m.ID)
	}
	for id, state := range told {
		diff = append(diff, fmt.Sprintf("%s gone (%s)", id, state))
	}
	return diff, len(machines), nil
}

func cordonText(c *cluster.Cordon) string {
	text := fmt.Sprintf("by %s since %s: %s", c.Owner, c.Since.Format(time.RFC3339), c.Reason)
	if c.Until.IsZero() {
		return text + "; no end is set"
	}
	return text + "; until " + c.Until.Format(time.RFC3339)
}

func unlessText(ok bool, advice string) string {
	if ok {
		return ""
	}
	return advice
}

// clusterCollector reports certificates, members and the age of reports. Metrics about other members begin with
// souk_view_: each member has its own view, so a sum over members means nothing.
type clusterCollector struct{ cluster Cluster }

// Describe describes nothing, as workerCollector's does.
func (clusterCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics, if this process is a member of a cluster.
func (c clusterCollector) Collect(out chan<- prometheus.Metric) {
	if c.cluster == nil {
		return
	}
	emit := func(name, help, label, value string, v float64) {
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, []string{label}, nil),
			prometheus.GaugeValue, v, value)
	}
	calls := prometheus.NewDesc("souk_member_calls_total",
		"Questions sent to other members over the wire, a round trip each.", []string{"call"}, nil)
	for call, n := range c.cluster.Calls() {
		out <- prometheus.MustNewConstMetric(calls, prometheus.CounterValue, float64(n), call)
	}
	refused := prometheus.NewDesc("souk_gossip_refused_total",
		"What came over gossip and was not believed, by why.", []string{"why"}, nil)
	for why, n := range c.cluster.Refused() {
		out <- prometheus.MustNewConstMetric(refused, prometheus.CounterValue, float64(n), why)
	}
	for _, w := range c.cluster.Expiry() {
		emit("souk_expiry_timestamp_seconds", "When this member's certificate and the roots that it trusts end.",
			"what", w.What, float64(w.Ends.Unix()))
	}
	for _, p := range c.cluster.Parts() {
		emit("souk_view_age_seconds", "For how long a worker may have changed without this member's knowing.", "worker",
			string(p.Worker), p.Age.Seconds())
	}
	states := map[cluster.MemberState]int{cluster.MemberAlive: 0, cluster.MemberSuspect: 0, cluster.MemberDead: 0,
		cluster.MemberLeft: 0}
	for _, m := range c.cluster.Members() {
		states[m.State]++
	}
	for s, n := range states {
		emit("souk_view_members", "Members of the cluster as this one sees them, itself among them.", "state",
			string(s), float64(n))
	}
}
