package api

import (
	"time"

	"github.com/soukhq/souk/core/trial"
)

// SchedulerDefault is the scheduler of jobs that name none, in a namespace or the cluster.
type SchedulerDefault struct {
	Namespace string `json:"namespace,omitempty"` // "": the cluster
	Scheduler string `json:"scheduler"`           // which such a job gets; market is souk's own auction
	// From is where it is set: namespace, cluster, or souk where it is set nowhere
	From string `json:"from"`
	// Candidate is the scheduler that it is compared with now, and Share the percentage of such jobs that go there; "":
	// none
	Candidate string `json:"candidate,omitempty"`
	Share     int    `json:"share,omitempty"`
}

// SchedulerDefaultList lists the cluster's default scheduler, and then those of the namespaces by name.
type SchedulerDefaultList struct {
	Defaults []SchedulerDefault `json:"defaults"`
}

// SchedulerChoice names the scheduler that becomes a default: NAME or NAME:N of "souk schedulers".
type SchedulerChoice struct {
	Scheduler string `json:"scheduler"`
}

// NewSchedulerComparison starts a comparison of two schedulers on the jobs that name none.
type NewSchedulerComparison struct {
	A     string `json:"a"`     // the default that is there
	B     string `json:"b"`     // the candidate
	Share int    `json:"share"` // percent of the jobs that go to B, 1 to 99
	// Margin is by how many percent the run time of jobs must be worse with one of them for the comparison to end by itself;
	// 0: it does not.
	Margin int `json:"margin"`
}

// SchedulerComparison is a comparison of two schedulers on the jobs that name none: the one that runs, or the last one that
// ran.
type SchedulerComparison struct {
	Namespace string `json:"namespace,omitempty"` // "": the cluster
	ID        string `json:"id"`
	NewSchedulerComparison
	Began   time.Time     `json:"began_at"`
	Ended   *time.Time    `json:"ended_at,omitempty"` // nil: it runs
	Why     string        `json:"why,omitempty"`      // why it ended
	Fared   trial.Apart   `json:"fared"`              // how the jobs fared, as far as members still keep them
	Verdict trial.Finding `json:"verdict"`
	Says    string        `json:"says"` // the verdict in a sentence
}
