package gateway

import (
	_ "embed"
	"fmt"
	"net"
	"net/http"
	goruntime "runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/internal/strangers"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/decisionlog"
)

// processAPI serves the state of this process and of the workers that it reaches: version, readiness, metrics.
type processAPI struct {
	build     cluster.Build
	region    cluster.Region
	started   time.Time
	cluster   Cluster // nil: this souk is alone
	directory *directory
	metrics   http.Handler
	full      func() error
	digest    func(id string) (digest string, err error) // finds a token's digest
}

func (a *processAPI) opHandlers() handlers {
	return handlers{
		"GET /v1/souk/version":      a.getVersion,
		"GET /v1/souk/openapi.json": a.getOpenAPI,
		"GET /v1/souk/workers":      a.listWorkers,
		"GET /v1/souk/doctor":       a.examine,
		"GET /v1/souk/proof":        a.prove,
		"GET /livez":                a.livez,
		"GET /readyz":               a.readyz,
		"GET /metrics":              a.serveMetrics,
	}
}

func (a *processAPI) getVersion(w http.ResponseWriter, _ *http.Request) error {
	answerJSON(w, http.StatusOK, api.ServerInfo{Build: a.build, Go: goruntime.Version(), Region: string(a.region),
		Workers: a.directory.Fleet.Snapshot().Len(), Started: a.started})
	return nil
}

func (a *processAPI) listWorkers(w http.ResponseWriter, _ *http.Request) error {
	out := api.WorkerList{Workers: []cluster.Record{}, Unreachable: []api.UnreachableWorker{}}
	for k := range a.directory.Fleet.Snapshot().Workers() {
		if k.Ready() {
			out.Workers = append(out.Workers, *k.Record)
		} else {
			out.Unreachable = append(out.Unreachable, api.UnreachableWorker{Worker: k.ID, Error: silenceReason(k)})
		}
	}
	answerJSON(w, http.StatusOK, out)
	return nil
}

// silenceReason says why a worker's record is unknown or unreliable.
func silenceReason(k *fleet.Worker) string {
	if k.Reachable() {
		return fmt.Sprintf("worker %s has not reported its machines and resources yet", k.ID)
	}
	return fmt.Sprintf("worker %s has not been heard of for a while; its machines may be running, but cannot be "+
		"asked or changed until it answers again", k.ID)
}

func (a *processAPI) examine(w http.ResponseWriter, r *http.Request) error {
	workers := a.directory.Workers()
	found, _ := find.AskAll(workers, func(k Worker) ([]cluster.Finding, error) { return k.Examine(r.Context()), nil })
	out := api.Examinations{Workers: []api.Examination{}}
	for i, k := range workers {
		out.Workers = append(out.Workers,
			api.Examination{Worker: k.ID(), Findings: append([]cluster.Finding{}, found[i]...)})
	}
	answerJSON(w, http.StatusOK, out)
	return nil
}

// prove lets a client check this server before it sends its token: it proves knowledge of the token's digest for a
// nonce. A token's id reveals nothing of the token, and a proof is valid for its nonce only.
func (a *processAPI) prove(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	nonce := q.Get("nonce")
	if len(nonce) < api.MinNonce || len(nonce) > api.MaxNonce {
		return fault.New(fault.Invalid, codeNonce,
			"a nonce has %d to %d characters, not %d", api.MinNonce, api.MaxNonce,
			len(nonce))
	}
	digest, err := a.digest(q.Get("token"))
	if err != nil {
		return err
	}
	strangers.Known(r.Context()) // only holders of a token, or readers of the list, know an id
	at := ""
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		at = api.ProvenAt(local.AddrPort())
	}
	answerJSON(w, http.StatusOK, api.ProofOf(digest, at, nonce))
	return nil
}

func (a *processAPI) livez(w http.ResponseWriter, _ *http.Request) error {
	return plainText(w, http.StatusOK, "ok\n")
}

