package proxy

import (
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/soukhq/souk/api"
)

// metrics are what the proxy counts. None has a machine label, since their number has no bound. For apps see mostApps.
type metrics struct {
	requests *prometheus.CounterVec // by class of code
	apps     appRequests
	took     prometheus.Histogram     // until the answer's end
	wakes    *prometheus.CounterVec   // by how they ended
	wakeTime *prometheus.HistogramVec // by phase
	rests    *prometheus.CounterVec
	creates  *prometheus.CounterVec
	spares   *prometheus.CounterVec // spares made, by outcome
	warm     *prometheus.GaugeVec   // spares of the services that this member looks after
	refused  *prometheus.CounterVec // by code
	classes  [6]prometheus.Counter
}

func newMetrics(has func(app string) bool) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "souk_proxy_requests_total",
			Help: "Requests that the proxy answered, by the class of the answer's code."}, []string{"class"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "souk_proxy_request_duration_seconds",
			Help:    "From a request's head to the end of its answer.",
			Buckets: prometheus.ExponentialBuckets(.0005, 2, 16),
		}),
		wakes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "souk_proxy_wakes_total",
			Help: "Machines that were woken for requests, by how that ended."}, []string{"result"}),
		wakeTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "souk_wake_duration_seconds",
			Help:    "Of wakes, by phase: start until the program was executed, ready until its port accepted.",
			Buckets: prometheus.ExponentialBuckets(.001, 2, 16)}, []string{"phase"}),
		rests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "souk_proxy_autostops_total",
			Help: "Machines that were stopped or suspended as they had nothing to do."}, []string{"result"}),
		creates: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "souk_proxy_creates_total",
			Help: "Machines that were made for requests, by how that ended."}, []string{"result"}),
		spares: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "souk_proxy_spares_made_total",
			Help: "Spares that were made, or why not: ok, name_taken (by another member), or the error's code."},
			[]string{"result"}),
		warm: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "souk_proxy_spares",
			Help: "Of the services that this member keeps spares for: asleep, coming, and those that are missing."},
			[]string{"state"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "souk_proxy_refused_total",
			Help: "Requests that no machine answered, by the code of the error."}, []string{"code"}),
	}
	m.apps.has, m.apps.apps = has, map[string]*classes{}
	for i := range m.classes {
		m.classes[i] = m.requests.WithLabelValues(strconv.Itoa(i) + "xx")
	}
	return m
}

// Collectors returns what the proxy counts, for the process's metrics.
func (p *Proxy) Collectors() []prometheus.Collector {
	m := p.metrics
	return []prometheus.Collector{m.requests, m.took, m.wakes, m.wakeTime, m.rests, m.creates, m.spares, m.warm,
		m.refused, &m.apps,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "souk_proxy_held_requests",
			Help: "Requests that wait for a machine now."}, func() float64 { return float64(p.countHeld()) })}
}

func (p *Proxy) countHeld() (n int) {
	p.pools.forEach(func(_ key, x *pool) {
		x.mu.Lock()
		n += x.routes.Held()
		x.mu.Unlock()
	})
	return n
}

func resultOf(err error) string {
	if err != nil {
		return "failed"
	}
	return "ok"
}

func (m *metrics) countWake(p Phases, err error) {
	m.wakes.WithLabelValues(resultOf(err)).Inc()
	if err == nil {
		m.wakeTime.WithLabelValues("start").Observe(p.Start.Seconds())
		m.wakeTime.WithLabelValues("ready").Observe(p.Ready.Seconds())
	}
}

func (m *metrics) countMade(err error) { m.creates.WithLabelValues(resultOf(err)).Inc() }

func (m *metrics) countRest(err error) { m.rests.WithLabelValues(resultOf(err)).Inc() }

func (m *metrics) countRequest(app string, code int, took time.Duration) {
	if c := code / 100; c > 0 && c < len(m.classes) {
		m.classes[c].Inc()
		m.apps.countClass(app, c)
	}
	m.took.Observe(took.Seconds())
}

// mostApps bounds the apps whose requests are counted by name; all others count as api.OtherApps. Only apps with
// machines are entered, since a client may send any name.
const mostApps = 500

// appRequests counts requests by app and class of code. It is a collector.
type appRequests struct {
	has func(app string) bool // whether an app has machines

	mu   sync.RWMutex
	apps map[string]*classes
	rest classes // for apps without an entry
}

// classes counts requests by class of code.
type classes [6]atomic.Uint64

func (a *appRequests) countClass(app string, class int) {
	if app == "" {
		return // the request was for no app
	}
	a.mu.RLock()
	c := a.apps[app]
	full := len(a.apps) >= mostApps
	a.mu.RUnlock()
	if c == nil {
		c = &a.rest
		if !full && a.has(app) {
			c = a.countersOf(app)
		}
	}
	c[class].Add(1)
}

// countersOf returns an app's counters.
func (a *appRequests) countersOf(app string) *classes {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.apps[app]; c != nil {
		return c
	}
	if len(a.apps) >= mostApps {
		return &a.rest
	}
	c := &classes{}
	a.apps[app] = c
	return c
}

// Describe describes nothing: the apps are not known in advance.
func (a *appRequests) Describe(chan<- *prometheus.Desc) {}

// Collect reports the counts. If no place is free it first forgets the apps without machines.
func (a *appRequests) Collect(out chan<- prometheus.Metric) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.apps) >= mostApps {
		maps.DeleteFunc(a.apps, func(app string, _ *classes) bool { return !a.has(app) })
	}
	desc := prometheus.NewDesc("souk_proxy_app_requests_total",
		"Requests and TCP connections that this member's doors took for an app, by the class of the answer's code.",
		[]string{"app", "class"}, nil)
	tell := func(app string, c *classes) {
		for i := range c {
			if n := c[i].Load(); n > 0 {
				out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), app,
					strconv.Itoa(i)+"xx")
			}
		}
	}
	for app, c := range a.apps {
		tell(app, c)
	}
	tell(api.OtherApps, &a.rest)
}
