package gateway

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/services/releases"
)

const (
	// maxAppSeries bounds the apps that a member reports by name, the largest first: Prometheus keeps a few series for
	// each. All others are added up as api.OtherApps.
	maxAppSeries = 500
	// jobsTime bounds how long a page of metrics waits for the buyer of tasks.
	jobsTime = 2 * time.Second
)

// appCollector reports apps' machines on this process's own workers, and replicas of the services whose steward this
// member is. So a sum over members counts each machine and each replica once.
type appCollector struct{ services *releases.Releases }

// Describe describes nothing, as workerCollector's does.
func (appCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics.
func (c appCollector) Collect(out chan<- prometheus.Metric) {
	c.collectMachines(out)
	c.collectReplicas(out)
}

// collectMachines counts the own workers' machines by app and state.
func (c appCollector) collectMachines(out chan<- prometheus.Metric) {
	type kind struct {
		app   string
		state machine.State
	}
	known, sizes, all := c.services.Directory.Fleet.Snapshot(), map[string]int{}, map[kind]int{}
	own := map[cluster.WorkerID]bool{}
	for w := range known.Workers() {
		own[w.ID] = w.Own
	}
	for m := range known.AllMachines() {
		if own[m.Worker] && m.State != machine.Destroyed {
			all[kind{m.App, m.State}]++
			sizes[m.App]++
		}
	}
	named, told := namedApps(sizes), map[kind]int{}
	for k, n := range all {
		told[kind{named(k.app), k.state}] += n
	}
	desc := prometheus.NewDesc("souk_app_machines", "Machines of this member's workers, by app and state.",
		[]string{"app", "state"}, nil)
	for k, n := range told {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), k.app, string(k.state))
	}
}

// replicaCount is how many replicas a group should have, and how many are ready or asleep.
type replicaCount struct{ wanted, ready, asleep int }

// collectReplicas counts the replicas of services whose steward this member is.
func (c appCollector) collectReplicas(out chan<- prometheus.Metric) {
	groups, sizes := map[[2]string]replicaCount{}, map[string]int{}
	for app, carried := range c.services.Carried() {
		for _, g := range carried {
			groups[[2]string{app, g.Name}] = countReplicas(&g)
			sizes[app] += g.Wanted
		}
	}
	named, told := namedApps(sizes), map[[2]string]replicaCount{}
	for k, n := range groups {
		if app := named(k[0]); app != k[0] {
			k = [2]string{app}
		}
		sum := told[k]
		told[k] = replicaCount{sum.wanted + n.wanted, sum.ready + n.ready, sum.asleep + n.asleep}
	}
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help+" Only the member that carries the service tells of it.",
			[]string{"app", "group"}, nil)
	}
	wanted := desc("souk_replicas_wanted", "Replicas that a group of a service is to have.")
	ready := desc("souk_replicas_ready", "Of those, how many have a machine of the release in force that is ready.")
	asleep := desc("souk_replicas_asleep", "Of those, how many have one that may be down: somebody stopped it, or it "+
		"waits for a request.")
	for k, n := range told {
		for _, m := range []struct {
			desc *prometheus.Desc
			n    int
		}{{wanted, n.wanted}, {ready, n.ready}, {asleep, n.asleep}} {
			out <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, float64(m.n), k[0], k[1])
		}
	}
}

func countReplicas(g *api.GroupStatus) replicaCount {
	n := replicaCount{wanted: g.Wanted, ready: g.Ready}
	for i := range g.Slots {
		if x := &g.Slots[i]; x.Asleep && !x.Ready && !x.Extra && !x.Old {
			n.asleep++
		}
	}
	return n
}

// namedApps returns a function from an app to its label: the largest apps have their names, the others api.OtherApps.
func namedApps(sizes map[string]int) func(app string) string {
	if len(sizes) <= maxAppSeries {
		return func(app string) string { return app }
	}
	apps := slices.SortedFunc(maps.Keys(sizes), func(a, b string) int {
		return cmp.Or(cmp.Compare(sizes[b], sizes[a]), cmp.Compare(a, b))
	})
	for _, app := range apps[maxAppSeries:] {
		delete(sizes, app)
	}
	return func(app string) string {
		if _, is := sizes[app]; is {
			return app
		}
		return api.OtherApps
	}
}

// jobCollector reports the jobs that this member keeps.
type jobCollector struct{ jobs OwnJobs }

// Describe describes nothing, as workerCollector's does.
func (jobCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics, if jobs are accepted and the buyer answers. The schedulers are those of the registry at
// most, and only those that jobs have named.
func (c jobCollector) Collect(out chan<- prometheus.Metric) {
	if c.jobs == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), jobsTime)
	defer cancel()
	list, err := c.jobs.List(ctx, "")
	if err != nil {
		return
	}
	byState := map[jobs.JobState]int{jobs.Waiting: 0, jobs.Running: 0, jobs.Succeeded: 0, jobs.Failed: 0,
		jobs.Cancelled: 0}
	tasks := map[jobs.JobState]int{}
	for i := range list {
		j := &list[i]
		byState[j.State]++
		tasks[jobs.Waiting] += j.Waiting
		tasks[jobs.Running] += j.Running
		tasks[jobs.Succeeded] += j.Succeeded
		tasks[jobs.Failed] += j.Failed
		tasks[jobs.Cancelled] += j.Cancelled
	}
	of := prometheus.NewDesc("souk_jobs", "Jobs that this member keeps, by state; ended ones for as long as it does.",
		[]string{"state"}, nil)
	ofTasks := prometheus.NewDesc("souk_tasks", "Tasks of those jobs, by state.", []string{"state"}, nil)
	for state, n := range byState {
		out <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, float64(n), string(state))
		out <- prometheus.MustNewConstMetric(ofTasks, prometheus.GaugeValue, float64(tasks[state]), string(state))
	}
	sent, err := c.jobs.SchedulerMessages(ctx)
	if err != nil {
		return
	}
	ofMessages := prometheus.NewDesc("souk_scheduler_messages_total",
		"Messages that the parties of a scheduler have sent here.", []string{"scheduler"}, nil)
	for name, n := range sent {
		out <- prometheus.MustNewConstMetric(ofMessages, prometheus.CounterValue, float64(n), name)
	}
}