func (a *processAPI) readyz(w http.ResponseWriter, _ *http.Request) error {
	if a.cluster != nil {
		if err := a.cluster.Unfit(); err != nil {
			return plainText(w, http.StatusServiceUnavailable, fault.As(err).Text+"\n")
		}
	}
	if a.directory.Fleet.Snapshot().Ready() == 0 {
		return plainText(w, http.StatusServiceUnavailable, "no worker answers\n")
	}
	for _, k := range a.directory.Those(func(x *fleet.Worker) bool { return x.Own }) {
		if s, ok := k.(silent); ok {
			if err := s.Silence(); err != nil {
				return plainText(w, http.StatusServiceUnavailable, err.Error()+"\n")
			}
		}
	}
	if err := a.full(); err != nil { // a full disk is freed through this API, so it is ready
		return plainText(w, http.StatusOK, "ok, and takes nothing new: "+err.Error()+"\n")
	}
	return plainText(w, http.StatusOK, "ok\n")
}

// silent is a worker of this process that notices when it cannot work.
type silent interface{ Silence() error }

func plainText(w http.ResponseWriter, code int, text string) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, err := w.Write([]byte(text))
	return err
}

// description is the API's OpenAPI document. A test generates it from the route table, and other tests check every
// answer against it.
//
//go:embed openapi.json
var description []byte

func (a *processAPI) getOpenAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_, err := w.Write(description)
	return err
}

// metrics are the gateway's own and its workers'. No label names a machine, since their number has no bound; for apps
// see maxAppSeries.
type metrics struct {
	requests *prometheus.HistogramVec
	serve    http.Handler
}

// buildInfo is a metric whose labels say which build of souk this is; its value is always 1.
func buildInfo(b cluster.Build) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "souk_build_info", Help: "Which souk this is, by its labels: version, commit and the date of that.",
		ConstLabels: prometheus.Labels{"version": b.Version, "commit": b.Commit, "commit_time": b.At,
			"go": goruntime.Version()},
	}, func() float64 { return 1 })
}

// newMetrics makes the metrics, and registers others with them.
func newMetrics(others ...prometheus.Collector) *metrics {
	buckets := []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	m := &metrics{
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "souk_http_request_duration_seconds", Help: "Time from a request to the end of its answer.",
			Buckets: buckets,
		}, []string{"route", "method", "code"}),
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(others...)
	registry.MustRegister(m.requests, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.serve = promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
	return m
}

func (m *metrics) observeRequest(method, route string, code int, took time.Duration) {
	switch method {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS":
	default:
		method = "other"
	}
	m.requests.WithLabelValues(route, method, strconv.Itoa(code)).Observe(took.Seconds())
}

func (a *processAPI) serveMetrics(w http.ResponseWriter, r *http.Request) error {
	a.metrics.ServeHTTP(w, r)
	return nil
}

// decisionCollector reports the decision log's counters.
type decisionCollector struct{ log *decisionlog.Log }

// Describe describes nothing, as workerCollector's does.
func (decisionCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the log's counters, if there is a log.
func (c decisionCollector) Collect(out chan<- prometheus.Metric) {
	if c.log == nil {
		return
	}
	s := c.log.Stats()
	for _, m := range []struct {
		name, help string
		kind       prometheus.ValueType
		v          float64
	}{
		{"souk_decisions_recorded_total", "Decisions written to the log.", prometheus.CounterValue,
			float64(s.Recorded)},
		{"souk_decisions_dropped_total", "Decisions not recorded, as the log's queue was full.",
			prometheus.CounterValue, float64(s.Dropped)},
		{"souk_decisions_failed_total", "Decisions not recorded, as the disk refused.", prometheus.CounterValue,
			float64(s.Failed)},
		{"souk_decision_log_bytes", "Size of the decision log.", prometheus.GaugeValue, float64(s.Bytes)},
	} {
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(m.name, m.help, nil, nil), m.kind, m.v)
	}
}

