package broker

import (
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// metrics count what is placed, and what each strategy does. No label has the name of a machine or an app: their number
// has no bound.
type metrics struct {
	placement *prometheus.HistogramVec
	bids      *prometheus.CounterVec
	refused   *prometheus.CounterVec
	shadows   *prometheus.CounterVec

	placements *prometheus.CounterVec
	conflicts  *prometheus.CounterVec
	asks       *prometheus.CounterVec
	thinking   *prometheus.CounterVec
	took       *prometheus.HistogramVec
}

func newMetrics() *metrics {
	buckets := []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	times := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	m := &metrics{
		placement: times("souk_placement_duration_seconds",
			"Time from a create to a worker's grant, with the start when it was asked for.", "outcome", "reason"),
		bids:    counter("souk_bids_total", "Grants asked of workers, by what came of it.", "result"),
		refused: counter("souk_placements_refused_total", "Placements that no worker took, by the reason.", "reason"),
		shadows: counter("souk_policy_shadow_total",
			"Machines placed while a shadow policy watched, by whether it would have chosen the same worker.", "same"),

		placements: counter("souk_scheduler_placements_total", "Machines that a scheduler was asked to place.",
			"scheduler", "outcome"),
		conflicts: counter("souk_scheduler_conflicts_total",
			"Asks that a worker refused because the scheduler's view was not true any more.", "scheduler"),
		asks: counter("souk_scheduler_asks_total", "Holds and grants that a scheduler asked for.", "scheduler"),
		thinking: counter("souk_scheduler_busy_seconds_total", "Time that a scheduler spent on decisions.",
			"scheduler"),
		took: times("souk_scheduler_duration_seconds", "Time from a request to its grant, by scheduler.",
			"scheduler"),
	}
	for _, p := range decision.PendingOrder() {
		m.refused.WithLabelValues(string(p)) // so that each series exists from the start
	}
	return m
}

// Collectors returns what a broker counts, for a registry of metrics.
func (b *Broker) Collectors() []prometheus.Collector {
	m := b.metrics
	return []prometheus.Collector{m.placement, m.bids, m.refused, m.shadows, m.placements, m.conflicts, m.asks,
		m.thinking, m.took}
}

// countOrder counts an order that has ended.
func (m *metrics) countOrder(o *Order, err error, took time.Duration) {
	if o.Bid != nil {
		return // a bid: only its asks are counted
	}
	if o.Gang == nil {
		outcome, reason := "placed", ""
		if f := fault.As(err); f != nil {
			outcome, reason = string(f.Kind), f.Resource
			if reason == "" {
				reason = string(f.Code)
			}
		}
		m.placement.WithLabelValues(outcome, reason).Observe(took.Seconds())
	}
	if o.name == Direct {
		return
	}
	outcome := "placed"
	if err != nil {
		outcome = string(fault.KindOf(err))
	}
	m.placements.WithLabelValues(o.name, outcome).Inc()
	m.took.WithLabelValues(o.name).Observe(took.Seconds())
}

func (m *metrics) countConflict(name string, refused bool) {
	m.asks.WithLabelValues(name).Inc()
	if refused {
		m.conflicts.WithLabelValues(name).Inc()
	}
}

func (m *metrics) addBusyTime(name string, took time.Duration) {
	m.thinking.WithLabelValues(name).Add(took.Seconds())
}

func (m *metrics) countBid(a market.Answer) {
	result := "failed"
	switch {
	case a.Done:
		result = "granted"
	case a.Refused != nil:
		result = "refused"
	case a.Lost:
		result = "lost"
	case a.NotSent:
		result = "unreachable"
	}
	m.bids.WithLabelValues(result).Inc()
}

// countShadow counts what the shadow policy would have done with a machine that was placed.
func (m *metrics) countShadow(shadow *machine.Shadow, worker cluster.WorkerID) {
	if shadow != nil {
		m.shadows.WithLabelValues(strconv.FormatBool(shadow.Worker == string(worker))).Inc()
	}
}

func policyLabel(name string, version int) string {
	if version == 0 {
		return name
	}
	return fmt.Sprintf("%s version %d", name, version)
}