// workerCollector reports this process's own workers only: each member reports its own, so that a sum over members
// counts everything once.
type workerCollector struct{ *directory }

// Describe describes nothing: the metrics depend on the workers.
func (workerCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the workers' counters, in base units.
func (c workerCollector) Collect(out chan<- prometheus.Metric) {
	workers := c.Those(func(w *fleet.Worker) bool { return w.Own })
	stats, _ := find.AskAll(workers, func(w Worker) (WorkerStats, error) { return w.Stats(), nil })
	for i, w := range workers {
		collectWorker(out, string(w.ID()), stats[i])
	}
}

func collectWorker(out chan<- prometheus.Metric, worker string, s WorkerStats) {
	emit := func(kind prometheus.ValueType, name, help string, v float64, labels ...string) {
		names, values := []string{"worker"}, []string{worker}
		for i := 0; i+1 < len(labels); i += 2 {
			names, values = append(names, labels[i]), append(values, labels[i+1])
		}
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, v, values...)
	}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	used := s.Record.Used
	for _, d := range s.Record.Capacity.Dims() {
		resource, unit := baseUnit(d.Name, d.Unit)
		emit(gauge, "souk_worker_capacity", "What a worker may grant: cores, bytes, GPUs or a count.",
			float64(d.Amount)*unit, "resource", resource)
		emit(gauge, "souk_worker_used", "What a worker has granted and holds.", float64(used.Get(d.Name))*unit,
			"resource", resource)
		emit(gauge, "souk_worker_promised", "What machines that sleep would claim if requests woke them all.",
			float64(s.Record.Promised.Get(d.Name))*unit, "resource", resource)
	}
	for state, n := range s.States {
		emit(gauge, "souk_machines", "Machines by state.", float64(n), "state", string(state))
	}
	emit(gauge, "souk_machines_starting", "Machines on their way up.", float64(s.Record.Starting))
	for op, n := range s.RunsActive {
		emit(gauge, "souk_runs_active", "Operations under way.", float64(n), "operation", op)
	}
	for key, n := range s.RunsDone {
		op, outcome, _ := strings.Cut(key, "/")
		emit(counter, "souk_runs_total", "Operations that ended.", float64(n), "operation", op, "outcome", outcome)
	}
	emit(gauge, "souk_runs_stuck", "Operations past a step's deadline, or repeating for over a minute.",
		float64(s.RunsStuck))
	emit(counter, "souk_journal_commits_total", "Commits of the journal.", float64(s.Commits))
	emit(counter, "souk_journal_records_total", "Records in those commits.", float64(s.Records))
	emit(counter, "souk_journal_commit_seconds_total", "Time spent in commits.", s.CommitTime.Seconds())
	for reason, n := range s.Refusals {
		emit(counter, "souk_refusals_total", "Grants refused, by the clause that failed.", float64(n), "reason", reason)
	}
	for rule, n := range s.Evicted {
		emit(counter, "souk_preemptions_total", "Machines evicted, by the rule that allowed it.", float64(n), "rule",
			rule)
	}
	emit(gauge, "souk_waiting_for_room", "Machines that wait for the room of those they evict.", float64(s.Waiting))
	emit(counter, "souk_holds_expired_total", "Holds that ended without a grant.", float64(s.HoldsExpired))
	emit(counter, "souk_drift_total", "Differences between runtime and journal that were found and mended.",
		float64(s.Drift))
}

// baseUnit returns a dimension's name and the factor to its base unit. Named GPUs, like all GPUs, are counted in
// thousandths.
func baseUnit(name, unit string) (string, float64) {
	switch {
	case name == "cpu":
		return "cpu_cores", 0.001
	case name == "gpu":
		return "gpus", 0.001
	case strings.HasPrefix(name, machine.GPUKindPrefix):
		return name, 0.001
	case unit == "MiB":
		return name + "_bytes", 1 << 20
	}
	return name, 1
}
